// Which parameters FSDP gathers together: an auto_wrap_policy by the names of layers; and when.
#include <algorithm>
#include <map>
#include <set>

#include "sim/systems/base/streams.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp/record.h"
#include "sim/systems/fsdp/wrapping.h"

namespace ddpsim::systems {
namespace {

// "transformer.h.0" -> "h.0", as long as names differ.
void shorten(std::vector<Unit>& units) {
  std::map<std::string, int> seen;
  auto brief = [](const std::string& name) {
    std::size_t number = name.rfind('.');
    std::size_t list = number == std::string::npos || number == 0 ? std::string::npos
                                                                  : name.rfind('.', number - 1);
    return list == std::string::npos ? name : name.substr(list + 1);
  };
  for (const Unit& u : units) ++seen[brief(u.name)];
  for (const auto& [name, times] : seen)
    if (times > 1) return;
  for (Unit& u : units) u.name = brief(u.name);
}

UnitIndex add_unit(std::vector<Unit>& units, std::map<std::string, UnitIndex>& known,
                   const std::string& name, UnitIndex inside) {
  const auto [at, fresh] = known.emplace(name, units.size());
  if (fresh) units.push_back({name, {}, {}, 0, inside, {}, 0});
  return at->second;
}

}  // namespace

std::vector<Unit> fsdp_units(const Workload& w, const Plan& plan) {
  std::vector<Unit> units{{"root", {}, {}, 0, 0, {}, 0}};
  std::map<std::string, UnitIndex> known;
  std::vector<bool> taken(w.tensors.size());
  std::vector<bool> taken_frozen(w.frozen.size());
  auto take_frozen = [&](UnitIndex u, TensorIndex t) {
    if (taken_frozen[t]) return;
    taken_frozen[t] = true;
    units[u].frozen.push_back(t);
    units[u].frozen_elements += w.frozen[t].elements();
  };
  auto add = [&](UnitIndex u, std::size_t l) {
    units[u].layers.push_back(l);
    for (TensorIndex t : w.layers[l].frozen) take_frozen(u, t);
    for (TensorIndex t : w.layers[l].tensors)
      if (!taken[t]) {
        taken[t] = true;
        units[u].tensors.push_back(t);
        units[u].elements += w.tensors[t].elements();
      }
  };
  const std::vector<std::string> wrapped = wrapped_units(w, fsdp_of(plan));
  const std::set<std::string> names(wrapped.begin(), wrapped.end());
  const bool nested = fsdp_of(plan).auto_wrap_policy == "size_based";
  auto unit_of = [&](const std::string& name) {
    UnitIndex inside = 0;
    for (std::size_t end = name.find('.'); end != std::string::npos; end = name.find('.', end + 1))
      if (nested && names.count(name.substr(0, end)))
        inside = add_unit(units, known, name.substr(0, end), inside);
    return add_unit(units, known, name, inside);
  };
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    if (wrapped[l].empty()) {
      add(0, l);
      continue;
    }
    add(unit_of(wrapped[l]), l);
  }
  // Those that no layer reads are of the unit that their name is in.
  for (TensorIndex t = 0; t < w.frozen.size(); ++t) {
    UnitIndex of = 0;
    for (UnitIndex u = 1; u < units.size(); ++u)
      if (w.frozen[t].name.starts_with(units[u].name + ".") &&
          units[u].name.size() > (of > 0 ? units[of].name.size() : 0))
        of = u;
    take_frozen(of, t);
  }
  if (!nested) shorten(units);
  // As they are registered, in each unit.
  for (Unit& u : units) {
    std::sort(u.tensors.begin(), u.tensors.end());
    std::sort(u.frozen.begin(), u.frozen.end());
  }
  return units;
}

std::vector<TensorIndex> Unit::parameters(const Workload& w) const {
  std::vector<TensorIndex> out = tensors;
  for (TensorIndex t : frozen) out.push_back(w.tensor_count() + t);
  return out;
}

bool in_backward(const Workload& w, const Part& part, const std::vector<bool>& differentiated) {
  if (w.frozen.empty()) return true;
  for (std::size_t l = part.from; l < part.to; ++l)
    if (differentiated[l]) return true;
  return false;
}

