#include "sim/systems/fsdp/wrapping.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "sim/model/blocks.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp/record.h"
#include "sim/systems/fsdp/size_based.h"

namespace ddpsim {
namespace {

WrappedBlock parsed(std::string name) {
  const std::size_t dot = name.rfind('.');
  const std::string number = dot == std::string::npos ? name : name.substr(dot + 1);
  std::string list = dot == std::string::npos ? "" : name.substr(0, dot);
  const bool fits = number.size() < 18;  // block_of: digits
  return {std::move(name), std::move(list), fits ? std::atoll(number.c_str()) : 0};
}

}  // namespace

std::vector<WrappedBlock> wrapped_blocks(const Workload& w) {
  std::vector<WrappedBlock> out;
  std::set<std::string> seen;
  for (const Layer& l : w.layers) {
    if (l.tensors.empty() && l.frozen.empty()) continue;
    std::string block = block_of(l.name);
    if (!block.empty() && seen.insert(block).second) out.push_back(parsed(std::move(block)));
  }
  return out;
}

std::vector<std::vector<WrappedBlock>> blocks_by_unit(const Workload& w, const FsdpPlan& plan) {
  if (plan.auto_wrap_policy != "block") return {};
  const std::vector<WrappedBlock> blocks = wrapped_blocks(w);
  const std::vector<std::int64_t>& counts = plan.blocks_per_unit;
  std::vector<std::vector<WrappedBlock>> out;
  for (const WrappedBlock& b : blocks) {
    const std::int64_t most =
        counts.empty() ? 1 : counts[std::min(out.empty() ? 0 : out.size() - 1, counts.size() - 1)];
    const bool joins =
        !out.empty() && std::ssize(out.back()) < most && out.back().back().list == b.list;
    if (!joins) out.emplace_back();
    out.back().push_back(b);
  }
  return out;
}

ModelEnds ends_of(const Workload& w) {
  const auto in_block = [](const Layer& l) { return !block_of(l.name).empty(); };
  const auto first = std::find_if(w.layers.begin(), w.layers.end(), in_block);
  const auto last = std::find_if(w.layers.rbegin(), w.layers.rend(), in_block);
  if (first == w.layers.end()) return {0, w.layers.size()};
  const std::size_t from = first - w.layers.begin();
  const std::size_t to = w.layers.rend() - last;
  return {from, to};
}

std::vector<std::string> wrapped_units(const Workload& w, const FsdpPlan& plan) {
  if (plan.auto_wrap_policy == "size_based") return wrapped_by_size(w, plan);
  std::vector<std::string> out(w.layers.size());
  if (plan.auto_wrap_policy != "block") return out;
  for (std::size_t l = 0; l < out.size(); ++l) out[l] = block_of(w.layers[l].name);
  if (!plan.blocks_per_unit.empty()) {
    std::map<std::string, std::string> units;  // of each block
    for (const std::vector<WrappedBlock>& unit : blocks_by_unit(w, plan))
      for (const WrappedBlock& b : unit)
        units[b.name] =
            unit.front().name + (unit.size() > 1 ? "-" + std::to_string(unit.back().number) : "");
    std::string open;  // the unit of the block before, and its list
    std::string list;
    for (std::string& name : out) {
      if (name.empty()) continue;
      const std::string of = parsed(name).list;
      const auto known = units.find(name);
      if (known == units.end()) {
        if (!open.empty() && of == list) name = open;
        continue;
      }
      name = open = known->second;
      list = of;
    }
  }
  if (plan.ends_apart) {
    const ModelEnds ends = ends_of(w);
    for (std::size_t l = 0; l < ends.first; ++l) out[l] = w.layers.front().name;
    for (std::size_t l = ends.last; l < out.size(); ++l) out[l] = w.layers[ends.last].name;
  }
  return out;
}

Problem check_wrapping(const FsdpPlan& plan, const Workload& w) {
  constexpr std::int64_t kMost = 1'000'000;
  for (std::size_t k = 0; k < plan.blocks_per_unit.size(); ++k)
    if (plan.blocks_per_unit[k] < 1 || plan.blocks_per_unit[k] > kMost)
      return {"/plan/blocks_per_unit/" + std::to_string(k), "1 to 1,000,000 blocks"};
  const bool by_size = plan.auto_wrap_policy == "size_based";
  if (plan.auto_wrap_policy != "block") {
    const std::string of_blocks = std::string("is of auto_wrap_policy=block: here ") +
                                  (by_size ? "sizes decide" : "the model is one unit");
    if (!plan.blocks_per_unit.empty()) return {"/plan/blocks_per_unit", of_blocks};
    if (plan.ends_apart) return {"/plan/ends_apart", of_blocks};
  }
  if (by_size) return check_wrapped_by_size(w, plan);
  if (plan.min_num_params != FsdpPlan{}.min_num_params)
    return {"/plan/min_num_params", "is of auto_wrap_policy=size_based"};
  if (!plan.module_lists.empty())
    return {"/plan/module_lists", "is of auto_wrap_policy=size_based"};
  if (!plan.ends_apart) return {};
  const ModelEnds ends = ends_of(w);
  if (ends.first == 0 && ends.last == w.layers.size())
    return {"/plan/ends_apart", "this model has no layers before or after its blocks"};
  constexpr const char* kTied =
      " (tied weights), and a shared weight must be of one unit: leave the ends to the root";
  auto part_of = [&](std::size_t l) { return l < ends.first ? 0 : l >= ends.last ? 2 : 1; };
  std::map<TensorIndex, int> seen;
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    const Layer& layer = w.layers[l];
    const std::vector<TensorIndex> own = w.parameters_of(layer);
    if (own.empty() && (layer.op.kind == "linear" || layer.op.kind == "embedding"))
      return {"/plan/ends_apart",
              "layer \"" + layer.name + "\" takes another one's weight" + kTied};
    for (TensorIndex t : own)
      if (seen.try_emplace(t, part_of(l)).first->second != part_of(l))
        return {"/plan/ends_apart",
                "parameter \"" + w.parameter(t).name + "\" is of other layers, too" + kTied};
  }
  return {};
}

