// FSDP1: what the hook of a complete gradient does on a stream of its own. Source:
// _post_backward_hook, _reduce_grad, _accumulate_sharded_grad (torch/distributed/fsdp/
// _runtime_utils.py, 2.7).
#include "sim/systems/fsdp/fsdp1.h"
#include "sim/systems/fsdp/fsdp_words.h"

namespace ddpsim::systems::fsdp1 {

using namespace fsdp;  // its words

void Gradients::begin_step() {
  if (job_.host) return zero_on_host();
  for (UnitIndex u = 0; u < state_.size(); ++u) {
    State& s = state_[u];
    if (s.kept == State::Kept::None) continue;
    const std::int64_t elements = s.kept == State::Kept::Shard ? job_.shard(u) : job_.flat(u);
    if (job_.sets_to_none)
      s.kept = State::Kept::None, s.counted = false;
    else
      now_.copy(Job::kCompute, kZeroGradients, u, elements * element_size(job_.types.weights));
  }
}

// What the host has stays as it is between steps; the next copy replaces it.
void Gradients::zero_on_host() {
  std::int64_t bytes = 0;
  for (UnitIndex u = 0; u < state_.size(); ++u)
    if (state_[u].kept == State::Kept::Shard) bytes += job_.kept(u);
  if (bytes > 0 && !job_.sets_to_none)
    now_.b->host(kZeroOnHost, kNoSubject, bytes, job_.host->touch(bytes));
}

void Gradients::keep_shard(UnitIndex u) {
  State& s = state_[u];
  if (s.kept == State::Kept::Shard) s.saved = !job_.host, s.kept = State::Kept::None;
}

void Gradients::flatten(UnitIndex u) {
  State& s = state_[u];
  const std::int64_t bytes = job_.flat(u) * element_size(job_.types.compute);
  now_.copy(Job::kCompute, kFlatten, u, 2 * bytes);
  now_.b->allocate(Holds::Buckets, bytes);
  now_.b->release(Holds::Gradients, job_.made[u] * element_size(job_.types.compute));
  if (s.kept != State::Kept::None) {
    now_.copy(Job::kCompute, kAccumulateFlat, u, 3 * bytes);
    now_.b->release(Holds::Buckets, bytes);
  }
  s.kept = State::Kept::Whole;
}

void Gradients::divide(Job::Stream s, const OpWord& word, UnitIndex u, std::int64_t elements,
                       bool needed) {
  if (needed) now_.copy(s, word, u, 2 * elements * element_size(job_.types.reduce));
}

Gradients::Beside Gradients::make_input(UnitIndex u) {
  const std::int64_t elements = job_.flat(u);
  const std::int64_t from = element_size(job_.types.compute);
  const std::int64_t to = element_size(job_.types.reduce);
  Beside beside{state_[u].counted ? 0 : elements * from, 0};
  if (job_.types.reduce != job_.types.compute) {
    now_.copy(Job::kPostBackward, kCastGradient, u, elements * (from + to));
    now_.b->allocate(Holds::Buckets, elements * to);
    beside.copies += elements * to;
  }
  // Flat parameters of original ones are padded when they are made.
  const bool pads = job_.padded(u) != elements && !job_.fsdp.use_orig_params;
  if (job_.sharded() && (pads || !job_.has(Change::PadsWhereItMust))) {
    now_.copy(Job::kPostBackward, kPad, u, (elements + job_.padded(u)) * to);
    now_.b->allocate(Holds::Buckets, job_.padded(u) * to);
    beside.copies += job_.padded(u) * to;
  }
  return beside;
}

Job::Stream Gradients::communicate(UnitIndex u) {
  const DType type = job_.types.reduce;
  const std::int64_t size = element_size(type);
  const std::int64_t kept = job_.shard(u);
  const auto first = now_.b->step.next_op() + 1;  // behind its launch
  if (job_.sharded() && !job_.has(Change::ShardIsNotZeroed))
    now_.copy(Job::kPostBackward, kZeroShard, u, kept * size);
  divide(Job::kPostBackward, kPredivide, u, job_.padded(u), job_.predivisor > 1);
  now_.streams.collective(Job::kPostBackward, job_.sharded() ? kScatter : kReduce, u,
                          job_.padded(u) * size, type, job_.group());
  if (job_.sharded()) {
    const bool copied = type != job_.types.weights || state_[u].saved || job_.host;
    now_.b->allocate(copied ? Holds::Buckets : Holds::Gradients, kept * size, first);
  }
  Job::Stream end = Job::kPostBackward;
  if (job_.hybrid()) {
    end = job_.all_reduce;
    now_.streams.wait(end, Job::kPostBackward);
    now_.streams.collective(end, kReduce, u, kept * size, type, kReplicaGroup, job_.replicas);
  }
  divide(end, kPostdivide, u, kept, job_.ranks > job_.predivisor);
  return end;
}

void Gradients::reduce(UnitIndex u) {
  State& s = state_[u];
  StepBuilder& b = *now_.b;
  const std::int64_t kept = job_.shard(u);
  const std::int64_t reduced = kept * element_size(job_.types.reduce);
  const std::int64_t gradient = kept * element_size(job_.types.weights);
  const bool casts_back = job_.types.reduce != job_.types.weights;
  now_.streams.wait(Job::kPostBackward, Job::kCompute);
  Beside beside = make_input(u);
  const Job::Stream end = communicate(u);
  if (casts_back) {
    now_.copy(end, kCastBack, u, reduced + gradient);
    b.allocate(s.saved || s.counted || job_.host ? Holds::Buckets : Holds::Gradients, gradient);
    if (job_.sharded()) b.release(Holds::Buckets, reduced, kNoOp, job_.hybrid());
  } else if (!job_.sharded() && !s.counted) {  // what was reduced is the gradient
    b.release(Holds::Buckets, reduced);
    b.allocate(Holds::Gradients, reduced);
    (beside.copies > 0 ? beside.copies : beside.flat) = 0;
  }
  if (s.saved) now_.copy(end, kAccumulateShard, u, 3 * gradient);
  if (s.saved || (casts_back && s.counted))
    b.release(Holds::Buckets, gradient, kNoOp, job_.hybrid() && !casts_back);
  if (job_.host) now_.move(end, kGradientToHost, u);
  const std::uint32_t last = now_.streams.last(Job::kPostBackward);
  b.release(Holds::Buckets, beside.flat, last, true);
  b.release(Holds::Buckets, beside.copies, last);
  s.counted = !job_.sharded();
  s.saved = false;
  s.kept = job_.sharded() ? State::Kept::Shard : State::Kept::Whole;
}

// compute.synchronize(), which waits for the streams of reductions; then nobody refers to what was
// reduced.
void Gradients::wait_for_host() {
  StepBuilder& b = *now_.b;
  const std::uint32_t waits = b.wait(kAwaitGradients, kNoSubject, now_.streams.last(Job::kCompute));
  b.add_dep(waits, now_.streams.last(Job::kPostBackward));
  if (job_.hybrid()) b.add_dep(waits, now_.streams.last(job_.all_reduce));
  for (UnitIndex u = 0; u < state_.size(); ++u)
    if (state_[u].kept == State::Kept::Shard) b.release(Holds::Buckets, job_.kept(u), waits, true);
}

}  // namespace ddpsim::systems::fsdp1
