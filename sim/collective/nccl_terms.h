// Terms that the prices of NCCL's operations share (nccl_price.cc). Internal to this room.
#pragma once

#include "sim/collective/nccl.h"

namespace ddpsim::collective {

// One step of a ring over a hop, microseconds, as MODEL.md 7.3 has it. `message`: bytes of data at once.
double nccl_step_us(const NcclGroup& g, const Profile& p, const NcclHop& hop, nccl::Protocol protocol, std::int64_t message);
// A price's times and bus bandwidth, from microseconds; what limits its transfer is set before. `bus_bytes`: of the operation, as nccl-tests counts them.
void set_times(NcclPrice& price, double base, double steps, double fill, double transfer, double bus_bytes);
// Bytes on the wire per byte of data.
double nccl_wire_factor(nccl::Protocol p);
// GB/s that one thread block moves at most.
double nccl_block_rate(const NcclGroup& g);
// The slowest link for these bytes on each, as a multiple of `per_byte`.
struct NcclBottleneck {
  double us = 0;
  topology::LinkId link = 0;
};
NcclBottleneck nccl_bottleneck(const NcclGroup& g, const Profile& p, Level level, const std::vector<LinkLoad>& loads);

}  // namespace ddpsim::collective
