// One step of a rank of FSDP2: what no step changes, the weights of units as they come and go, and
// their gradients. Sources: fsdp2.cc.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "sim/systems/base/streams.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim::systems::fsdp2 {

// `timed` and `plan` are there as long as the job.
struct Job {
  using Stream = DeviceStreams::Stream;
  static constexpr Stream kCompute = DeviceStreams::kCompute;
  static constexpr Stream kCopy = 1;
  static constexpr Stream kAllGather = 2;
  static constexpr Stream kReduceScatter = 3;
  static constexpr std::size_t kRoot = 0;

  Job(const TimedWorkload& timed, const Plan& plan);

  const Workload& w;
  const Plan& plan;
  const FsdpPlan& fsdp;
  const bool no_sync;
  const UnitTypes types;
  const std::vector<Unit> units;
  const Sharded groups;
  const bool sets_to_none;
  const ModelMemory memory;
  const std::optional<HostMemory> host;  // of a plan that offloads
  const bool gathers;                    // false: one rank shards, and copies
  const bool scatters;                   // likewise
  Program program;
  std::vector<std::int64_t> padded;  // elements that have gradients, by unit
  std::vector<UnitIndex> wrapped;    // units that have parameters, but the root
  std::int64_t elements = 0;         // of this rank's shards, that are updated
  // Of all shards of a unit's parameters, in bytes, padded.
  struct Weights {
    std::int64_t computed = 0;    // gathered, as they are computed with
    std::int64_t kept = 0;        // as they are kept
    std::int64_t cast = 0;        // of `computed`, what was cast, and
    std::int64_t cast_from = 0;   // of `kept`, what from
    DType type = DType::Float32;  // of what is gathered: bytes, where there are several
  };
  std::vector<Weights> weights;
  UnitForward forward;
  std::vector<bool> differentiated;  // by layer
  UnitsInBackward in_backward;
  Stream all_reduce = 0;
  Lane replicas = Lane::Comm;
  Lane scatter = Lane::Comm;
  std::uint8_t post_forward = 0;  // reshard_after_forward=N: the group; 0 = none
  Lane post_forward_lane = Lane::Comm;
  std::int64_t predivisor = 1;
  bool postdivides = false;

  bool hybrid() const { return groups.replicas > 1; }
  std::uint8_t group() const { return hybrid() ? kShardGroup : 0; }
  // reshard_after_forward: 0 = no, 1 = yes, more = the ranks of a smaller group.
  std::int64_t smaller() const { return fsdp.reshard_after_forward.ranks.value_or(1); }
  bool frees(UnitIndex u) const;
  std::int64_t computed() const { return element_size(types.compute); }
  std::int64_t reduced() const { return element_size(types.reduce); }
  std::int64_t kept() const { return element_size(types.weights); }
  // Elements: each parameter by itself, its first dimension to a multiple of the ranks.
  // (`t`: of Workload::parameter.)
  std::int64_t padded_of(TensorIndex t) const;
  DType computed_of(TensorIndex t) const;
  std::int32_t cast_parameters(UnitIndex u) const;
  // Bytes of a unit's parameters, as they are kept.
  std::int64_t whole(UnitIndex u) const;
  bool casts(TensorIndex t) const { return computed_of(t) != w.parameter(t).dtype; }
  std::int64_t shard(UnitIndex u) const { return padded[u] / groups.ranks; }
  bool empty(UnitIndex u) const { return units[u].empty(); }
  bool trains(UnitIndex u) const { return units[u].elements > 0; }
};

// The step that is being built.
struct Now {
  explicit Now(const Job& job) : job_(job) {}
  StepBuilder* b = nullptr;
  DeviceStreams streams{1 + kMostStreams};
  bool backward = false;
  bool last_micro = true;

  // Reads and writes so many bytes in all.
  std::uint32_t copy(Job::Stream s, const OpWord& word, UnitIndex u, std::int64_t bytes) {
    return streams.copy(s, word, u, bytes);
  }
  // A kernel for each of its parameters that have gradients.
  std::uint32_t copy_each(Job::Stream s, const OpWord& word, UnitIndex u, std::int64_t bytes) {
    return streams.copy(s, word, u, bytes, job_.units[u].tensors.size());
  }
  // Between the host and the device, in so many copies.
  void move(Job::Stream s, const OpWord& word, UnitIndex u, std::int64_t bytes,
            std::int64_t copies);

 private:
  const Job& job_;
};

// Shards: copied in and gathered on streams of their own, copied out on the compute stream, freed.
class Weights {
 public:
  Weights(const Job& job, Now& now) : job_(job), now_(now), state_(job.units.size()) {}

  void unshard(UnitIndex u);
  void wait_for_unshard(UnitIndex u);
  // Prefetched by depth as the tutorials set it, of units but the root, in order of forward. False:
  // nothing is set for this one.
  bool prefetch(UnitIndex u, std::int64_t depth);
  void end_unit_forward(UnitIndex u);
  void end_forward();
  void free(UnitIndex u);
  // At the end of backward: what was gathered for a backward that did not come.
  void drop(UnitIndex u);

 private:
  struct State {
    enum class There : std::uint8_t { Sharded, Smaller, Whole } there = There::Sharded;
    bool unsharding = false;          // asked for, and not copied out yet
    std::uint32_t gathered = kNoOp;   // its all-gather
    std::uint32_t resharded = kNoOp;  // the copy into a smaller group's shards
  };
  void gathering_waits_for(std::uint32_t op);
  // What is copied in, this rank's part of so many: from the host, cast.
  void bring_own(UnitIndex u, std::int64_t ranks, bool from_smaller);
  std::uint32_t copy_own(const OpWord& word, UnitIndex u);
  void keep_part(UnitIndex u);

  const Job& job_;
  Now& now_;
  std::vector<State> state_;
  std::uint32_t copied_out_ = kNoOp;  // of the unit before, in forward
  std::int64_t held_ = 0;             // the buffer that it was copied out of
};

// Gradients: in one buffer a unit, reduced on a stream of their own.
class Gradients {
 public:
  Gradients(const Job& job, Now& now) : job_(job), now_(now), state_(job.units.size()) {}

  void begin_step();
  void begin_backward();
  // Autograd made those of these parameters.
  void make(const Part& part);
  // After a unit's backward: what micro-steps before left is added; then it stays without a
  // reduction, or is reduced.
  void accumulate(UnitIndex u);
  void stay(UnitIndex u);
  void reduce(UnitIndex u);
  // Of a unit without gradients: from 2.12 on computation waits for the reduction before it all the
  // same (PR 177319).
  void pass();
  // At the end of backward: computation waits.
  void wait_for(UnitIndex u);
  void end_backward();

 private:
  struct State {
    bool kept = false;                // unsharded gradients of micro-steps before
    bool gradient = false;            // of its shard
    bool offloading = false;          // to the host, which has not waited for it
    std::uint32_t reduction = kNoOp;  // the last of its operations in this backward
    std::int64_t bytes = 0;           // HSDP: what was all-reduced, until backward ends
  };
  struct Scattered {
    std::uint32_t op;
    std::int64_t bytes;
  };
  bool casts() const { return job_.types.reduce != job_.types.compute; }
  std::int64_t recycle();
  Job::Stream communicate(UnitIndex u);
  void keep(UnitIndex u, Job::Stream after, std::int64_t last);
  void offload(UnitIndex u, Job::Stream after, std::int64_t last, std::int64_t held);

  const Job& job_;
  Now& now_;
  std::vector<State> state_;
  std::deque<Scattered> scattered_;  // reduce-scatters whose input is there
};

}  // namespace ddpsim::systems::fsdp2
