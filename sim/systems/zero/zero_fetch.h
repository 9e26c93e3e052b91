// DeepSpeed ZeRO-3's PartitionedParameterCoordinator: which parameters are whole, and when they are
// gathered and released.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sim/systems/zero/zero_step.h"

namespace ddpsim::systems {

// At most so many events that the host has not waited for: a third one is there when it asks
// (stage3.py, partitioned_param_coordinator.py: `len(events) > max`, which is 2).
class ZeroLimit {
 public:
  // Emits the host's wait, if the device may be behind.
  void before_next(ZeroStep& s, const OpWord& word);
  void happened(std::vector<std::uint32_t> after) { events_.push_back(std::move(after)); }
  void settle() { events_.clear(); }  // the host has waited for all of them
  void begin_step() { settle(), number_ = 0, waited_.clear(); }

 private:
  static constexpr std::size_t kMost = 2;
  std::deque<std::vector<std::uint32_t>> events_;
  std::vector<std::uint32_t> waited_;
  std::uint32_t number_ = 0;
};

// Source: deepspeed/runtime/zero/partitioned_param_coordinator.py (0.14.5); names are its own.
class ZeroCoordinator {
 public:
  ZeroCoordinator(ZeroJob& job, const ZeroTrace& trace);

  void begin_step(ZeroStep& s);
  void fetch_sub_module(std::size_t module, bool backward);
  void release_sub_module(std::size_t module);
  // After each backward. The first time what was recorded becomes the trace.
  void reset_step();
  // Before the optimizer, and after it.
  void partition_all();
  void gather_persistent();
  void settle() { limit_.settle(); }

  bool persistent(TensorIndex t) const {
    return job_.elements(t) <= job_.zero.stage3_param_persistence_threshold;
  }
  std::int64_t shard(TensorIndex t) const {
    return (job_.elements(t) + job_.ranks - 1) / job_.ranks;
  }

 private:
  enum class Status : std::uint8_t { Partitioned, Inflight, Available };
  struct Gathering {
    std::vector<TensorIndex> tensors;
    std::uint32_t bucket = 0;
    std::uint32_t op = kNoOp;
    std::uint32_t scales = kNoOp;  // qwZ: their all-gather
    std::int64_t groups = 0;       // of all ranks
    std::int64_t beside = 0;       // bytes of what is quantised
    bool complete = false;
  };
  struct Use {
    TensorIndex tensor;
    std::int64_t step;
  };
  static constexpr std::int64_t kNever = -10'000'000'000;

  const std::vector<TensorIndex>& tensors_of(std::size_t module) const {
    return trace_.modules[module].tensors;
  }
  void all_gather(std::set<TensorIndex> tensors);
  void gather(std::vector<TensorIndex> tensors, bool from_secondary);
  // qwZ: this rank's part, of so many elements, as bytes and scales.
  void quantise(Gathering& g, std::int64_t own, std::int64_t ranks);
  void gather_scales(Gathering& g, bool from_secondary);
  void dequantise(const Gathering& g);
  // Of a parameter, in a rank's part of the second copy.
  std::int64_t secondary(TensorIndex t) const { return shard(t) * job_.ranks / secondary_ranks_; }
  void keep_secondary(TensorIndex t);
  void invalidate_secondary();
  void wait_for(Gathering& g);
  bool counts_what_stays() const;  // of what is there, from micro-step to micro-step
  void prefetch(std::size_t module);
  const std::set<TensorIndex>& to_release(std::size_t module);
  void release(TensorIndex t);

  ZeroJob& job_;
  const ZeroTrace& trace_;
  ZeroStep* s_ = nullptr;
  ZeroLimit limit_;
  bool backward_ = false;
  bool complete_ = false;  // the trace
  std::int64_t step_id_ = 0;
  std::int64_t available_ = 0;  // n_available_params, elements
  std::vector<std::size_t> module_order_;
  std::vector<Use> order_;
  std::deque<Use> queue_;
  const std::int64_t secondary_ranks_;  // hpZ; 1 = none
  std::vector<bool> has_secondary_;
  std::vector<Status> status_;
  std::vector<std::size_t> inflight_;  // of Gatherings; of each tensor, if it is in the registry
  std::vector<std::set<std::size_t>> active_;
  std::vector<std::int64_t> most_recent_;
  std::vector<Gathering> gatherings_;  // of this step
  std::map<std::pair<std::size_t, std::int64_t>, std::set<TensorIndex>>
      to_release_;  // an lru_cache
};

}  // namespace ddpsim::systems