UnitsInBackward units_in_backward(const std::vector<Unit>& units, const UnitForward& forward,
                                  const std::vector<bool>& differentiated) {
  UnitsInBackward out{std::vector<bool>(units.size()), std::vector<bool>(units.size())};
  out.returned[0] = true;  // the loss is made of it
  bool any = false;        // of the layers so far
  for (const UnitEvent& e : forward.events) {
    if (e.what == UnitEvent::What::Enter) out.given[e.number] = any;
    if (e.what != UnitEvent::What::Compute) continue;
    const Part& part = forward.parts[e.number];
    for (std::size_t l = part.from; l < part.to; ++l) {
      if (!differentiated[l]) continue;
      any = true;
      for (UnitIndex u = part.unit; u != 0; u = units[u].inside) out.returned[u] = true;
    }
  }
  return out;
}

UnitForward unit_forward(const TimedWorkload& timed, const std::vector<Unit>& units,
                         Program& program) {
  const Workload& w = timed.workload;
  UnitForward out;
  for (const Unit& u : units) program.labels.push_back(u.name);
  std::vector<UnitIndex> unit_of(w.layers.size());
  for (UnitIndex u = 0; u < units.size(); ++u)
    for (std::size_t l : units[u].layers) unit_of[l] = u;
  std::vector<int> seen(units.size());
  std::vector<std::size_t> of_part(w.layers.size());
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    const UnitIndex u = unit_of[l];
    if (out.parts.empty() || out.parts.back().unit != u) {
      Part part{u, u, l, l, {}, {}};
      if (seen[u]++ > 0) {
        part.label = program.next_label();
        program.labels.push_back(units[u].name + "." + std::to_string(seen[u]));
      }
      out.parts.push_back(part);
    }
    const LayerDurations& d = timed.times.layers[l];
    out.parts.back().forward.add(d.forward, d.host_forward);
    out.parts.back().to = l + 1;
    of_part[l] = out.parts.size() - 1;
  }
  for (std::size_t l = w.layers.size(); l-- > 0;) {
    const LayerDurations& d = timed.times.layers[l];
    out.parts[of_part[l]].backward.add(d.backward, d.host_backward);
  }
  using What = UnitEvent::What;
  std::vector<std::size_t> last(units.size(), out.parts.size());
  for (std::size_t k = 0; k < out.parts.size(); ++k)
    for (UnitIndex u = out.parts[k].unit; u != 0; u = units[u].inside) last[u] = k;
  std::vector<bool> entered(units.size());
  auto enter = [&](UnitIndex u) {
    if (entered[u]) return;
    entered[u] = true;
    out.events.push_back({What::Enter, u});
    if (!units[u].empty()) out.order.push_back(u);
  };
  enter(0);
  for (UnitIndex k = 0; k < out.parts.size(); ++k) {
    const UnitIndex u = out.parts[k].unit;
    std::vector<UnitIndex> around;
    for (UnitIndex e = u; e != 0; e = units[e].inside) around.push_back(e);
    for (std::size_t i = around.size(); i-- > 0;) enter(around[i]);
    out.events.push_back({What::Compute, k});
    for (UnitIndex e = u; e != 0 && last[e] == k; e = units[e].inside)
      out.events.push_back({What::Exit, e});
  }
  out.events.push_back({What::Exit, 0});
  return out;
}

std::vector<TensorIndex> part_tensors(const Workload& w, const ModelMemory& memory,
                                      const Part& part) {
  std::vector<TensorIndex> out;
  for (std::size_t l = part.from; l < part.to; ++l)
    for (TensorIndex t : w.layers[l].tensors)
      if (memory.layer_of(t) == l) out.push_back(t);
  return out;
}

std::int64_t part_elements(const Workload& w, const ModelMemory& memory, const Part& part) {
  std::int64_t sum = 0;
  for (TensorIndex t : part_tensors(w, memory, part)) sum += w.tensors[t].elements();
  return sum;
}

