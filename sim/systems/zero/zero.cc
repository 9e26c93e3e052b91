// What is sharded how, and which modules there are.
#include "sim/systems/zero/zero.h"

#include <algorithm>
#include <array>
#include <map>

#include "sim/systems/zero/plan.h"

namespace ddpsim::systems {

bool overlaps(const ZeroPlan& zero) {
  return zero.overlap_comm.value_or(zero.stage == 3);
}

bool pins(const ZeroPlan& zero) {
  return zero.offload_pin_memory.value_or(zero.release.has(ZeroChange::PinsMemory));
}

std::int64_t weight_lists(const ZeroPlan& zero, std::int64_t shard, std::int64_t ranks) {
  return std::max<std::int64_t>(1, shard * ranks / zero.allgather_bucket_size);
}

ZeroPartition::ZeroPartition(const Workload& w, const ZeroPlan& zero, std::int64_t ranks)
    : begin_(w.tensors.size()), end_(w.tensors.size()) {
  constexpr std::int64_t kAlignment = 2;  // elements: nccl_start_alignment_factor
  const std::size_t n = zero.round_robin_gradients ? ranks : 1;
  std::int64_t at = 0;
  for (std::size_t first = 0; first < n; ++first)
    for (std::size_t t = first; t < w.tensors.size(); t += n) {
      begin_[t] = at;
      at = end_[t] = at + w.tensors[t].elements();
    }
  shard_ = (at + kAlignment * ranks - 1) / (kAlignment * ranks) * kAlignment;
  std::map<std::int64_t, std::int64_t> owned;
  for (TensorIndex t = 0; t < w.tensors.size(); ++t)
    for (const Slice& s : slices(t)) tensors_ = std::max(tensors_, ++owned[s.rank]);
}

std::vector<ZeroPartition::Slice> ZeroPartition::slices(TensorIndex t) const {
  std::vector<Slice> out;
  for (std::int64_t at = begin_[t]; at < end_[t];) {
    std::int64_t rank = at / shard_;
    std::int64_t stop = std::min(end_[t], (rank + 1) * shard_);
    out.push_back({rank, at - begin_[t], stop - at});
    at = stop;
  }
  return out;
}

namespace {

bool is_number(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Kinds of layers without parameters that models have as modules.
bool is_module_kind(const std::string& kind) {
  constexpr std::array<const char*, 9> kKinds{"relu",     "gelu",          "silu",
                                              "sigmoid",  "tanh",          "dropout",
                                              "max_pool", "gelu_composed", "avg_pool"};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}
bool is_embedding(const Layer& l) {
  return l.op.kind == "embedding" || l.op.kind == "position_embedding";
}

class TraceMaker {
 public:
  explicit TraceMaker(const Workload& w) : w_(w) {
    for (const Layer& l : w.layers) convolves_ = convolves_ || l.kernel == KernelClass::Conv;
  }

  ZeroTrace make() {
    enter("");
    for (std::size_t l = 0; l < w_.layers.size(); ++l) {
      const Layer& layer = w_.layers[l];
      std::vector<TensorIndex> tensors = tensors_of(layer);
      if (tensors.empty() && !is_module_kind(layer.op.kind)) {
        compute(l);
        continue;
      }
      bool owns = !tensors.empty();
      if (owns) containers(layer.name);
      if (owns && owner(layer, tensors.front()) != kNone) {
        ZeroModule& m = trace_.modules[owner(layer, tensors.front())];
        m.tensors.insert(m.tensors.end(), tensors.begin(), tensors.end());
        std::sort(m.tensors.begin(), m.tensors.end());
        compute(l);
      } else {
        enter(layer.name);
        ZeroModule& m = trace_.modules.back();
        m.tensors = std::move(tensors);
        m.differentiable = any_ && !is_embedding(layer);
        trace_.forward.push_back({ZeroEvent::What::Compute, l, 1});
        note(layer);
        if (!holds_layers_after(l)) leave();
      }
      note(layer);
    }
    while (!open_.empty()) leave();
    return std::move(trace_);
  }

 private:
  // Those of a described layer that shares an embedding's weights are not listed with it.
  std::vector<TensorIndex> tensors_of(const Layer& layer) const {
    std::vector<TensorIndex> out = w_.parameters_of(layer);
    std::sort(out.begin(), out.end());
    if (!out.empty() || (layer.op.kind != "linear" && layer.op.kind != "embedding")) return out;
    for (const Layer& l : w_.layers) {
      if (l.op.kind != "embedding" || l.tensors.empty()) continue;
      if (layer.op.kind == "embedding" ||
          w_.tensors[l.tensors.front()].elements() == layer.op.inputs * layer.op.outputs)
        return {l.tensors.front()};
    }
    return out;
  }

  // "encoder.pos_embedding" is a parameter of the container "encoder", and no module of its own.
  std::size_t owner(const Layer& layer, TensorIndex t) const {
    const std::string& name = w_.parameter(t).name;
    const std::size_t dot = name.rfind('.');
    const std::string of = dot == std::string::npos ? "" : name.substr(0, dot);
    for (std::size_t m : open_)
      if (trace_.modules[m].name == of && of != layer.name) return m;
    return kNone;
  }
  bool holds_layers_after(std::size_t l) const {
    const std::string inside = w_.layers[l].name + ".";
    return !w_.parameters_of(w_.layers[l]).empty() &&
           std::any_of(w_.layers.begin() + l + 1, w_.layers.end(), [&](const Layer& m) {
             return m.name.starts_with(inside) && !w_.parameters_of(m).empty();
           });
  }

  void note(const Layer& layer) {
    any_ = any_ || !layer.tensors.empty();
    frozen_ = frozen_ || !layer.frozen.empty();
  }

  void enter(const std::string& name) {
    trace_.forward.push_back({ZeroEvent::What::Enter, trace_.modules.size(), 0});
    open_.push_back(trace_.modules.size());
    trace_.modules.push_back({name, {}, any_});
  }
  void leave() {
    trace_.forward.push_back({ZeroEvent::What::Exit, open_.back(), 0});
    trace_.modules[open_.back()].returns = any_ || !frozen_;
    open_.pop_back();
  }

  // What is open holds the layer of this name.
  void containers(const std::string& name) {
    auto holds = [&](const std::string& outer) {
      return outer.empty() || name.starts_with(outer + ".");
    };
    while (!holds(trace_.modules[open_.back()].name)) leave();
    const std::size_t inside = trace_.modules[open_.back()].name.size();
    for (std::size_t dot = name.find('.'); dot != std::string::npos;
         dot = name.find('.', dot + 1)) {
      if (dot <= inside) continue;
      std::size_t end = std::min(name.find('.', dot + 1), name.size());
      if (convolves_ || !is_number(name.substr(dot + 1, end - dot - 1))) enter(name.substr(0, dot));
    }
  }

  // Layers that are no modules run on in one go.
  void compute(std::size_t l) {
    if (!trace_.forward.empty() && trace_.forward.back().what == ZeroEvent::What::Compute)
      ++trace_.forward.back().layers;
    else
      trace_.forward.push_back({ZeroEvent::What::Compute, l, 1});
  }

  static constexpr std::size_t kNone = SIZE_MAX;
  const Workload& w_;
  bool convolves_ = false;
  bool any_ = false;     // parameters that require a gradient, so far
  bool frozen_ = false;  // others
  ZeroTrace trace_;
  std::vector<std::size_t> open_;
};

}  // namespace

ZeroTrace zero_trace(const Workload& w) {
  return TraceMaker(w).make();
}

std::int64_t secondary_ranks(const ZeroPlan& zero, std::int64_t ranks) {
  if (zero.stage < 3 || zero.zero_hpz_partition_size < 2) return 1;
  return std::min(zero.zero_hpz_partition_size, ranks);
}

std::vector<RankGroups> zero_groups(const Plan& plan, int ranks, int per_host) {
  std::vector<RankGroups> out;
  const auto size = static_cast<int>(secondary_ranks(zero_of(plan), ranks));
  if (size > 1) out.push_back({"secondary", size, 1});
  if (exchanges_gradients(zero_of(plan), ranks, per_host)) {
    out.push_back({"local", per_host, 1});
    out.push_back({"across", ranks / per_host, per_host});
  }
  return out;
}

bool exchanges_gradients(const ZeroPlan& zero, std::int64_t ranks, std::int64_t per_host) {
  return zero.stage == 3 && zero.zero_quantized_gradients && ranks / per_host > 1;
}

std::int64_t gradient_groups(const Tensor& t, std::int64_t ranks) {
  if (t.shape.size() < 2 || t.elements() % (2 * ranks) != 0) return 0;
  return std::max({t.shape[0], t.shape[1], ranks});
}

std::uint8_t local_group(const ZeroPlan& zero, std::int64_t ranks) {
  return secondary_ranks(zero, ranks) > 1 ? kSecondaryGroup + 1 : 1;
}

std::uint8_t across_group(const ZeroPlan& zero, std::int64_t ranks) {
  return static_cast<std::uint8_t>(local_group(zero, ranks) + 1);
}

namespace {

constexpr int kMostExchanging = 4096;  // hosts: as many ranks as an all-to-all is priced of

Problem check_exchange(const Plan& plan, const Workload& w, int ranks, int per_host) {
  constexpr const char* kPath = "/plan/zero_quantized_gradients";
  if (!zero_of(plan).zero_quantized_gradients) return {};
  const std::string hosts =
      std::to_string(ranks) + " ranks on hosts of " + std::to_string(per_host);
  if (ranks / per_host < 1) return {};
  if (ranks % per_host != 0)
    return {kPath, "DeepSpeed makes groups of whole hosts, and " + hosts + " are none"};
  if (ranks == per_host) return {};
  if (per_host == 1) return {kPath, "between hosts of one GPU is not modelled"};
  if (ranks / per_host > kMostExchanging)
    return {kPath, "on more than " + std::to_string(kMostExchanging) +
                       " hosts is not modelled: the routes of all pairs are added up"};
  for (const Tensor& t : w.tensors) {
    const std::int64_t groups = gradient_groups(t, ranks);
    if (groups % ranks == 0) continue;
    return {kPath,
            "all_to_all_single stops (\"Tensor's dim 0 does not divide equally across group "
            "size\"): of " +
                t.name + " there are " + std::to_string(groups) +
                " scales, the longer of its first two dimensions, for " + hosts +
                "; pad it to a multiple of " + std::to_string(ranks)};
  }
  return {};
}

}  // namespace

Problem check_zero_groups(const Plan& plan, int ranks, int) {
  if (zero_of(plan).offload_param && ranks == 1)
    return {"/plan/offload_param", "of one rank, which gathers nothing, is not modelled"};
  const std::int64_t size = secondary_ranks(zero_of(plan), ranks);
  if (ranks % size == 0) return {};
  return {"/plan/zero_hpz_partition_size", "groups of " + std::to_string(size) +
                                               " ranks do not part " + std::to_string(ranks) +
                                               " ranks"};
}

Problem check_quantised(const Plan& plan, const Workload& w, int ranks, int per_host) {
  if (auto p = check_exchange(plan, w, ranks, per_host)) return p;
  if (!zero_of(plan).zero_quantized_weights) return {};
  for (TensorIndex i = 0; i < w.parameters(); ++i) {
    const Tensor& t = w.parameter(i);
    const std::int64_t shard = (t.elements() + ranks - 1) / ranks;
    if (shard % 8 != 0)
      return {"/plan/zero_quantized_weights",
              "DeepSpeed stops where what it quantises is no multiple of 8 elements; ddpsim asks "
              "that of each parameter's shard, and of " +
                  t.name + " that is " + std::to_string(shard) + " of " +
                  std::to_string(t.elements()) + " on " + std::to_string(ranks) + " ranks"};
  }
  return {};
}

std::int64_t quantisation_groups(std::int64_t elements) {
  constexpr std::int64_t kTarget = 8000;
  const std::int64_t eighths = elements / 8;
  const std::int64_t least = (elements + kTarget - 1) / kTarget;
  std::int64_t groups = eighths;  // the least divisor of `eighths` that is not below `least`
  for (std::int64_t d = 1; d * d <= eighths; ++d) {
    if (eighths % d != 0) continue;
    for (std::int64_t divisor : {d, eighths / d})
      if (divisor >= least) groups = std::min(groups, divisor);
  }
  return groups;
}

Held zero_resident(const Workload& w, std::int64_t weights, std::int64_t shard) {
  Held held = resident(w, 0, 0);
  held[Holds::Parameters] = weights;
  held[Holds::MasterParameters] = 4 * shard;
  held[Holds::OptimizerState] = 4 * optimizer_copies(w.optimizer) * shard;
  return held;
}

}  // namespace ddpsim::systems
