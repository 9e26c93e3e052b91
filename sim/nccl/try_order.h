// What a channel may go on with, in the order in which NCCL's search tries it. Internal to pack.cc.
#pragma once

#include <array>
#include <vector>

#include "sim/nccl/capacity.h"

namespace ddpsim::nccl {

// A GPU and a NIC, -1 = none.
using Option = std::array<int, 2>;

class TryOrder {
 public:
  TryOrder(const Node& node, const Wanted& wanted) : node_(node), wanted_(wanted) {}

  // For the channel after these: its first GPU, and the NIC that it comes by.
  std::vector<Option> starts(const std::vector<Channel>& channels, const Capacity& capacity) const;
  // For channel `c`, begun after these: its next GPU, which it has not visited.
  std::vector<Option> next_gpus(const Channel& c, const std::vector<Channel>& channels,
                                const std::vector<char>& visited, const Capacity& capacity) const;
  // For a ring that may leave by another NIC: near ones.
  std::vector<Option> crossings(const Channel& c, const std::vector<Channel>& channels) const;

 private:
  bool ring() const { return wanted_.shape == Shape::Ring; }
  bool near(int gpu, int nic) const;
  PathType path(int a, int b) const { return nth(node_.gpu_path, a * node_.gpus + b); }

  const Node& node_;
  const Wanted& wanted_;
};

}  // namespace ddpsim::nccl
