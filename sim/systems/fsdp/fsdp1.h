// One step of a rank of FSDP1: what no step changes, the weights of units as they come and go, and
// their gradients. Sources: fsdp1.cc.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "sim/systems/base/streams.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim::systems::fsdp1 {

using pytorch::Change;

// `timed` and `plan` are there as long as the job.
struct Job {
  using Stream = DeviceStreams::Stream;
  static constexpr Stream kCompute = DeviceStreams::kCompute;
  static constexpr Stream kUnshard = 1;
  static constexpr Stream kPostBackward = 2;
  static constexpr std::size_t kRoot = 0;

  Job(const TimedWorkload& timed, const Plan& plan);
  bool has(Change c) const { return plan.pytorch.has(c); }

  const Workload& w;
  const Plan& plan;
  const FsdpPlan& fsdp;
  const bool no_sync;
  const UnitTypes types;
  const std::vector<Unit> units;
  const std::int64_t ranks;
  const std::int64_t predivisor;
  const Sharded groups;
  const Sharding sharding;
  const BackwardPrefetch backward_prefetch;
  const bool limits;
  const bool sets_to_none;
  const ModelMemory memory;
  const std::optional<HostMemory> host;  // of a plan that offloads
  Program program;
  Stream pre_unshard = 0;      // with param_dtype, and where shards are the host's
  Stream all_reduce = 0;       // hybrid
  Lane replicas = Lane::Comm;  // hybrid: of the all-reduces among groups
  UnitForward forward;
  std::vector<UnitTypes> types_of;   // by unit
  std::vector<bool> differentiated;  // by layer
  UnitsInBackward in_backward;
  std::vector<std::int64_t> made;      // by unit, elements that autograd makes gradients of
  std::vector<std::int64_t> mixed_of;  // by layer, of these those of frozen parameters
  std::int64_t elements = 0;           // of this rank's shards, that are updated

  bool sharded() const { return sharding != Sharding::NoShard; }
  bool hybrid() const { return sharded() && groups.replicas > 1; }
  bool frees_after_forward() const {
    return sharding == Sharding::FullShard || sharding == Sharding::HybridShard;
  }
  std::uint8_t group() const { return hybrid() ? kShardGroup : 0; }
  // Elements of a unit, frozen ones and all: of its flat parameter; of this rank's shard; of all
  // shards.
  std::int64_t flat(UnitIndex u) const { return units[u].elements + units[u].frozen_elements; }
  std::int64_t shard(UnitIndex u) const {
    return sharded() ? (flat(u) + groups.ranks - 1) / groups.ranks : flat(u);
  }
  std::int64_t padded(UnitIndex u) const { return sharded() ? shard(u) * groups.ranks : flat(u); }
  bool empty(UnitIndex u) const { return units[u].empty(); }
  // Its flat parameter requires a gradient: any of its parameters does.
  bool trains(UnitIndex u) const { return units[u].elements > 0; }
  // Elements of its shard that the optimizer updates: of a mixed unit on the rank that has the
  // most.
  std::int64_t updated(UnitIndex u) const {
    return units[u].mixed() ? std::min(shard(u), units[u].elements) : trains(u) ? shard(u) : 0;
  }
  std::int64_t updated_parameters() const;
  bool has_pre_unshard() const { return fsdp.param_dtype || host; }
  // Bytes of this rank's shard, as it is kept.
  std::int64_t kept(UnitIndex u) const { return shard(u) * element_size(types_of[u].weights); }
  // Bytes of an element as a unit is computed with.
  std::int64_t computed(UnitIndex u) const { return element_size(types_of[u].compute); }

 private:
  void differentiate_mixed(const TimedWorkload& timed);
};

// The step that is being built.
struct Now {
  explicit Now(const Job& job) : job_(job) {}
  StepBuilder* b = nullptr;
  DeviceStreams streams{1 + kMostStreams};
  bool backward = false;
  bool last_micro = true;
  bool first_iteration = false;  // no backward has ended: orders are checked, and not yet known
  std::vector<UnitEvent> trace;  // of the forward, with the places where views were made

