// NCCL's collectives on a fabric: what each algorithm and protocol costs. NCCL's own estimate decides what runs (sim/nccl); this is what it takes.
//
//   price = base + sum of the latencies of the steps + fill of the pipeline + bytes over the slowest link (its load / its rate, less the protocol's share)
//
// sim/MODEL.md section 7. Terms: a node is a host (or an NVLink domain), a channel one thread block with its own ring or trees.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/collective/communicator.h"
#include "sim/model/profile.h"
#include "sim/nccl/choose.h"

namespace ddpsim::collective {

// The slowest hop of one kind.
struct NcclHop {
  bool exists = false;
  std::uint8_t transport = 0;
  Duration wire;
  Bytes eager;         // smallest of its links that has one
  double rate = 0;     // raw, bytes/s, of its slowest link
  double staging = 0;  // bytes/s one way; 0 = not staged
};

// A communicator as NCCL builds it. Loads are bytes on a link per byte of the operation (its size as nccl-tests states it), all channels together; of links
// that are alike and carry alike, the first.
struct NcclGroup {
  const topology::Fabric* fabric = nullptr;
  std::vector<int> devices;
  nccl::System system;
  nccl::Settings settings;
  std::vector<std::vector<int>> nodes;  // ranks of each node, in order
  NcclHop intra;
  NcclHop inter;
  std::vector<LinkLoad> ring;       // all-reduce: each hop of each ring carries its share of 2(n-1)/n
  std::vector<LinkLoad> tree;       // all-reduce: double binary tree, chains inside nodes
  std::vector<LinkLoad> nvls;       // all-reduce inside nodes through the switch
  std::vector<LinkLoad> nvls_tree;  // ... and trees between them
  int ranks() const { return static_cast<int>(devices.size()); }
};

// REQUIRES: devices distinct and mutually reachable. `settings`: of the environment; `compute_capability`: of the GPUs.
NcclGroup make_nccl_group(const topology::Fabric& fabric, std::vector<int> devices, nccl::Settings settings, int compute_capability);

struct NcclPrice {
  Duration total;
  Duration base;      // once per operation
  Duration steps;     // latencies
  Duration fill;      // of the pipeline: until its slowest stage works without a pause
  Duration transfer;  // bytes over what limits them
  double bus_bytes_per_s = 0;  // bus bandwidth: size * factor / total
  std::string limited_by;      // "latency" (base, steps and fill), or what limits the transfer: a link, "LL's flags", "thread blocks"
  std::string limiting_transport;  // of that link; "" = no link limits
  std::string step_transport;      // over which the steps' latencies pass, most of them
};
// REQUIRES: the choice is available; p has every transport of the fabric.
NcclPrice nccl_price(const NcclGroup& g, const Profile& p, Level level, Operation op, const nccl::Choice& choice, Bytes size);

// What nccl-tests would print: collectives one after another from one thread a process. Launches of the next are made while the last one runs, so that the
// longer of the two counts.
Duration nccl_tests_time(const Profile& p, const NcclPrice& price, int gpus_per_process);

}  // namespace ddpsim::collective
