// One graph of NCCL's search: which channels of one shape a node carries. Internal to the search.
// Source: NCCL src/graph/search.cc (ncclTopoCompute).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/nccl/walk.h"

namespace ddpsim::nccl {

// A channel's speeds, from the fastest down.
std::vector<GBps> speeds(const Machine& m, bool one_node);

// One graph: speeds from the fastest down; for each of them the same order of GPUs for every
// channel and different ones, simpler trees, ways between GPUs and to NICs from the nearest on,
// rings that cross. The first that is found stays unless a later one carries more in all. Then fast
// channels are split, and what is found is tried with more speed.
//
// What NCCL finds, in less time: a look that can find nothing better is left out, and one that was
// made before is not made again (it finds nothing, and uses as many tries). Whether NCCL runs out
// of tries is then known within bounds only. While it may have, nothing but hopeless looks may
// follow, which change nothing; where another one would, all is done again as NCCL does it.
class Finder {
 public:
  // `in_full`: try by try as NCCL does it, and slower for it.
  Finder(const Node& node, const Machine& machine, const Reach& reach, bool network,
         bool in_full = false);

  // `least`, `most`: channels.
  Channels find(Shape shape, int least, int most);

 private:
  static constexpr int kTries = 1 << 14;
  static constexpr int kTriesOfTheSame = 1 << 8;
  static constexpr std::int64_t kTriesInAll = 1 << 19;

  // A look that left `best_` as it was, and the tries that it left.
  struct Vain {
    Channels wanted;
    int tries = 0;
  };

  void find_once(Shape shape, int least, int most);
  void find_limits();
  int look();
  bool all_is_taken() const { return best_.count * best_.inter >= reach_.total() - kSlack; }
  void slower();
  bool next_limits();
  void duplicate();
  void faster();

  const Node& node_;
  const Machine& machine_;
  const Reach& reach_;
  bool network_;
  bool in_full_;
  std::vector<GBps> speeds_;
  Walk walk_;
  PathType near_intra_ = PathType::Loc;
  PathType near_inter_ = PathType::Loc;
  PathType far_intra_ = PathType::Loc;
  PathType far_inter_ = PathType::Loc;
  Shape asked_ = Shape::Ring;
  std::size_t at_ = 0;          // speed
  std::int64_t left_ = 0;       // tries; at least
  std::int64_t most_left_ = 0;  // at most
  bool all_ = false;            // as NCCL does it, step by step
  bool was_cut_ = false;
  bool may_be_over_ = false;  // NCCL may have ended before
  bool in_doubt_ = false;
  std::vector<Vain> vain_;
  Channels now_;
  Channels best_;
};

}  // namespace ddpsim::nccl