  // Reads and writes so many bytes in all.
  void copy(Job::Stream s, const OpWord& word, UnitIndex u, std::int64_t bytes) {
    streams.copy(s, word, u, bytes);
  }
  // A unit's shard, or its gradient, between the host and the device.
  void move(Job::Stream s, const OpWord& word, UnitIndex u) {
    streams.kernel(s, word, u, job_.kept(u), {.duration = job_.host->copy(job_.kept(u))});
  }

 private:
  const Job& job_;
};

// Flat parameters: gathered before they are used, freed after it, as far as the limiter lets the
// host go ahead.
class Weights {
 public:
  Weights(const Job& job, Now& now) : job_(job), now_(now), state_(job.units.size()) {}

  void begin_step();
  void begin_forward();
  void end_backward();
  // Before a unit is used, but for what was prefetched.
  void bring(UnitIndex u);
  void reshard(UnitIndex u, bool frees);
  // At the end of backward, what nothing resharded.
  void catch_all(UnitIndex u, bool frees) {
    if (state_[u].whole) reshard(u, frees);
  }
  // Bytes of frozen units that were never resharded: they stay whole from step to step.
  std::int64_t left_whole() const;
  // It is about to be used, and is not to be prefetched any more; it was used, and will be again.
  void used_in_forward(UnitIndex u) { state_[u].needs_forward = false; }
  void used_in_backward(UnitIndex u) { state_[u].needs_backward = false; }
  void needed_in_backward(UnitIndex u) { state_[u].needs_backward = true; }
  // The one after `u` in order of forward; the one before it as forwards ended.
  void prefetch_forward(UnitIndex u) { prefetch(job_.forward.order, u, 1, &State::needs_forward); }
  void prefetch_backward(const std::vector<UnitIndex>& ended, UnitIndex u) {
    prefetch(ended, u, -1, &State::needs_backward);
  }

 private:
  struct State {
    bool whole = false;      // its flat parameter is there
    bool cast = false;       // NoShard: its copy in param_dtype is
    bool on_device = false;  // offloaded: it was brought since it was resharded
    bool prefetched = false;
    bool needs_forward = false;
    bool needs_backward = false;
  };
  void limit(UnitIndex u);
  bool bring_shard(UnitIndex u);
  bool cast_shard(UnitIndex u);
  void end_move(UnitIndex u, bool gathered);
  void end_cast(UnitIndex u, Job::Stream used_on);
  void unshard(UnitIndex u);
  void prefetch(const std::vector<UnitIndex>& order, UnitIndex u, int direction,
                bool State::*needs);

  const Job& job_;
  Now& now_;
  std::vector<State> state_;
  // Computation after which weights were freed, for the limiter; across steps.
  std::deque<std::uint32_t> freed_;
};

// Flat gradients: made whole, reduced and scattered on a stream of their own.
class Gradients {
 public:
  Gradients(const Job& job, Now& now) : job_(job), now_(now), state_(job.units.size()) {}

  void begin_step();
  // Before a unit's backward: what is there stays beside what comes.
  void keep_shard(UnitIndex u);
  void flatten(UnitIndex u);
  void reduce(UnitIndex u);
  // At the end of backward: the host waits for what goes to it.
  void wait_for_host();

 private:
  struct State {
    enum class Kept : std::uint8_t { None, Whole, Shard } kept = Kept::None;
    bool saved = false;    // a shard's gradient of the micro-steps before
    bool counted = false;  // NoShard: a gradient that was reduced
  };
  // Bytes that are held until the hook returns: the flat gradient, which is of another stream, and
  // copies of it.
  struct Beside {
    std::int64_t flat = 0;
    std::int64_t copies = 0;
  };
  Beside make_input(UnitIndex u);
  // The stream where it ends.
  Job::Stream communicate(UnitIndex u);
  void divide(Job::Stream s, const OpWord& word, UnitIndex u, std::int64_t elements, bool needed);
  void zero_on_host();

  const Job& job_;
  Now& now_;
  std::vector<State> state_;
};

}  // namespace ddpsim::systems::fsdp1
