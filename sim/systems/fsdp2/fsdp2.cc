// PyTorch fully_shard (FSDP2), one step on a GPU, hook by hook:
//
//   before a unit's forward   its shards are copied in, gathered, copied out on the compute stream;
//                             [units named by set_modules_to_forward_prefetch]
//   after it                  weights are freed, or kept in the shards of a smaller group
//   before its backward       as before forward, then the unit before is gathered
//   after its backward        weights freed; gradients, each padded, into one buffer on the compute
//                             stream, which waits for the reduce-scatter before; reduced on a
//                             stream of its own [and all-reduced among replicas on another]
//   at the end                units that no gradient left (the root), then computation waits for
//                             all reductions; the optimizer updates shards
//
// Nothing makes the host wait: buffers are reused after events. Source: torch/distributed/fsdp/
// _fully_shard/{_fsdp_state,_fsdp_param_group,_fsdp_collectives}.py (2.7; later versions: what
// differs stands where it matters). docs/model.md section 3.
#include "sim/systems/fsdp2/fsdp2.h"

#include <algorithm>
#include <utility>

#include "sim/systems/fsdp/fsdp_words.h"
#include "sim/systems/fsdp2/lowered.h"

namespace ddpsim::systems {

using namespace fsdp;  // its words

namespace fsdp2 {

Job::Job(const TimedWorkload& timed, const Plan& of)
    : w(timed.workload),
      plan(of),
      fsdp(fsdp_of(of)),
      no_sync(uses_no_sync(of)),
      types(unit_types(timed.workload, fsdp_of(of))),
      units(fsdp_units(w, of)),
      groups(sharded_of(of, timed.ranks, timed.per_host)),
      sets_to_none(of.set_to_none.value_or(of.pytorch.has(pytorch::Change::ZeroGradSetsToNone))),
      memory(w, fsdp_of(of).param_dtype && element_size(*fsdp_of(of).param_dtype) == 2,
             timed.winograd),
      host(timed.host_memory),
      gathers(groups.ranks > 1 || !of.pytorch.has(pytorch::Change::OneRankGathersNothing)),
      scatters(groups.ranks > 1 || !of.pytorch.has(pytorch::Change::OneRankScattersNothing)),
      program(empty_program(timed, of)) {
  // NCCL averages, but halves of five exponent bits are divided by its roots before and after.
  if (types.reduce == DType::Float16) {
    predivisor = gradient_predivisor(timed.ranks);
    postdivides = timed.ranks > predivisor;
  }
  program.streams = {"all_gather_copy_in", "all_gather", "reduce_scatter"};
  program.groups = fsdp_groups(of, timed.ranks, timed.per_host);
  if (hybrid()) {
    all_reduce = add_stream(program, "all_reduce");
    replicas = DeviceStreams::lane_of(add_stream(program, "comm_replicas"));
  }
  if (fsdp.separate_reduce_scatter_group)
    scatter = DeviceStreams::lane_of(add_stream(program, "comm_reduce_scatter"));
  if (smaller() > 1 && smaller() < groups.ranks) {
    post_forward = static_cast<std::uint8_t>(program.groups.size());
    post_forward_lane = DeviceStreams::lane_of(add_stream(program, "comm_post_forward"));
  }
  name_frozen(program, w);
  forward = unit_forward(timed, units, program);
  differentiated = ddpsim::differentiated(w);
  in_backward = units_in_backward(units, forward, differentiated);
  std::int64_t kept_frozen = 0;
  for (UnitIndex u = 0; u < units.size(); ++u) {
    std::int64_t sum = 0;
    for (TensorIndex t : units[u].tensors) sum += padded_of(t);
    padded.push_back(sum);
    elements += shard(u);
    Weights all;
    bool first = true;
    for (TensorIndex t : units[u].parameters(w)) {
      const std::int64_t as_kept = padded_of(t) * element_size(w.parameter(t).dtype);
      const std::int64_t as_computed = padded_of(t) * element_size(computed_of(t));
      all.kept += as_kept;
      all.computed += as_computed;
      if (casts(t)) all.cast += as_computed, all.cast_from += as_kept;
      if (w.is_frozen(t)) kept_frozen += as_kept / groups.ranks;
      all.type = first || all.type == computed_of(t) ? computed_of(t) : DType::UInt8;
      first = false;
    }
    weights.push_back(all);
    if (u != kRoot && !empty(u)) wrapped.push_back(u);
  }
  program.resident = resident_shards(w, host ? 0 : elements, types.weights, !sets_to_none);
  if (!host) program.resident[Holds::Parameters] += kept_frozen;
  program.activations_known = memory.known();
}

bool Job::frees(UnitIndex u) const {
  if (u != kRoot) return smaller() != 0;
  return plan.pytorch.has(pytorch::Change::RootMayBeFreed) && fsdp.reshard_after_forward.ranks &&
         smaller() != 0;
}

std::int64_t Job::padded_of(TensorIndex t) const {
  const Tensor& tensor = w.parameter(t);
  const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
  const std::int64_t of_row = rows > 0 ? tensor.elements() / rows : 0;
  return (rows + groups.ranks - 1) / groups.ranks * groups.ranks * of_row;
}

DType Job::computed_of(TensorIndex t) const {
  return w.is_frozen(t) ? fsdp.param_dtype.value_or(w.parameter(t).dtype) : types.compute;
}

std::int32_t Job::cast_parameters(UnitIndex u) const {
  std::int32_t n = 0;
  for (TensorIndex t : units[u].parameters(w)) n += casts(t);
  return n;
}

std::int64_t Job::whole(UnitIndex u) const {
  std::int64_t bytes = units[u].elements * kept();
  for (TensorIndex t : units[u].frozen) bytes += w.frozen[t].bytes().count;
  return bytes;
}

void Now::move(Job::Stream s, const OpWord& word, UnitIndex u, std::int64_t bytes,
               std::int64_t copies) {
  streams.kernel(s, word, u, bytes,
                 {.duration = job_.host->copy(bytes, copies), .kernels = copies});
}

}  // namespace fsdp2

namespace {

constexpr OpWord kFsdp2Words[] = {
    kStart,           kCastShard,     kCastShardAgain, kShardIn,       kShardInAgain,
    kGather,          kGatherAgain,   kUnitOut,        kUnitOutAgain,  kUnitForward,
    kUnitBackward,    kReshard,       kAccumulateFlat, kCastGradient,  kChunkCat,
    kPredivide,       kScatter,       kReduce,         kPostdivide,    kCastBack,
    kAccumulateShard, kZeroGradients, kCopyGradient,   kShardToDevice, kShardToDeviceAgain,
    kGradientToHost,  kAwaitToHost,   kAddOnHost};

class Fsdp2Lowering {
 public:
  Fsdp2Lowering(const TimedWorkload& timed, const Plan& plan)
      : job_(timed, plan), reduced_(job_.units.size()) {}

