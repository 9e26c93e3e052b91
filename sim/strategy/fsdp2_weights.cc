// FSDP2: unshard, wait_for_unshard and reshard of a parameter group. Source:
// torch/distributed/fsdp/ _fully_shard/{_fsdp_param_group,_fsdp_collectives}.py (2.7).
#include <algorithm>
#include <utility>

#include "sim/strategy/fsdp2.h"
#include "sim/strategy/fsdp_words.h"

namespace ddpsim::strategy::fsdp2 {

using namespace fsdp;  // its words

void Weights::gathering_waits_for(std::uint32_t op) {
  now_.streams.wait_for(Job::kCopy, op);
  now_.streams.wait_for(Job::kAllGather, op);
}

void Weights::bring_own(std::size_t u, std::int64_t own, bool from_smaller) {
  StepBuilder& b = *now_.b;
  const std::int64_t size = job_.computed();
  const std::int64_t moved = job_.host && !from_smaller ? own * job_.kept() : 0;
  const OpWord& cast = now_.backward ? kCastShardAgain : kCastShard;
  if (moved > 0) {
    now_.move(Job::kCopy, now_.backward ? kShardToDeviceAgain : kShardToDevice, u, moved);
    b.allocate(Holds::Buckets, moved);
  }
  if (job_.casts()) {
    // One by one of what was moved: _get_param_all_gather_inputs. What a smaller group keeps has
    // been cast, and is copied all the same.
    const std::int64_t bytes = own * (size + (from_smaller ? size : job_.kept()));
    moved > 0 ? now_.copy_each(Job::kCopy, cast, u, bytes) : now_.copy(Job::kCopy, cast, u, bytes);
    b.allocate(Holds::Buckets, own * size);
    b.release(Holds::Buckets, moved);
  }
  now_.copy(Job::kCopy, now_.backward ? kShardInAgain : kShardIn, u, 2 * own * size);
  b.allocate(Holds::Buckets, job_.padded[u] * size);  // its input is a slice of its output
  if (!job_.casts()) b.release(Holds::Buckets, moved);
}

void Weights::unshard(std::size_t u) {
  State& s = state_[u];
  if (s.unsharding || s.there == State::There::Whole || job_.empty(u)) return;
  s.unsharding = true;
  gathering_waits_for(std::exchange(s.resharded, kNoOp));
  if (job_.copies) return;
  const bool from_smaller = s.there == State::There::Smaller;
  const std::int64_t own = from_smaller ? job_.padded[u] / job_.smaller() : job_.shard(u);
  bring_own(u, own, from_smaller);
  now_.streams.wait(Job::kAllGather, Job::kCopy);
  s.gathered =
      now_.streams.collective(Job::kAllGather, now_.backward ? kGatherAgain : kGather,
                              static_cast<std::uint32_t>(u), job_.padded[u] * job_.computed(),
                              job_.types.compute, from_smaller ? job_.post_forward : job_.group(),
                              from_smaller ? job_.post_forward_lane : Lane::Comm);
  if (job_.casts()) now_.b->release(Holds::Buckets, own * job_.computed());
}

void Weights::wait_for_unshard(std::size_t u) {
  State& s = state_[u];
  if (!s.unsharding) return;
  s.unsharding = false;
  if (!now_.backward) gathering_waits_for(std::exchange(copied_out_, kNoOp));
  now_.streams.wait_for(Job::kCompute, std::exchange(s.gathered, kNoOp));
  const std::int64_t size = job_.computed();
  const std::int64_t buffer = job_.copies ? 0 : job_.padded[u] * size;
  const OpWord& word = now_.backward ? kUnitOutAgain : kUnitOut;
  const std::uint32_t out =
      job_.copies ? copy_own(word, u) : now_.copy(Job::kCompute, word, u, 2 * buffer);
  now_.b->allocate(Holds::Gathered, buffer);
  if (s.there == State::There::Smaller)
    now_.b->release(Holds::Gathered, job_.padded[u] / job_.smaller() * size);
  s.there = State::There::Whole;
  if (now_.backward || job_.copies) {
    gathering_waits_for(out);
    now_.b->release(Holds::Buckets, buffer);
  } else {
    // The buffer of the unit before is freed once this one was copied out.
    copied_out_ = out;
    now_.b->release(Holds::Buckets, std::exchange(held_, buffer));
  }
}

// A group of one rank gathers nothing: each parameter is copied, and cast before that.
std::uint32_t Weights::copy_own(const OpWord& word, std::size_t u) {
  const std::int64_t size = job_.computed();
  const bool casts = job_.casts();
  const std::uint32_t op =
      now_.copy_each(Job::kCompute, word, u,
                     job_.padded[u] * (2 * size + (casts ? job_.kept() + size : 0)), casts ? 2 : 1);
  std::int64_t before = 0;
  for (TensorIndex t : job_.units[u].tensors) {
    const std::int64_t bytes = job_.padded_of(t) * size;
    if (casts) now_.b->allocate(Holds::Buckets, bytes);
    now_.b->release(Holds::Buckets, std::exchange(before, casts ? bytes : 0));
    now_.b->allocate(Holds::Gathered, bytes);
  }
  now_.b->release(Holds::Buckets, before);
  return op;
}

bool Weights::prefetch(std::size_t u, std::int64_t depth) {
  const std::vector<std::size_t>& all = job_.wrapped;
  const auto found = std::find(all.begin(), all.end(), u);
  const auto at = found - all.begin();
  if (found == all.end() || (now_.backward ? at : std::ssize(all) - 1 - at) < depth) return false;
  for (std::int64_t k = 1; k <= depth; ++k)
    unshard(all[static_cast<std::size_t>(now_.backward ? at - k : at + k)]);
  return true;
}

void Weights::end_unit_forward(std::size_t u) {
  if (job_.frees(u)) job_.post_forward > 0 ? keep_part(u) : free(u);
}

void Weights::end_forward() {
  gathering_waits_for(std::exchange(copied_out_, kNoOp));
  now_.b->release(Holds::Buckets, std::exchange(held_, 0));
}

void Weights::keep_part(std::size_t u) {
  State& s = state_[u];
  const std::int64_t size = job_.computed();
  s.resharded =
      now_.copy_each(Job::kCompute, kReshard, u, 2 * job_.padded[u] / job_.smaller() * size);
  for (TensorIndex t : job_.units[u].tensors) {
    now_.b->allocate(Holds::Gathered, job_.padded_of(t) / job_.smaller() * size);
    now_.b->release(Holds::Gathered, job_.padded_of(t) * size);
  }
  s.there = State::There::Smaller;
}

void Weights::free(std::size_t u) {
  State& s = state_[u];
  if (s.there == State::There::Whole)
    now_.b->release(Holds::Gathered, job_.padded[u] * job_.computed());
  s.there = State::There::Sharded;
}

}  // namespace ddpsim::strategy::fsdp2
