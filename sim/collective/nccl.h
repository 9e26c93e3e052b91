// NCCL (sim/nccl/fabric) as a communicator of a job.
#pragma once

#include "sim/collective/price.h"

namespace ddpsim::collective {

// Its all-reduces and broadcasts are what NCCL chooses, at nccl::price_of. REQUIRES: as
// nccl::build; the settings leave something to choose at every size. `known`: of nccl::search().
Communicator make_nccl_communicator(const topology::Fabric& fabric, std::vector<int> devices,
                                    const nccl::Settings& settings, int compute_capability,
                                    const nccl::Searches* known = nullptr);
// AllReduce, AllGather, ReduceScatter or Broadcast. REQUIRES: c.nccl.
Price nccl_collective(const Communicator& c, const Profile& p, Level level, Operation op,
                      Bytes size);

// The communicator exchanges all to all, too: ncclSend and ncclRecv of every pair in a group (MODEL
// 7.5), as torch.distributed.all_to_all_single issues them. Cost grows with pairs of ranks.
// REQUIRES: c.nccl, at most nccl::kMostP2pRanks ranks.
void add_all_to_all(Communicator& c);
// S bytes of each rank, an n-th to each. REQUIRES: c.all_to_all.
Price nccl_all_to_all(const Communicator& c, const Profile& p, Level level, Bytes size);

}  // namespace ddpsim::collective
