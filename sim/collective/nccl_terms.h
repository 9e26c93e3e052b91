// Terms that the prices of NCCL's operations (nccl_price.cc) and its pipelines' messages
// (nccl_messages.cc) share. Internal to this room.
#pragma once

#include "sim/collective/nccl.h"
#include "sim/collective/nccl_stages.h"

namespace ddpsim::collective {

// One step of a ring over a hop, microseconds, as MODEL.md 7.3 has it. `message`: bytes of data at
// once.
double nccl_step_us(const NcclGroup& g, const Profile& p, const NcclHop& hop,
                    nccl::Protocol protocol, std::int64_t message);
// A price's times and bus bandwidth, from microseconds; what limits its transfer is set before.
// `bus_bytes`: of the operation, as nccl-tests counts them.
void set_times(NcclPrice& price, double base, double steps, double fill, double transfer,
               double bus_bytes);
// Bytes on the wire per byte of data.
double nccl_wire_factor(nccl::Protocol p);
// GB/s that one thread block moves at most.
double nccl_block_rate(const NcclGroup& g);
// The slowest link for these bytes on each, as a multiple of `per_byte`.
struct NcclBottleneck {
  double us = 0;
  topology::LinkId link = 0;
};
NcclBottleneck nccl_bottleneck(const NcclGroup& g, const Profile& p, Level level,
                               const std::vector<LinkLoad>& loads);

// Bytes per microsecond that a link carries.
double link_rate_us(const NcclGroup& g, const Profile& p, Level level, topology::LinkId link);

// Bytes and microseconds.
struct NcclPipeTerms {
  NcclPipeline pipeline = NcclPipeline::Tree;
  Operation operation = Operation::AllReduce;
  double piece = 0;       // bytes of the operation that pass together, all channels
  double inside_us = 0;   // latency of a stage inside a node
  double between_us = 0;  // ... between nodes
  double inside = 1;      // bytes that a link carries per byte of its load, in a node
  double between = 1;     // ... between nodes
  double blocks =
      0;  // bytes per microsecond that the thread blocks of a rank move, all channels; 0 = no limit
  double copies = 0;   // ... copy into the switch's window
  bool lines = false;  // hops inside a node hand on line by line (LL, LL128)
  double pace =
      0;  // microseconds per byte that the next piece sets out after the one before, at least
  int window = 0;  // pieces that a connection's buffer holds; 0 = no limit
};
// REQUIRES: the choice is available and not a ring.
NcclPipeTerms nccl_pipe_terms(const NcclGroup& g, const Profile& p, Level level, Operation op,
                              const nccl::Choice& choice, Bytes size);

struct NcclPipeTime {
  double total = 0;    // microseconds, without base
  double inside = 0;   // latencies of one piece's longest way, of hops inside nodes
  double between = 0;  // ... between nodes
};
// All pieces of `size` bytes through all steps. `each`: microseconds that each mover takes for a
// byte.
NcclPipeTime nccl_pipe_time(const NcclPipe& pipe, const NcclPipeTerms& t,
                            const std::vector<double>& each, double size);

}  // namespace ddpsim::collective
