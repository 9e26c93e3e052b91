// NCCL's collectives on a fabric: what each algorithm and protocol costs. NCCL's own estimate
// decides what runs (sim/nccl); this is what it takes.
//
//   price = base + sum of the latencies of the steps + fill of the pipeline + bytes over the
//     slowest link (its load / its rate, less the protocol's share)
//
// sim/MODEL.md section 7. Terms: a node is a host (or an NVLink domain), a channel one thread block
// with its own ring or trees.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/collective/price.h"
#include "sim/model/profile.h"
#include "sim/nccl/choose.h"

namespace ddpsim::collective {

// Bytes per picosecond of a link. Without GPUDirect (`staging`) a thread copies every byte between
// the network's buffers and the GPU's, both ways.
double nccl_link_rate(const topology::Fabric& fabric, const Profile& p, Level level,
                      topology::LinkId link);
// Ranks of each node, in order: of a host, or of a domain where NVLinks join hosts.
std::vector<std::vector<int>> nccl_nodes(const topology::Fabric& fabric,
                                         const std::vector<int>& devices);
// NCCL knows no larger nodes (NCCL_TOPO_MAX_NODES in src/include/graph.h of 2.28).
inline constexpr std::size_t kMostOfNcclNode = 576;
// What keeps NCCL from using these devices: a node of more GPUs. Empty message = nothing.
Problem check_nccl_nodes(const topology::Fabric& fabric, const std::vector<int>& devices);
// REQUIRES: devices distinct and mutually reachable, check_nccl_nodes found nothing. `settings`: of
// the environment; `compute_capability`: of the GPUs. `found`: what NCCL's own search found,
// instead of ddpsim's: GPUs by their place in a node, nodes of equal size.
NcclGroup make_nccl_group(const topology::Fabric& fabric, std::vector<int> devices,
                          nccl::Settings settings, int compute_capability,
                          const nccl::Graphs* found = nullptr);

struct NcclPrice {
  Duration total;
  Duration base;               // once per operation
  Duration steps;              // latencies
  Duration fill;               // of the pipeline: until its slowest stage works without a pause
  Duration transfer;           // bytes over what limits them
  double bus_bytes_per_s = 0;  // bus bandwidth: size * factor / total
  std::string limited_by;  // "latency" (base, steps and fill), or what limits the transfer: a link,
                           // "LL's flags", "thread blocks"
  std::string limiting_transport;        // of that link; "" = no link limits
  std::string step_transport;            // over which the steps' latencies pass, most of them
  std::optional<NcclPipeline> pipeline;  // whose links the bytes cross; none = the rings'
  double per_byte = 0;  // bytes on the wire per byte of the operation, as a multiple of those loads
};
// REQUIRES: the choice is available; p has every transport of the fabric.
NcclPrice nccl_price(const NcclGroup& g, const Profile& p, Level level, Operation op,
                     const nccl::Choice& choice, Bytes size);

// The same group as a communicator of a job: its all-reduces and broadcasts are what NCCL chooses,
// at nccl_price. REQUIRES: as make_nccl_group; the settings leave something to choose at every
// size.
Communicator make_nccl_communicator(const topology::Fabric& fabric, std::vector<int> devices,
                                    const nccl::Settings& settings, int compute_capability);
// AllReduce, AllGather, ReduceScatter or Broadcast. REQUIRES: c.nccl.
Price nccl_collective(const Communicator& c, const Profile& p, Level level, Operation op,
                      Bytes size);

// What nccl-tests would print: collectives one after another from one thread a process. Launches of
// the next are made while the last one runs, so that the longer of the two counts.
Duration nccl_tests_time(const Profile& p, const NcclPrice& price, int gpus_per_process);

}  // namespace ddpsim::collective
