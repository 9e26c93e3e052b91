// What a node's GPUs and NICs reach, by which way, before any channel takes of it: rates, hops, who
// is near whom, and the order in which NICs are tried. Internal to the search. Source: NCCL
// src/graph/topo.cc (ncclTopoGetLocal, ncclTopoGetLocalNet, ncclTopoGetLocalGpu),
// src/graph/search.cc (ncclTopoSelectNets, ncclTopoSearchInit).
#pragma once

#include <array>
#include <vector>

#include "sim/nccl/nth.h"
#include "sim/nccl/search.h"

namespace ddpsim::nccl {

// A way's least link, and its links.
struct Reached {
  GBps rate;
  int hops = 0;
};

class Reach {
 public:
  // `network`: NICs are used; else nothing is known of them.
  Reach(const Node& node, bool network);

  const Reached& between(int a, int b) const { return nth(between_, a * node_.gpus + b); }
  const Reached& to_nic(int gpu, int nic) const { return out_[node_.at(gpu, nic)]; }
  const Reached& from_nic(int gpu, int nic) const { return in_[node_.at(gpu, nic)]; }

  // The GPUs that a NIC reaches fastest, and of these nearest; of them the one whose own NIC it is,
  // -1 = none.
  const std::vector<int>& gpus_near(int nic) const { return nth(near_nic_, nic); }
  int own_gpu(int nic) const { return nth(own_gpu_, nic); }
  // NICs in the order in which they are tried: each GPU's own ones, then others no farther than
  // `far`. Of one GPU, or (-1) of all.
  const std::vector<int>& nics(int gpu, PathType far) const { return tried_[gpu + 1][far]; }
  // The fastest way of a GPU: to NICs, or to other GPUs.
  GBps fastest(bool network) const;
  // All that leaves a GPU: its NVLinks together, or its PCIe link.
  GBps total() const { return total_; }

 private:
  int own_nic(int gpu, int channel) const;
  std::vector<int> order_of_nics(int gpu, PathType far) const;
  void find_total();

  const Node& node_;
  std::vector<Reached> between_;
  std::vector<Reached> out_;
  std::vector<Reached> in_;
  std::vector<std::vector<int>> near_gpu_;  // NICs
  std::vector<std::vector<int>> near_nic_;  // GPUs
  std::vector<int> own_gpu_;
  std::vector<By<PathType, std::vector<int>>> tried_;
  GBps total_;
};

}  // namespace ddpsim::nccl
