// FSDP2: post_backward and foreach_reduce of a parameter group. What local names in Python keep
// until a function returns is kept here, too. Source: torch/distributed/fsdp/_fully_shard/
// {_fsdp_param_group,_fsdp_collectives}.py (2.7; later versions: what differs stands where it
// matters).
#include <utility>

#include "sim/systems/fsdp/fsdp_words.h"
#include "sim/systems/fsdp2/fsdp2.h"

namespace ddpsim::systems::fsdp2 {

using namespace fsdp;  // its words

void Gradients::begin_step() {
  for (UnitIndex u = 0; u < state_.size(); ++u) {
    if (!state_[u].gradient) continue;
    if (job_.sets_to_none)
      state_[u].gradient = false;
    else
      now_.copy(Job::kCompute, kZeroGradients, u, job_.shard(u) * job_.kept());
  }
}

void Gradients::begin_backward() {
  for (State& s : state_) s.reduction = kNoOp;
}

void Gradients::make(const Part& part) {
  const std::vector<TensorIndex> made = part_tensors(job_.w, job_.memory, part);
  std::int64_t elements = 0;
  for (TensorIndex t : made) elements += job_.w.tensors[t].elements();
  const std::int64_t bytes = elements * job_.computed();
  if (!state_[part.unit].kept || casts())
    now_.b->allocate(Holds::Gradients, bytes);
  else if (!made.empty())  // autograd adds to what is there
    now_.streams.copy(Job::kCompute, kAccumulateFlat, part.label, 3 * bytes, made.size());
}

void Gradients::accumulate(UnitIndex u) {
  if (!state_[u].kept || !casts()) return;
  const std::int64_t elements = job_.units[u].elements;
  now_.copy_each(Job::kCompute, kAccumulateFlat, u,
                 elements * (job_.computed() + 2 * job_.reduced()));
  now_.b->release(Holds::Gradients, elements * job_.computed());
}

void Gradients::stay(UnitIndex u) {
  State& s = state_[u];
  if (!s.kept && casts()) {
    now_.copy_each(Job::kCompute, kCastGradient, u,
                   job_.units[u].elements * (job_.computed() + job_.reduced()));
    for (TensorIndex t : job_.units[u].tensors) {
      const std::int64_t elements = job_.w.tensors[t].elements();
      now_.b->allocate(Holds::Gradients, elements * job_.reduced());
      now_.b->release(Holds::Gradients, elements * job_.computed());
    }
  }
  s.kept = true;
}

std::int64_t Gradients::recycle() {
  std::int64_t bytes = 0;
  while (std::ssize(scattered_) >= job_.fsdp.reduce_scatter_max_input_buffers) {
    now_.streams.wait_for(Job::kCompute, scattered_.front().op);
    bytes += scattered_.front().bytes;
    scattered_.pop_front();
  }
  return bytes;
}

void Gradients::reduce(UnitIndex u) {
  const std::int64_t recycled = recycle();
  // 2.12's loop keeps its variable until the function returns.
  const bool late = job_.plan.pytorch.has(pytorch::Change::WaitsForInputsInEachUnit) &&
                    !job_.plan.pytorch.has(pytorch::Change::SeveralInputs);
  if (!late) now_.b->release(Holds::Buckets, recycled);
  const std::int64_t size = std::exchange(state_[u].kept, false) ? job_.reduced() : job_.computed();
  const std::int64_t bytes = job_.units[u].elements * size;
  const std::int64_t input = job_.padded[u] * job_.reduced();
  now_.copy(Job::kCompute, kChunkCat, u, bytes + input);
  now_.b->allocate(Holds::Buckets, input);
  // A loop's variable keeps the last gradient until the function returns.
  const TensorIndex end = job_.units[u].tensors.back();
  const std::int64_t last = job_.scatters ? job_.w.tensors[end].elements() * size : 0;
  now_.b->release(Holds::Gradients, bytes - last);
  keep(u, communicate(u), last);
  if (late) now_.b->release(Holds::Buckets, recycled);
}

void Gradients::pass() {
  if (!job_.plan.pytorch.has(pytorch::Change::WaitsForInputsInEachUnit)) return;
  now_.b->release(Holds::Buckets, recycle());
}

Job::Stream Gradients::communicate(UnitIndex u) {
  const std::int64_t input = job_.padded[u] * job_.reduced();
  const std::int64_t output = job_.shard(u) * job_.reduced();
  now_.streams.wait(Job::kReduceScatter, Job::kCompute);
  std::uint32_t begins = kNoOp;
  if (job_.predivisor > 1) begins = now_.copy(Job::kReduceScatter, kPredivide, u, 2 * input);
  const std::uint32_t scattered =
      job_.scatters ? now_.streams.collective(Job::kReduceScatter, kScatter, u, input,
                                              job_.types.reduce, job_.group(), job_.scatter)
                    : now_.copy(Job::kReduceScatter, kCopyGradient, u, input + output);
  scattered_.push_back({scattered, input});
  const bool is_gradient =
      job_.types.reduce == job_.types.weights && !state_[u].gradient && !job_.host;
  now_.b->allocate(is_gradient ? Holds::Gradients : Holds::Buckets, output, begins);
  Job::Stream end = Job::kReduceScatter;
  if (job_.hybrid()) {
    end = job_.all_reduce;
    now_.streams.wait(end, Job::kReduceScatter);
    now_.streams.collective(end, kReduce, u, output, job_.types.reduce, kReplicaGroup,
                            job_.replicas);
  }
  if (job_.postdivides) now_.copy(end, kPostdivide, u, 2 * output);
  return end;
}

// What was reduced becomes the shard's gradient, or is added to it.
void Gradients::keep(UnitIndex u, Job::Stream after, std::int64_t last) {
  State& s = state_[u];
  StepBuilder& b = *now_.b;
  const std::int64_t output = job_.shard(u) * job_.reduced();
  const std::int64_t gradient = job_.shard(u) * job_.kept();
  const bool casts = job_.types.reduce != job_.types.weights;
  if (casts) {
    now_.copy(after, kCastBack, u, output + gradient);
    b.allocate(s.gradient || job_.host ? Holds::Buckets : Holds::Gradients, gradient);
  }
  if (job_.host) return offload(u, after, last, casts ? output + gradient : output);
  const bool ends = casts || s.gradient;  // what was reduced is not what is kept
  if (casts && !job_.hybrid()) b.release(Holds::Buckets, output);
  if (s.gradient) now_.copy_each(after, kAccumulateShard, u, 3 * gradient);
  b.release(Holds::Gradients, last);
  if (s.gradient && (casts || !job_.hybrid())) b.release(Holds::Buckets, gradient);
  if (ends && job_.hybrid()) s.bytes = output;
  s.gradient = true;
  s.reduction = now_.streams.last(after);
}

// CPUOffloadPolicy, pinned: the host waits at the end of backward; where it adds to what it has,
// at once. `held`: bytes of what was reduced.
void Gradients::offload(UnitIndex u, Job::Stream after, std::int64_t last, std::int64_t held) {
  State& s = state_[u];
  const std::int64_t gradient = job_.shard(u) * job_.kept();
  now_.move(after, kGradientToHost, u, gradient, job_.units[u].tensors.size());
  now_.b->release(Holds::Gradients, last);
  now_.b->release(Holds::Buckets, held);
  s.reduction = now_.streams.last(after);
  if (s.gradient) {
    now_.b->wait(kAwaitToHost, u, s.reduction);
    now_.b->host(kAddOnHost, u, 3 * gradient, job_.host->touch(3 * gradient));
  }
  s.offloading = !s.gradient;
  s.gradient = true;
}

void Gradients::wait_for(UnitIndex u) {
  State& s = state_[u];
  now_.streams.wait_for(Job::kCompute, s.reduction);
  if (std::exchange(s.offloading, false)) now_.b->wait(kAwaitToHost, u, s.reduction);
  now_.b->release(Holds::Buckets, std::exchange(s.bytes, 0));
}

void Gradients::end_backward() {
  for (const Scattered& s : scattered_) {
    now_.streams.wait_for(Job::kCompute, s.op);
    now_.b->release(Holds::Buckets, s.bytes);
  }
  scattered_.clear();
}

}  // namespace ddpsim::systems::fsdp2
