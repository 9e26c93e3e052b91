// Which tensors does Horovod reduce together? A policy: each rank's background thread takes what
// the hooks have requested, all ranks agree on what every one has, and that is fused. Reads no
// clock: the virtual executor and a test's drive the same code.
//
// Source: horovod 0.28.1, horovod/common: operations.cc (RunLoopOnce), controller.cc
// (ComputeResponseList, FuseResponses, TensorFusionThresholdBytes), response_cache.cc
// (CacheCoordinator). tests/oracle/horovod.py is the same in Python, by another author.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/program.h"

namespace ddpsim::systems {

class Fusion {
 public:
  // `local_ranks`: of a host, where all hosts have as many; else 1.
  Fusion(const Coordination& c, int ranks, int local_ranks);
  // All tensors are in the cache, by bits in this order, as after a first step.
  void remember(const std::vector<TensorIndex>& first_order);

  // The hook of a rank's tensor asks for its reduction. REQUIRES: not requested already.
  void request(int rank, TensorIndex tensor);
  // Of some rank a request is there that no cycle has taken yet.
  bool waits() const;
  // The rank's cycle begins: it takes what was requested. True: all ranks' have.
  bool begin_cycle(int rank);

  struct Decision {
    std::vector<std::vector<TensorIndex>> fused;  // in order; what is in one is reduced together
    bool by_name = false;  // something was not in the cache: rank 0 gathered names
  };
  // REQUIRES: all ranks have begun the cycle.
  Decision agree();

 private:
  struct Rank {
    std::vector<TensorIndex> fresh;   // requested since its cycle began
    std::vector<TensorIndex> queue;   // taken
    std::vector<TensorIndex> misses;  // taken, and not in the cache
    bool in_cycle = false;
  };
  static std::size_t index(int rank) { return rank; }
  std::vector<std::vector<TensorIndex>> fuse(std::vector<TensorIndex> waiting) const;
  std::vector<std::vector<TensorIndex>> fuse_groups(const std::vector<TensorIndex>& all) const;
  void put(TensorIndex t);
  void use(TensorIndex t);

  const Coordination& c_;
  std::int64_t threshold_;
  std::vector<Rank> ranks_;
  std::vector<int> asked_;           // by tensor: ranks that have asked by name
  std::vector<int> bit_;             // by tensor; -1 = not in the cache
  std::vector<TensorIndex> by_use_;  // what is in the cache, latest first
};

}  // namespace ddpsim::systems
