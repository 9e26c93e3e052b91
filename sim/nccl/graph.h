// What NCCL's search for channels found on a host: its five graphs, as NCCL_GRAPH_DUMP_FILE has
// them, or as search() makes them. The input of NCCL's cost model. Source: NCCL 2.28.9,
// src/graph/search.cc (ncclTopoGetXmlFromGraphs), src/graph/topo.cc (topoPathTypeStr).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/nccl/names.h"
#include "sim/topology/path_type.h"
#include "sim/units/convert.h"

namespace ddpsim::nccl {

using topology::kPathTypes;
using topology::PathType;
template <>
inline constexpr std::size_t kCount<PathType> = kPathTypes.size();

struct ChannelGraph {
  int channels =
      0;  // of the search, before they are duplicated for the communicator; 0 = NCCL found none
  BytesPerSecond bw_intra;  // per channel, one direction, inside a node
  BytesPerSecond bw_inter;  // ... and between nodes
  Duration latency_inter;   // of the network, as its plugin says; NCCL adds it to its own
  PathType type_intra = PathType::Loc;  // the worst way between two GPUs of a channel
  PathType type_inter = PathType::Loc;  // between a GPU and its NIC
  Pattern pattern = Pattern::None;
  bool same_channels = true;
  int crossnic = 0;
  std::vector<std::vector<int>>
      order;  // of each channel, GPUs by device number, in order; NVLS: its head
  std::vector<std::array<int, 2>>
      nics;  // of each channel, NIC in and NIC out, -1 = none; empty: no channel has any
  bool operator==(const ChannelGraph&) const = default;
};

using Graphs = By<GraphId, ChannelGraph>;

}  // namespace ddpsim::nccl
