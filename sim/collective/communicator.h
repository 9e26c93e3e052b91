// A group of ranks on a Fabric, as collectives see it: ring orders, what each link carries, what each hop costs.
#pragma once

#include <vector>

#include "sim/model/plan.h"
#include "sim/topology/fabric.h"

namespace ddpsim::collective {

// Bytes that cross a link per byte that the pattern moves over each of its hops.
struct LinkLoad {
  topology::LinkId link = 0;
  double per_byte = 0;
};

struct Hop {
  int from = 0;  // rank
  int to = 0;
  std::uint8_t transport = 0;  // index into Fabric::transports
  Duration wire_latency;
};

struct Communicator {
  const topology::Fabric* fabric = nullptr;
  std::vector<int> devices;  // of each rank
  // Cyclic orders of ranks, each carrying an equal share. NCCL: one per NIC of a host where it spans hosts, so that every NIC is used; ranks of
  // a host are neighbours. Gloo: one, rank r sends to rank r - 1. Tcp: one, to rank r + 1.
  std::vector<std::vector<int>> rings;
  std::vector<LinkLoad> ring_load;  // mean over rings; ascending by link
  std::vector<Hop> ring_hops;       // of the first ring, in its order
  // Broadcast from rank 0. NCCL: along the ring (no last hop). Gloo: binomial tree, one round after the other.
  struct TreeRound {
    std::vector<LinkLoad> load;  // ascending by link
    std::vector<Hop> hops;       // of each transport, the one with the slowest wire
  };
  std::vector<TreeRound> tree;
  std::vector<LinkLoad> tree_load;  // mean over rounds
  std::vector<std::uint8_t> transports;  // that any hop uses, ascending
  Backend backend = Backend::Nccl;
  int ranks() const { return static_cast<int>(devices.size()); }
};

// REQUIRES: devices distinct and mutually reachable. Cost grows with ranks and route lengths.
Communicator make_communicator(const topology::Fabric& fabric, std::vector<int> devices, Backend backend);

// Rank pairs (from, to) of round `round` of the binomial tree rooted at rank 0: vrank < 2^round sends to vrank + 2^round.
std::vector<std::pair<int, int>> tree_round(int ranks, int round);

}  // namespace ddpsim::collective
