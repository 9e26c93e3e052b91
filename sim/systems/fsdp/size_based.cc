// A module whose parameters are at least min_num_params is looked into, its children first; it is a
// unit if what they leave is at least as many. A ModuleList and a ModuleDict never are
// (EXCLUDE_WRAP_MODULES), and a MultiheadAttention is not looked into (FORCE_LEAF_MODULES).
#include "sim/systems/fsdp/size_based.h"

#include <algorithm>
#include <map>
#include <set>

#include "sim/systems/fsdp/plan.h"

namespace ddpsim {
namespace {

// "h.0.mlp" -> "h.0"; "h" -> "", the root.
std::string around(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}
bool is_inside(const std::string& name, const std::string& module) {
  return module.empty() || name == module || name.starts_with(module + ".");
}
bool is_number(const std::string& part) {
  return !part.empty() &&
         std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Module {
  std::set<TensorIndex> parameters;  // its own, and of what is inside
  std::set<std::string> children;
  bool own = false;        // it has parameters of its own
  bool attention = false;  // nn.MultiheadAttention
};
using Modules = std::map<std::string, Module>;

// A layer that computes with another one's weight.
struct Tied {
  std::size_t layer;
  TensorIndex weight;
};

class Wrapping {
 public:
  Wrapping(const Workload& w, const FsdpPlan& plan) : w_(w), plan_(plan) {
    for (TensorIndex t = 0; t < w.parameters(); ++t) {
      const std::string& name = w.parameter(t).name;
      Module& m = add(around(name), t);
      m.own = true;
      m.attention |= name.ends_with(".in_proj_weight") || name.ends_with(".in_proj_bias");
    }
    for (std::size_t l = 0; l < w.layers.size() && !problem_; ++l) find_tied(l);
    if (!problem_) check_lists();
    if (!problem_) wrap("");
    if (!problem_) place_layers();
  }

  const Problem& problem() const { return problem_; }
  const std::vector<std::string>& unit_of_layer() const { return of_layer_; }

 private:
  void refuse(const std::string& knob, const std::string& message) {
    if (!problem_) problem_ = {"/plan/" + knob, message};
  }
  Module& add(const std::string& module, TensorIndex t) {
    for (std::string inner = module; !inner.empty(); inner = around(inner)) {
      modules_[inner].parameters.insert(t);
      modules_[around(inner)].children.insert(inner);
    }
    modules_[""].parameters.insert(t);
    return modules_[module];
  }

  // Which weight a layer takes, if it has none of its own: the one that has its shape.
  void find_tied(std::size_t l) {
    const Layer& layer = w_.layers[l];
    const std::vector<TensorIndex> own = w_.parameters_of(layer);
    for (TensorIndex t : own) {
      const std::string module = around(w_.parameter(t).name);
      if (is_inside(layer.name, module) || is_inside(module, layer.name)) continue;
      tied_.push_back({l, t});
      add(layer.name, t);
    }
    const bool weighty = layer.op.kind == "linear" || layer.op.kind == "embedding";
    if (!own.empty() || !weighty) return;
    const std::vector<std::int64_t> shape{layer.op.outputs, layer.op.inputs};
    std::vector<TensorIndex> alike;
    for (TensorIndex t = 0; t < w_.parameters(); ++t)
      if (w_.parameter(t).shape == shape) alike.push_back(t);
    if (alike.size() != 1)
      return refuse("auto_wrap_policy",
                    "size_based counts parameters, and layer \"" + layer.name +
                        "\" takes another one's weight, which names do not say");
    tied_.push_back({l, alike.front()});
    add(layer.name, alike.front());
  }

  void check_lists() {
    const std::vector<std::string>& lists = plan_.module_lists;
    const bool word = lists.size() == 1 && (lists.front() == "none" || lists.front() == "all");
    for (std::size_t k = 0; k < lists.size() && !word; ++k)
      if (!modules_.count(lists[k]) || lists[k].empty())
        refuse("module_lists/" + std::to_string(k),
               "the model has no module \"" + lists[k] + "\" (\"none\", \"all\", or names)");
  }

  // Children that are numbers: a Sequential, which may be a unit, or a ModuleList, which may not.
  bool is_numbered(const Module& m) const {
    return !m.own && !m.children.empty() &&
           std::all_of(m.children.begin(), m.children.end(),
                       [](const std::string& c) { return is_number(c.substr(c.rfind('.') + 1)); });
  }
  bool is_list(const std::string& name, const Module& m) {
    const std::vector<std::string>& lists = plan_.module_lists;
    const bool numbered = is_numbered(m);
    if (lists.empty() && numbered)
      refuse("module_lists",
             "size_based would make \"" + name +
                 "\" a unit if it is a Sequential, and not if it is a ModuleList, which the names "
                 "of parameters do not say: --set module_lists=" +
                 name +
                 " (and others that are, with commas), \"all\" whose children are numbers, "
                 "or \"none\"");
    if (lists.size() == 1 && lists.front() == "all") return numbered;
    return std::find(lists.begin(), lists.end(), name) != lists.end();
  }

  std::int64_t elements(const Module& m) const {
    std::int64_t sum = 0;
    for (TensorIndex t : m.parameters) sum += w_.parameter(t).elements();
    return sum;
  }
  // The parameters that are in units.
  std::int64_t wrap(const std::string& name) {
    const Module& m = modules_[name];
    const std::int64_t all = elements(m);
    if (all < plan_.min_num_params || m.attention) return 0;
    std::int64_t wrapped = 0;
    for (const std::string& child : m.children) wrapped += wrap(child);
    if (name.empty() || all - wrapped < plan_.min_num_params || is_list(name, m)) return wrapped;
    units_.insert(name);
    return all;
  }

  bool has_parameters(std::size_t l) const {
    return !w_.layers[l].tensors.empty() || !w_.layers[l].frozen.empty();
  }
  std::string unit_around(std::string name) const {
    while (!name.empty() && !units_.count(name)) name = around(name);
    return name;
  }
  void place_layers() {
    std::vector<std::size_t> weighty;
    for (std::size_t l = 0; l < w_.layers.size(); ++l)
      if (has_parameters(l)) weighty.push_back(l);
    for (std::size_t l = 0; l < w_.layers.size(); ++l) {
      const auto next = std::lower_bound(weighty.begin(), weighty.end(), l);
      auto touches = [&](const std::string& module) {
        return (next != weighty.end() && is_inside(w_.layers[*next].name, module)) ||
               (next != weighty.begin() && is_inside(w_.layers[*(next - 1)].name, module));
      };
      std::string unit = unit_around(w_.layers[l].name);
      while (!has_parameters(l) && !unit.empty() && !touches(unit))
        unit = unit_around(around(unit));
      of_layer_.push_back(unit);
    }
    for (const Tied& t : tied_) {
      const std::string& weight = w_.parameter(t.weight).name;
      if (unit_around(w_.layers[t.layer].name) != unit_around(weight))
        refuse("auto_wrap_policy",
               "size_based puts layer \"" + w_.layers[t.layer].name + "\" and its weight \"" +
                   weight + "\" into two units: PyTorch unties them, and trains another model");
    }
    for (std::size_t l = 0; l < w_.layers.size(); ++l)
      for (TensorIndex t : w_.parameters_of(w_.layers[l]))
        if (of_layer_[l] != unit_around(w_.parameter(t).name))
          refuse("auto_wrap_policy", "size_based looks into modules, and layer \"" +
                                         w_.layers[l].name + "\" is known as a whole only: \"" +
                                         w_.parameter(t).name + "\" is of another unit");
  }

  const Workload& w_;
  const FsdpPlan& plan_;
  Modules modules_;
  std::vector<Tied> tied_;
  std::set<std::string> units_;
  std::vector<std::string> of_layer_;
  Problem problem_;
};

}  // namespace

std::vector<std::string> wrapped_by_size(const Workload& w, const FsdpPlan& plan) {
  return Wrapping(w, plan).unit_of_layer();
}

Problem check_wrapped_by_size(const Workload& w, const FsdpPlan& plan) {
  if (plan.min_num_params < 1)
    return {"/plan/min_num_params",
            "at least 1 (of 0, modules without parameters are units, too, and names do not say "
            "which there are)"};
  const bool mixed = plan.param_dtype || plan.reduce_dtype;
  for (const Layer& l : w.layers)
    if (mixed && l.op.kind == "batch_norm")
      return {"/plan/auto_wrap_policy", "with MixedPrecision PyTorch makes each BatchNorm (\"" +
                                            l.name +
                                            "\") a unit of full precision, which is not modelled"};
  return Wrapping(w, plan).problem();
}

}  // namespace ddpsim