Sharded sharded_of(const Plan& plan, int ranks, int per_host) {
  const FsdpPlan& f = fsdp_of(plan);
  const bool one = plan.system == kFsdpSystem;
  if (one ? !is_hybrid(f.sharding_strategy) : f.shard_degree == 0) return {ranks, 1};
  int shard = f.shard_degree > 0 ? static_cast<int>(f.shard_degree) : per_host;
  return {shard, std::max(1, ranks / shard)};
}

namespace {

// Of a plan that offloads.
Problem check_cpu_offload(const Plan& plan, int ranks) {
  const FsdpPlan& f = fsdp_of(plan);
  const bool one = plan.system == kFsdpSystem;
  if (ranks == 1)
    return {"/plan/cpu_offload", "of one rank, which gathers nothing, is not modelled"};
  if (!one && !plan.set_to_none.value_or(true))
    return {"/plan/set_to_none", "false is not modelled where gradients are the host's"};
  if (one && f.sharding_strategy == Sharding::NoShard)
    return {"/plan/cpu_offload",
            "of no_shard is not modelled: PyTorch's own source says that its gradients came out "
            "wrong (_offload_grad); offload what shards"};
  if (one && plan.accumulation_steps > 1 && !uses_no_sync(plan))
    return {"/plan/no_sync",
            "PyTorch \"does not support gradient accumulation outside no_sync() when using CPU "
            "offloading\": the optimizer would see the last micro-step's gradients alone (--set "
            "no_sync=true)"};
  return {};
}

}  // namespace

Problem check_fsdp(const Plan& plan, int ranks, int per_host) {
  const FsdpPlan& f = fsdp_of(plan);
  const std::string path = "/plan/shard_degree";
  if (f.cpu_offload)
    if (Problem problem = check_cpu_offload(plan, ranks)) return problem;
  if (f.shard_degree < 0 || f.shard_degree > ranks)
    return {path, "ranks that shard together: 1 to the job's " + std::to_string(ranks) +
                      ", 0 = as the strategy has it"};
  const bool one = plan.system == kFsdpSystem;
  if (one && !is_hybrid(f.sharding_strategy)) {
    if (f.shard_degree == 0) return {};
    return {path, "is of sharding_strategy hybrid_shard and hybrid_shard_zero2"};
  }
  if (one && !plan.pytorch.has(pytorch::Change::HybridStrategies))
    return {"/plan/sharding_strategy",
            std::string("PyTorch ") + name_of(plan.pytorch) +
                " is not modelled with hybrid strategies (those of 2.1 and later are)"};
  const Sharded s = sharded_of(plan, ranks, per_host);
  if (!one && s.ranks < ranks && !plan.pytorch.has(pytorch::Change::HybridHoldsItsInputs))
    return {path, std::string("fully_shard in groups of ranks (HSDP) is modelled as of ") +
                      first_with(pytorch::Change::HybridHoldsItsInputs) + " and later"};
  if (ranks % s.ranks != 0)
    return {path, "groups of " + std::to_string(s.ranks) +
                      " ranks that shard together do not "
                      "part " +
                      std::to_string(ranks) + " ranks"};
  const std::int64_t smaller = one ? 1 : f.reshard_after_forward.ranks.value_or(1);
  if (smaller > 1 && (smaller >= s.ranks || s.ranks % smaller != 0))
    return {"/plan/reshard_after_forward",
            "a number of ranks that is less than, and a divisor of, the " +
                std::to_string(s.ranks) + " that shard together"};
  if (one && s.ranks == 1 && ranks > 1)
    return {path,
            "groups of one rank shard nothing: FSDP takes no_shard then, and does not "
            "reduce gradients at all (a host has one device; give shard_degree)"};
  return {};
}

std::vector<RankGroups> fsdp_groups(const Plan& plan, int ranks, int per_host) {
  const Sharded s = sharded_of(plan, ranks, per_host);
  std::vector<RankGroups> out;
  if (s.replicas > 1) out = {{"shard", s.ranks, 1}, {"replicas", s.replicas, s.ranks}};
  const std::int64_t smaller = fsdp_of(plan).reshard_after_forward.ranks.value_or(1);
  if (plan.system != kFsdpSystem && smaller > 1 && smaller < s.ranks)
    out.push_back({"post_forward", static_cast<int>(smaller), 1});
  return out;
}

