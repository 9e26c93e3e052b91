// What NCCL's search for channels found on a host: its five graphs, as NCCL_GRAPH_DUMP_FILE has
// them, or as search() makes them. The input of NCCL's cost model. Source: NCCL 2.28.9,
// src/graph/search.cc (ncclTopoGetXmlFromGraphs), src/graph/topo.cc (topoPathTypeStr).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/topology/path_type.h"
#include "sim/units/units.h"

namespace ddpsim::nccl {

using topology::PathType;
inline constexpr std::array<const char*, 12> kPathTypes{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                        "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

// NCCL's numbers of patterns (NCCL_TOPO_PATTERN_*); 2, the split tree, is not searched for.
inline constexpr int kBalancedTree = 1;  // a parent's first child enters at its chain's second GPU
inline constexpr int kPlainTree = 3;
inline constexpr int kRingPattern = 4;
inline constexpr int kNvlsPattern = 5;
inline constexpr int kCollnetDirect = 6;

struct ChannelGraph {
  int channels =
      0;  // of the search, before they are duplicated for the communicator; 0 = NCCL found none
  double bw_intra = 0;     // bytes/s per channel, one direction, inside a node
  double bw_inter = 0;     // ... and between nodes
  Duration latency_inter;  // of the network, as its plugin says; NCCL adds it to its own
  PathType type_intra = PathType::Loc;  // the worst way between two GPUs of a channel
  PathType type_inter = PathType::Loc;  // between a GPU and its NIC
  int pattern = 0;                      // one of those above; 0 = none
  bool same_channels = true;
  int crossnic = 0;
  std::vector<std::vector<int>>
      order;  // of each channel, GPUs by device number, in order; NVLS: its head
  std::vector<std::array<int, 2>>
      nics;  // of each channel, NIC in and NIC out, -1 = none; empty: no channel has any
};

// By NCCL's ids.
inline constexpr std::array<const char*, 5> kGraphNames{"ring", "tree", "collnet_chain", "nvls",
                                                        "collnet_direct"};
struct Graphs {
  std::array<ChannelGraph, 5> by_algorithm;
};

}  // namespace ddpsim::nccl
