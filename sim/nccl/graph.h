// NCCL's channel graphs: what its search found for each algorithm, or what a dump of it says. Units: bytes/s, one direction, per channel.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/topology/path_type.h"
#include "sim/units/units.h"

namespace ddpsim::nccl {

using topology::PathType;

struct ChannelGraph {
  int channels = 0;    // of the search, before they are duplicated for the communicator
  double bw_intra = 0;  // bytes/s per channel inside a node
  double bw_inter = 0;  // between nodes
  Duration latency_inter;  // of the network, as its plugin says; NCCL adds it to its own
  PathType type_intra = PathType::Nvl;
  PathType type_inter = PathType::Pix;
  int pattern = 0;  // NCCL_TOPO_PATTERN_*: 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet direct
  bool same_channels = true;
  int crossnic = 0;
  std::vector<std::vector<int>> order;    // of each channel: devices of the node in order; empty = not known
  std::vector<std::array<int, 2>> nics;   // of each channel: NIC that it enters by, and leaves by; empty = none
};

// Index: ring, tree, collnet_chain, nvls, collnet_direct (NCCL's graph ids).
struct Graphs {
  std::array<ChannelGraph, 5> by_algorithm;
};

}  // namespace ddpsim::nccl
