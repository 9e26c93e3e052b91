// As many channels as a node carries at one speed: paths through all of its GPUs whose links still
// have that much to give. What search() tries, speed after speed. Source: NCCL src/graph/search.cc
// (ncclTopoSearchRec and what it calls); sim/MODEL.md section 7.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/nccl/search.h"

namespace ddpsim::nccl {

inline constexpr std::size_t kMostChannels = 32;
inline constexpr double kSlack = 1e-6;  // sums of speeds against a capacity

struct Channel {
  std::vector<int> order;
  std::array<int, 2> nics{-1, -1};
};

enum class Shape : std::uint8_t {
  Ring,
  Balanced,  // a tree whose first child enters at its chain's second GPU: both take half of what
             // leaves the node
  Plain,     // a tree that enters and leaves at its chain's first GPU
};

// What a channel may take.
struct Limits {
  PathType intra = PathType::Dis;
  PathType inter = PathType::Dis;
  std::size_t channels = kMostChannels;
  bool same = false;  // every channel goes through the GPUs in the first one's order
  int cross = 0;  // a ring's way out may be another NIC than its way in; 2: of each two channels
                  // one goes in where the other goes out
};

struct Wanted {
  Shape shape = Shape::Ring;
  bool network = false;  // a channel comes and leaves by NICs
  Limits limits;
};

// The longest list of channels that a search through all of them finds before its tries are used
// up. Speeds in GB/s, inside the node and to its NICs. `worth`: a result of this many channels or
// fewer is of no use; then nothing is searched and the result may be empty.
std::vector<Channel> pack(const Node& node, const Machine& m, const Wanted& wanted, double intra,
                          double inter, double worth = 0);

}  // namespace ddpsim::nccl
