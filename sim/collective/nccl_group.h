// A communicator as NCCL builds it: nodes, channels, and what each algorithm puts on the links.
#pragma once

#include <array>
#include <vector>

#include "sim/nccl/choose.h"
#include "sim/topology/fabric.h"

namespace ddpsim::collective {

// Bytes that cross a link per byte that the pattern moves over each of its hops.
struct LinkLoad {
  topology::LinkId link = 0;
  double per_byte = 0;
};

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
  // Ring orders over all nodes; channels that are alike are one, with their share of the bytes.
  struct Ring {
    std::vector<int> order;
    double share = 1;
    int nic = -1;  // between hosts, local index; -1 = each device's own
  };
  std::vector<Ring> rings;
  std::vector<LinkLoad> ring;       // all-reduce: each hop of each ring carries its share of 2(n-1)/n
  std::vector<LinkLoad> tree;       // all-reduce: double binary tree, chains inside nodes
  std::vector<LinkLoad> nvls;       // all-reduce inside nodes through the switch
  std::vector<LinkLoad> nvls_tree;  // ... and trees between them
  std::array<std::vector<LinkLoad>, 4> every;  // the same four, of every link
  int ranks() const { return static_cast<int>(devices.size()); }
};

}  // namespace ddpsim::collective