namespace {

// Of one unit.
struct OfUnit {
  TensorIndex trainable = 0;  // of Workload::parameter: the first that requires a gradient
  TensorIndex frozen = 0;     // the first that does not
  TensorIndex other = 0;      // the first whose type is not that of `first`
  TensorIndex first = 0;
  bool trains = false;
  bool freezes = false;
  bool several = false;
};

// By its name; "" = the root. A frozen parameter that no layer reads is of the root here.
std::map<std::string, OfUnit> parameters_of_units(const Workload& w, const FsdpPlan& plan) {
  std::map<std::string, OfUnit> out;
  std::set<TensorIndex> seen;
  const std::vector<std::string> units = wrapped_units(w, plan);
  for (std::size_t l = 0; l < w.layers.size(); ++l)
    for (TensorIndex t : w.parameters_of(w.layers[l])) {
      if (!seen.insert(t).second) continue;
      const auto [at, fresh] = out.try_emplace(units[l]);
      OfUnit& h = at->second;
      if (fresh) h.first = t;
      if (!h.several && w.parameter(t).dtype != w.parameter(h.first).dtype)
        h.several = true, h.other = t;
      bool& has = w.is_frozen(t) ? h.freezes : h.trains;
      if (!has) (w.is_frozen(t) ? h.frozen : h.trainable) = t;
      has = true;
    }
  return out;
}

}  // namespace

// FSDP1: FlatParamHandle._validate_tensors_to_flatten; FSDP2: FSDPParamGroup._init_mp_dtypes.
Problem check_frozen_units(const Plan& plan, const Workload& w) {
  const bool one = plan.system == systems::kFsdpSystem;
  if (one && fsdp_of(plan).use_orig_params && !plan.pytorch.has(pytorch::Change::UseOrigParams))
    return {"/plan/use_orig_params", std::string("is modelled as of PyTorch ") +
                                         first_with(pytorch::Change::UseOrigParams) +
                                         " (--set pytorch=2.7)"};
  if (w.frozen.empty()) return {};
  for (const Tensor& t : w.frozen)
    if (one && t.dtype >= DType::Int64)
      return {"/plan/system", "frozen \"" + t.name + "\" is " + name_of(t.dtype) +
                                  ", and FullyShardedDataParallel stops (\"Cannot flatten integer "
                                  "dtype tensors\"): --plan fsdp2"};
  const bool uniform = one || !plan.pytorch.has(pytorch::Change::FrozenOfAnotherType);
  for (const auto& [name, held] : parameters_of_units(w, fsdp_of(plan))) {
    const std::string unit = name.empty() ? "the root" : "unit \"" + name + "\"";
    auto quoted = [&](TensorIndex t) { return "\"" + w.parameter(t).name + "\""; };
    auto typed = [&](TensorIndex t) {
      return std::string(name_of(w.parameter(t).dtype)) + " " + quoted(t);
    };
    if (one && held.trains && held.freezes && !fsdp_of(plan).use_orig_params)
      return {"/plan/use_orig_params",
              unit + " holds frozen parameters (" + quoted(held.frozen) +
                  ") beside trainable ones (" + quoted(held.trainable) +
                  "), and FullyShardedDataParallel stops (\"Must flatten tensors with uniform "
                  "`requires_grad`\"): --set use_orig_params=true, which makes and reduces "
                  "gradients of both, or --plan fsdp2, which reduces the trainable ones alone"};
    if (uniform && held.several)
      return {"/plan/system", unit + " holds " + typed(held.first) + " and " + typed(held.other) +
                                  ", and " +
                                  (one ? "FullyShardedDataParallel stops (\"Must flatten tensors "
                                         "with uniform dtype\"): --plan fsdp2 --set pytorch=2.8"
                                       : "PyTorch up to 2.7 asserts one dtype in a unit: --set "
                                         "pytorch=2.8, whose frozen parameters may have another")};
  }
  return {};
}

}  // namespace ddpsim