  // What a step leaves to the next (gradients) is settled after the second.
  Program run(Steps steps) {
    StepProgram first = step(StepKind::First);
    job_.program.steady = step(StepKind::Steady);
    if (steps == Steps::All) job_.program.warmup.push_back(std::move(first));
    return std::move(job_.program);
  }

 private:
  using Job = fsdp2::Job;

  void compute(const OpWord& word, const Part& part, const Stretch& s) {
    now_.streams.compute(word, part.label, s);
    now_.b->activations(now_.backward ? job_.memory.backward(part.from, part.to)
                                      : job_.memory.forward(part.from, part.to));
  }

  // ---- forward

  void before_forward(UnitIndex u) {
    if (u == Job::kRoot) {
      now_.streams.wait(Job::kCopy, Job::kCompute);
      now_.streams.wait(Job::kAllGather, Job::kCompute);
    }
    weights_.unshard(u);
    weights_.wait_for_unshard(u);
    weights_.prefetch(u, job_.fsdp.forward_prefetch_units);
  }

  void after_forward(UnitIndex u) {
    if (!job_.empty(u)) {
      weights_.end_unit_forward(u);
      ended_.push_back(u);
    }
    if (u == Job::kRoot) weights_.end_forward();
  }

  void forward() {
    now_.backward = false;
    ended_.clear();
    for (const UnitEvent& e : job_.forward.events) {
      if (e.what == UnitEvent::What::Enter)
        before_forward(e.number);
      else if (e.what == UnitEvent::What::Exit)
        after_forward(e.number);
      else
        compute(kUnitForward, job_.forward.parts[e.number], job_.forward.parts[e.number].forward);
    }
  }

