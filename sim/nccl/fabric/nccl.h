// The door to NCCL's collectives on a fabric: what NCCL runs, by its own estimate (sim/nccl), and
// what that takes.
//
//   price = base + sum of the latencies of the steps + fill of the pipeline + bytes over the
//     slowest link (its load / its rate, less the protocol's share)
//
// docs/model.md section 7. Terms: a node is a host (or an NVLink domain), a channel one thread
// block with its own ring or trees.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/profile.h"
#include "sim/nccl/choose.h"
#include "sim/nccl/symmetric.h"
#include "sim/topology/link_loads.h"

namespace ddpsim::nccl {

struct Searches;  // search.h

using topology::LinkLoad;

// A communicator as NCCL builds it. What it holds is this room's own (group.h).
struct Group;
// One, or none. A copy is another one.
class OwnedGroup {
 public:
  OwnedGroup();
  explicit OwnedGroup(Group g);
  OwnedGroup(const OwnedGroup& other);
  OwnedGroup(OwnedGroup&& other) noexcept;
  OwnedGroup& operator=(OwnedGroup other) noexcept;
  ~OwnedGroup();
  explicit operator bool() const { return group_ != nullptr; }
  Group& operator*() { return *group_; }
  const Group& operator*() const { return *group_; }
  Group* operator->() { return group_.get(); }
  const Group* operator->() const { return group_.get(); }

 private:
  std::unique_ptr<Group> group_;
};

// Ranks of each node, in order: of a host, or of a domain where NVLinks join hosts.
std::vector<std::vector<int>> nodes_of(const topology::Fabric& fabric,
                                       const std::vector<DeviceId>& devices);
// NCCL knows no larger nodes (NCCL_TOPO_MAX_NODES in src/include/graph.h of 2.28).
inline constexpr std::size_t kMostOfNode = 576;
// What keeps NCCL from using these devices: a node of more GPUs. Empty message = nothing.
Problem check_nodes(const topology::Fabric& fabric, const std::vector<DeviceId>& devices);
// What ddpsim does not know of two GPUs of a host without peer access: how they reach one another
// where no way through the host's memory is drawn, or NCCL_SHM_DISABLE forbids it.
Problem check_peers(const topology::Fabric& fabric, const std::vector<DeviceId>& devices,
                    const Settings& settings);
// REQUIRES: devices distinct and mutually reachable, check_nodes and check_peers found nothing; the
// fabric outlives
// the result. `settings`: of the environment; `compute_capability`: of the GPUs. `found`: what
// NCCL's own search found, instead of ddpsim's: GPUs by their place in a node, nodes of equal size.
// `known`: of search().
OwnedGroup build(const topology::Fabric& fabric, std::vector<DeviceId> devices, Settings settings,
                 int compute_capability, const Graphs* found = nullptr,
                 const Searches* known = nullptr);
// Other settings of what may be chosen. REQUIRES: the others are the same.
void set_choice(Group& g, const Settings& settings);
// Times that were read off published tables, the same for every machine (docs/model.md 7.3). A
// machine is judged with what the tables of others say (calib/fit/constants.h).
struct Constants {
  Microseconds own_channel{0.155};   // of a launch, each channel: up to 2.21 a work of its own,
  Microseconds batch_channel{0.06};  // ... from 2.22 on one for all
  Microseconds nvls_chunk{0.70};     // until a chunk of NVLS gets going, which no other hides
};
void set_constants(Group& g, const Constants& c);
// What a tuner plugin says, instead of what one said before; none = no plugin.
void set_tuned(Group& g, std::vector<Tuned> tuned);

const topology::Fabric& fabric(const Group& g);
int ranks(const Group& g);
int nodes(const Group& g);
int compute_capability(const Group& g);
Version version(const Group& g);
// As symmetric_kernel() of symmetric.h.
std::optional<SymmetricKernel> symmetric_kernel(const Group& g, Operation op, Bytes size);
// Of hops between nodes. REQUIRES: several nodes.
const std::string& network_transport(const Group& g);
// What it puts on the links: bytes on a link per byte of the operation, as nccl-tests states it.
struct Wiring {
  struct Ring {
    std::vector<int> order;
    double share = 1;  // of the bytes
    int nic = -1;      // between hosts, local index; -1 = each device's own
  };
  std::vector<Ring> rings;
  std::vector<LinkLoad>
      of_rings;  // all-reduce: each hop of each ring carries its share of 2(n-1)/n
  By<Pipeline, std::vector<LinkLoad>> of_pipelines;  // all-reduce; PAT: none
  std::vector<std::uint8_t> transports;              // ascending
};
Wiring wiring(const Group& g);
// The way from one rank to another: topology::find_hop_route, but through the host's memory where
// GPUs have no peer access.
void find_hop_route(const Group& g, int from, int to, int nic, topology::Route& route);

// As choose.h has them.
std::vector<Candidate> candidates(const Group& g, Operation op, std::int64_t bytes);
std::optional<Choice> choose(const Group& g, Operation op, std::int64_t bytes);
Choice complete(const Group& g, Operation op, Algorithm a, Protocol p, std::int64_t bytes,
                int channels = 0);
// Channels that the communicator has for it, of which a tuner may name fewer.
int most_channels(const Group& g, Algorithm a);

struct OperationTime {
  Duration total;
  Duration base;               // once per operation
  Duration steps;              // latencies
  Duration fill;               // of the pipeline: until its slowest stage works without a pause
  Duration transfer;           // bytes over what limits them
  double bus_bytes_per_s = 0;  // bus bandwidth: size * factor / total
  std::string limited_by;  // "latency" (base, steps and fill), or what limits the transfer: a link,
                           // "LL's flags", "thread blocks"
  std::string limiting_transport;    // of that link; "" = no link limits
  std::string step_transport;        // over which the steps' latencies pass, most of them
  std::optional<Pipeline> pipeline;  // whose links the bytes cross; none = the rings'
  double per_byte = 0;  // bytes on the wire per byte of the operation, as a multiple of those loads
};
// REQUIRES: the choice is available; p has every transport of the fabric.
OperationTime time_of(const Group& g, const Profile& p, Level level, Operation op,
                      const Choice& choice, Bytes size);
// Bytes per picosecond of a link. Without GPUDirect (`staging`) a rank's proxy thread copies every
// byte that it sends or receives between the network's buffers and the GPU's.
double link_rate(const Group& g, const Profile& p, Level level, topology::LinkId link);
// The most GPUs of one host.
int most_of_a_host(const Group& g);
// What one process takes to launch an operation on all of its GPUs, one after another: the
// profile's launch of a kernel, and what NCCL writes for each channel.
Duration launches(const Group& g, const Profile& p, const Choice& choice, int gpus_per_process);
// What nccl-tests would print: collectives one after another from one thread a process. Launches of
// the next are made while the last one runs, so that the longer of the two counts.
Duration nccl_tests_time(const Group& g, const Profile& p, const OperationTime& price,
                         const Choice& choice, int gpus_per_process);

}  // namespace ddpsim::nccl