UnitTypes unit_types(const Workload& w, const FsdpPlan& plan) {
  const DType weights = w.tensors.front().dtype;
  const DType compute = plan.param_dtype.value_or(weights);
  return {weights, compute, plan.reduce_dtype.value_or(compute)};
}

std::string mixed_units_sentence(const Workload& w, const Plan& plan) {
  if (plan.system != kFsdpSystem || w.frozen.empty()) return {};
  std::int64_t elements = 0;
  for (const Unit& u : fsdp_units(w, plan)) elements += u.mixed() ? u.frozen_elements : 0;
  if (elements == 0) return {};
  return "units mix frozen and trainable parameters (use_orig_params), so gradients of " +
         std::to_string(elements) +
         " frozen elements are made and reduced, too; what that saves for backward is not counted "
         "(--plan fsdp2 reduces the trainable ones alone)";
}

std::int64_t gradient_predivisor(std::int64_t ranks) {
  std::int64_t out = 1;
  while (ranks % out == 0 && ranks / out > out) out *= 2;
  return out;
}

UnitTypes unit_types(const Workload& w, const Unit& unit, const FsdpPlan& plan) {
  if (!unit.tensors.empty() || unit.frozen.empty()) return unit_types(w, plan);
  const DType weights = w.frozen[unit.frozen.front()].dtype;
  const DType compute = plan.param_dtype.value_or(weights);
  return {weights, compute, plan.reduce_dtype.value_or(compute)};
}

std::size_t add_stream(Program& program, const char* name) {
  program.streams.push_back(name);
  return program.streams.size();
}

Held resident_shards(const Workload& w, std::int64_t elements, DType type, bool gradients) {
  const std::int64_t bytes = elements * element_size(type);
  Held out = resident(w, elements, bytes);
  if (gradients) out[Holds::Gradients] = bytes;
  return out;
}

void update_shard(StepBuilder& b, DeviceStreams& streams, const Workload& w, std::int64_t elements,
                  std::int64_t parameters, DType dtype) {
  constexpr DeviceStreams::Stream kCompute = DeviceStreams::kCompute;
  const LoopWork loop = loop_work(w, elements, parameters);
  const std::int64_t bytes = elements * element_size(dtype);
  if (loop.unscale > 0)
    streams.kernel(kCompute, kUnscale, kNoSubject, bytes,
                   {.traffic = loop.unscale, .kernels = loop.unscale_kernels});
  if (loop.clip > 0)
    streams.kernel(kCompute, kClip, kNoSubject, bytes,
                   {.traffic = loop.clip, .kernels = loop.clip_kernels});
  if (loop.waits) b.wait(kAwaitFinite, kNoSubject, streams.last(kCompute));
  const std::int64_t traffic = optimizer_traffic(w, elements);
  const std::int64_t kernels = optimizer_kernels(w.optimizer, parameters);
  streams.kernel(kCompute, kOptimizer, kNoSubject, bytes,
                 {.traffic = std::max<std::int64_t>(1, traffic), .kernels = kernels});
  const std::int64_t beside = optimizer_temporaries(w.optimizer, elements) * element_size(dtype);
  b.allocate(Holds::Temporaries, beside);
  b.release(Holds::Temporaries, beside);
  b.release_gradients();
  if (w.loop.loss_item) b.wait(kReadLoss, kNoSubject, streams.last(kCompute));
}

void update_on_host(StepBuilder& b, const Workload& w, std::int64_t elements,
                    std::int64_t parameters, const HostMemory& host) {
  const LoopWork loop = loop_work(w, elements, parameters);
  const std::int64_t traffic = optimizer_traffic(w, elements);
  for (const auto& [word, bytes] : {std::pair{&kHostUnscale, loop.unscale},
                                    {&kHostClip, loop.clip},
                                    {&kHostOptimizer, traffic}})
    if (bytes > 0) b.host(*word, kNoSubject, bytes, host.touch(bytes));
}

}  // namespace ddpsim::systems
