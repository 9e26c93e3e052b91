// NCCL (sim/nccl/fabric) as a communicator of a job.
#pragma once

#include "sim/collective/price.h"

namespace ddpsim::collective {

// Its all-reduces and broadcasts are what NCCL chooses, at nccl::price_of. REQUIRES: as
// nccl::build; the settings leave something to choose at every size.
Communicator make_nccl_communicator(const topology::Fabric& fabric, std::vector<int> devices,
                                    const nccl::Settings& settings, int compute_capability);
// AllReduce, AllGather, ReduceScatter or Broadcast. REQUIRES: c.nccl.
Price nccl_collective(const Communicator& c, const Profile& p, Level level, Operation op,
                      Bytes size);

}  // namespace ddpsim::collective