  // ---- backward

  void before_backward(UnitIndex u) {
    if (job_.empty(u) || !job_.in_backward.returned[u]) return;
    weights_.unshard(u);
    weights_.wait_for_unshard(u);
    const std::int64_t depth = job_.fsdp.backward_prefetch_units;
    if (depth > 1 && weights_.prefetch(u, depth)) return;
    const auto at = std::find(ended_.begin(), ended_.end(), u);
    if (at != ended_.end() && at != ended_.begin()) weights_.unshard(*(at - 1));
  }

  void after_backward(UnitIndex u) {
    if (job_.empty(u)) return;
    const bool syncs = now_.last_micro || !job_.no_sync;
    reduced_[u] = true;
    if (job_.trains(u)) gradients_.accumulate(u);
    weights_.free(u);
    if (!job_.trains(u)) return syncs ? gradients_.pass() : void();
    syncs ? gradients_.reduce(u) : gradients_.stay(u);
  }

  void compute_backward(const Part& part) {
    if (in_backward(job_.w, part, job_.differentiated)) {
      compute(kUnitBackward, part, part.backward);
      gradients_.make(part);
    } else {
      now_.b->activations(job_.memory.backward(part.from, part.to));
    }
  }

  void backward() {
    now_.backward = true;
    gradients_.begin_backward();
    reduced_.assign(reduced_.size(), false);
    const UnitForward& f = job_.forward;
    std::vector<UnitIndex> ending;  // hooks of one tensor run as they were registered
    for (std::size_t k = f.events.size(); k-- > 0;) {
      const UnitEvent& e = f.events[k];
      if (e.what == UnitEvent::What::Exit) {
        ending.push_back(e.number);
      } else if (e.what == UnitEvent::What::Compute) {
        for (; !ending.empty(); ending.pop_back()) before_backward(ending.back());
        compute_backward(f.parts[e.number]);
      } else if (job_.in_backward.given[e.number]) {
        after_backward(e.number);  // of the others the end is the end of backward
      }
    }
    for (UnitIndex u = 0; u < job_.units.size(); ++u) {
      if (!reduced_[u]) after_backward(u);
      gradients_.wait_for(u);
      weights_.drop(u);
    }
    gradients_.end_backward();
  }

  // ---- the step

  StepProgram step(StepKind kind) {
    StepBuilder b(job_.program, kind, job_.w, job_.memory);
    now_.b = &b;
    for (UnitIndex u = 0; u < job_.units.size(); ++u)
      b.step.buckets.push_back({job_.units[u].parameters(job_.w),
                                {job_.whole(u)},
                                {job_.padded[u] * job_.reduced()},
                                job_.types.weights});
    now_.streams.begin(b);
    gradients_.begin_step();
    // What waits for computation waits for the optimizer of the step before.
    if (now_.streams.last(Job::kCompute) == kNoOp)
      now_.streams.set_last(Job::kCompute, b.event(kStart, Lane::Compute));
    for (int m = 0; m < job_.plan.accumulation_steps; ++m) {
      if (job_.plan.accumulation_steps > 1) b.set_micro(m);
      now_.last_micro = m + 1 == job_.plan.accumulation_steps;
      forward();
      backward();
    }
    b.set_micro(-1);
    std::int64_t parameters = 0;
    for (const Unit& u : job_.units) parameters += std::ssize(u.tensors);
    if (job_.host)
      update_on_host(b, job_.w, job_.elements, parameters, *job_.host);
    else
      update_shard(b, now_.streams, job_.w, job_.elements, parameters, job_.types.weights);
    return std::move(b.step);
  }

  Job job_;
  fsdp2::Now now_{job_};
  fsdp2::Weights weights_{job_, now_};
  fsdp2::Gradients gradients_{job_, now_};
  std::vector<UnitIndex> ended_;  // units, as forwards ended
  std::vector<bool> reduced_;     // units, in this backward
};

}  // namespace

std::span<const OpWord> fsdp2_words() {
  return kFsdp2Words;
}

Program lower_fsdp2(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return Fsdp2Lowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
