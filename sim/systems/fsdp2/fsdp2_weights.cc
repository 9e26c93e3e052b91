// FSDP2: unshard, wait_for_unshard and reshard of a parameter group. Source:
// torch/distributed/fsdp/ _fully_shard/{_fsdp_param_group,_fsdp_collectives}.py (2.7).
#include <algorithm>
#include <utility>

#include "sim/systems/fsdp/fsdp_words.h"
#include "sim/systems/fsdp2/fsdp2.h"

namespace ddpsim::systems::fsdp2 {

using namespace fsdp;  // its words

void Weights::gathering_waits_for(std::uint32_t op) {
  now_.streams.wait_for(Job::kCopy, op);
  now_.streams.wait_for(Job::kAllGather, op);
}

void Weights::bring_own(UnitIndex u, std::int64_t ranks, bool from_smaller) {
  StepBuilder& b = *now_.b;
  const Job::Weights& all = job_.weights[u];
  const std::int64_t own = all.computed / ranks;
  const std::int64_t moved = job_.host && !from_smaller ? all.kept / ranks : 0;
  const OpWord& cast = now_.backward ? kCastShardAgain : kCastShard;
  if (moved > 0) {
    now_.move(Job::kCopy, now_.backward ? kShardToDeviceAgain : kShardToDevice, u, moved,
              job_.units[u].tensors.size() + job_.units[u].frozen.size());
    b.allocate(Holds::Buckets, moved);
  }
  if (all.cast > 0) {
    // One by one of what was moved: _get_param_all_gather_inputs. What a smaller group keeps has
    // been cast, and is copied all the same.
    const std::int64_t bytes = (all.cast + (from_smaller ? all.cast : all.cast_from)) / ranks;
    now_.streams.copy(Job::kCopy, cast, u, bytes, moved > 0 ? job_.cast_parameters(u) : 1);
    b.allocate(Holds::Buckets, all.cast / ranks);
    b.release(Holds::Buckets, moved);
  }
  now_.copy(Job::kCopy, now_.backward ? kShardInAgain : kShardIn, u, 2 * own);
  b.allocate(Holds::Buckets, all.computed);  // its input is a slice of its output
  if (all.cast == 0) b.release(Holds::Buckets, moved);
}

void Weights::unshard(UnitIndex u) {
  State& s = state_[u];
  if (s.unsharding || s.there == State::There::Whole || job_.empty(u)) return;
  s.unsharding = true;
  gathering_waits_for(std::exchange(s.resharded, kNoOp));
  if (!job_.gathers) return;
  const bool from_smaller = s.there == State::There::Smaller;
  const std::int64_t ranks = from_smaller ? job_.smaller() : job_.groups.ranks;
  bring_own(u, ranks, from_smaller);
  now_.streams.wait(Job::kAllGather, Job::kCopy);
  s.gathered = now_.streams.collective(Job::kAllGather, now_.backward ? kGatherAgain : kGather, u,
                                       job_.weights[u].computed, job_.weights[u].type,
                                       from_smaller ? job_.post_forward : job_.group(),
                                       from_smaller ? job_.post_forward_lane : Lane::Comm);
  now_.b->release(Holds::Buckets, job_.weights[u].cast / ranks);
}

void Weights::wait_for_unshard(UnitIndex u) {
  State& s = state_[u];
  if (!s.unsharding) return;
  s.unsharding = false;
  if (!now_.backward) gathering_waits_for(std::exchange(copied_out_, kNoOp));
  now_.streams.wait_for(Job::kCompute, std::exchange(s.gathered, kNoOp));
  const std::int64_t buffer = job_.gathers ? job_.weights[u].computed : 0;
  const OpWord& word = now_.backward ? kUnitOutAgain : kUnitOut;
  const std::uint32_t out =
      job_.gathers ? now_.copy(Job::kCompute, word, u, 2 * buffer) : copy_own(word, u);
  now_.b->allocate(Holds::Gathered, buffer);
  if (s.there == State::There::Smaller)
    now_.b->release(Holds::Gathered, job_.weights[u].computed / job_.smaller());
  s.there = State::There::Whole;
  if (now_.backward || !job_.gathers) {
    gathering_waits_for(out);
    now_.b->release(Holds::Buckets, buffer);
  } else {
    // The buffer of the unit before is freed once this one was copied out.
    copied_out_ = out;
    now_.b->release(Holds::Buckets, std::exchange(held_, buffer));
  }
}

// A group of one rank gathers nothing: each parameter is copied, and cast before that.
std::uint32_t Weights::copy_own(const OpWord& word, UnitIndex u) {
  const Job::Weights& all = job_.weights[u];
  const std::vector<TensorIndex> parameters = job_.units[u].parameters(job_.w);
  const std::uint32_t op =
      now_.streams.copy(Job::kCompute, word, u, 2 * all.computed + all.cast + all.cast_from,
                        std::ssize(parameters) + job_.cast_parameters(u));
  std::int64_t before = 0;
  for (TensorIndex t : parameters) {
    const std::int64_t bytes = job_.padded_of(t) * element_size(job_.computed_of(t));
    const bool casts = job_.casts(t);
    if (casts) now_.b->allocate(Holds::Buckets, bytes);
    now_.b->release(Holds::Buckets, std::exchange(before, casts ? bytes : 0));
    now_.b->allocate(Holds::Gathered, bytes);
  }
  now_.b->release(Holds::Buckets, before);
  return op;
}

bool Weights::prefetch(UnitIndex u, std::int64_t depth) {
  const std::vector<UnitIndex>& all = job_.wrapped;
  const auto found = std::find(all.begin(), all.end(), u);
  const auto at = found - all.begin();
  if (found == all.end() || (now_.backward ? at : std::ssize(all) - 1 - at) < depth) return false;
  for (std::int64_t k = 1; k <= depth; ++k) unshard(all[now_.backward ? at - k : at + k]);
  return true;
}

void Weights::end_unit_forward(UnitIndex u) {
  if (job_.frees(u)) job_.post_forward > 0 ? keep_part(u) : free(u);
}

void Weights::end_forward() {
  gathering_waits_for(std::exchange(copied_out_, kNoOp));
  now_.b->release(Holds::Buckets, std::exchange(held_, 0));
}

void Weights::keep_part(UnitIndex u) {
  State& s = state_[u];
  const std::vector<TensorIndex> parameters = job_.units[u].parameters(job_.w);
  s.resharded = now_.streams.copy(Job::kCompute, kReshard, u,
                                  2 * job_.weights[u].computed / job_.smaller(), parameters.size());
  for (TensorIndex t : parameters) {
    const std::int64_t bytes = job_.padded_of(t) * element_size(job_.computed_of(t));
    now_.b->allocate(Holds::Gathered, bytes / job_.smaller());
    now_.b->release(Holds::Gathered, bytes);
  }
  s.there = State::There::Smaller;
}

void Weights::free(UnitIndex u) {
  State& s = state_[u];
  if (s.there == State::There::Whole) now_.b->release(Holds::Gathered, job_.weights[u].computed);
  s.there = State::There::Sharded;
}

void Weights::drop(UnitIndex u) {
  State& s = state_[u];
  if (!std::exchange(s.unsharding, false)) return;
  now_.streams.wait_for(Job::kCompute, std::exchange(s.gathered, kNoOp));
  now_.b->release(Holds::Buckets, job_.gathers ? job_.weights[u].computed : 0);
}

}  // namespace ddpsim::systems::fsdp2
