// FSDP1: unshard and reshard. Before each gathering the host may wait until weights have been
// freed: the rate limiter. Source: _unshard, _reshard, _prefetch_handle (torch/distributed/fsdp/
// _runtime_utils.py, 2.7); _limiter_utils.py.
#include <algorithm>
#include <utility>

#include "sim/systems/fsdp/fsdp1.h"
#include "sim/systems/fsdp/fsdp_words.h"

namespace ddpsim::systems::fsdp1 {

using namespace fsdp;  // its words

namespace {
constexpr std::size_t kInFlight = 2;  // _limiter_utils.py

// In a pass, the first time or the second.
const OpWord& move_word_of(bool backward, bool twice) {
  if (backward) return twice ? kShardToDeviceAgainTwice : kShardToDeviceAgain;
  return twice ? kShardToDeviceTwice : kShardToDevice;
}
const OpWord& cast_word_of(bool backward, bool twice) {
  if (backward) return twice ? kCastShardAgainTwice : kCastShardAgain;
  return twice ? kCastShardTwice : kCastShard;
}
}  // namespace

void Weights::begin_step() {
  for (std::uint32_t& f : freed_) f = kNoOp;  // of the step before: long done
}

void Weights::begin_forward() {
  if (!job_.fsdp.forward_prefetch) return;
  for (State& s : state_) {
    s.needs_forward = true;
    if (job_.has(Change::ReshardingForgetsPrefetch)) s.prefetched = false;
  }
}

void Weights::end_backward() {
  for (State& s : state_) s.needs_backward = s.prefetched = false;
}

void Weights::limit(UnitIndex u) {
  if (!job_.limits || freed_.size() < kInFlight) return;
  const std::uint32_t freed = freed_.front();
  freed_.pop_front();
  const std::uint32_t host = now_.b->host(now_.backward ? kLimitAgain : kLimit, Cost::Measured, u);
  if (freed != kNoOp) now_.b->add_dep(host, freed);
}

bool Weights::bring_shard(UnitIndex u) {
  if (!job_.host || job_.fsdp.param_dtype) return cast_shard(u);
  if (state_[u].on_device) return false;
  now_.move(job_.pre_unshard, move_word_of(now_.backward, false), u);
  now_.b->allocate(Holds::Buckets, job_.kept(u));
  return true;
}

bool Weights::cast_shard(UnitIndex u) {
  State& s = state_[u];
  if (!job_.fsdp.param_dtype || (job_.sharded() && s.whole && !job_.host)) return false;
  const std::int64_t size = job_.computed(u);
  if (job_.host) {  // into a tensor that is there until it has been cast
    now_.move(job_.pre_unshard, move_word_of(now_.backward, s.on_device), u);
    now_.b->allocate(Holds::Buckets, job_.kept(u) + job_.shard(u) * size);
    s.cast = true;
  }
  now_.copy(job_.pre_unshard, cast_word_of(now_.backward, job_.host && s.on_device), u,
            job_.shard(u) * (element_size(job_.types_of[u].weights) + size));
  if (!s.cast) now_.b->allocate(Holds::Buckets, job_.shard(u) * size);
  if (job_.host) now_.b->release(Holds::Buckets, job_.kept(u));
  s.cast = true;
  return true;
}

// The flat parameter is the whole one now. `gathered`: it was not before.
void Weights::end_move(UnitIndex u, bool gathered) {
  const std::uint32_t last = now_.streams.last(gathered ? Job::kUnshard : job_.pre_unshard);
  now_.b->release(Holds::Buckets, job_.kept(u), last,
                  gathered && job_.has(Change::HoldsWhatWasMoved));
}

// Another stream than its own used it last.
void Weights::end_cast(UnitIndex u, Job::Stream used_on) {
  if (!std::exchange(state_[u].cast, false)) return;
  now_.b->release(Holds::Buckets, job_.shard(u) * job_.computed(u), now_.streams.last(used_on),
                  true);
}

void Weights::unshard(UnitIndex u) {
  State& s = state_[u];
  if (!job_.has(Change::LimitsAfterTheCast)) limit(u);
  const bool brought = bring_shard(u);
  const bool gathers = job_.sharded() && !s.whole;
  if (brought) now_.streams.wait(Job::kUnshard, job_.pre_unshard);
  if (job_.has(Change::LimitsAfterTheCast)) limit(u);
  if (gathers) {
    const std::int64_t bytes = job_.padded(u) * job_.computed(u);
    now_.streams.collective(Job::kUnshard, now_.backward ? kGatherAgain : kGather, u, bytes,
                            job_.types_of[u].compute, job_.group());
    now_.b->allocate(Holds::Gathered, bytes);
    s.whole = true;
  }
  if (job_.sharded()) end_cast(u, Job::kUnshard);
  if (brought && !job_.fsdp.param_dtype) end_move(u, gathers);
  s.on_device = true;
  if (!now_.backward && job_.has(Change::ViewsWhereGathered))
    now_.trace.push_back({UnitEvent::What::Views, u});
}

void Weights::reshard(UnitIndex u, bool frees) {
  State& s = state_[u];
  // Another stream used them: free when computation has got here.
  if (frees && s.whole)
    now_.b->release(Holds::Gathered, job_.padded(u) * job_.computed(u),
                    now_.streams.last(Job::kCompute), true);
  if (frees) s.whole = false;
  s.on_device = false;
  if (frees && job_.limits) freed_.push_back(now_.streams.last(Job::kCompute));
  if (!job_.sharded()) end_cast(u, Job::kCompute);
  if (frees || job_.has(Change::ReshardingForgetsPrefetch)) s.prefetched = false;
}

std::int64_t Weights::left_whole() const {
  std::int64_t bytes = 0;
  for (UnitIndex u = 0; u < state_.size(); ++u)
    if (state_[u].whole && !job_.trains(u)) bytes += job_.padded(u) * job_.computed(u);
  return bytes;
}

void Weights::prefetch(const std::vector<UnitIndex>& order, UnitIndex u, int direction,
                       bool State::*needs) {
  const auto at = std::find(order.begin(), order.end(), u);
  if (at == order.end()) return;
  const auto next = at - order.begin() + direction;
  if (next < 0 || next >= std::ssize(order)) return;
  const UnitIndex target = order[next];
  if (!(state_[target].*needs) || state_[target].prefetched) return;
  unshard(target);
  state_[target].prefetched = true;
}

void Weights::bring(UnitIndex u) {
  if (!job_.has(Change::LimitsWhatIsNew) || !state_[u].prefetched) unshard(u);
}

}  // namespace ddpsim::systems::fsdp1
