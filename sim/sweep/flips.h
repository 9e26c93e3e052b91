// Points of a sweep that are slower than their neighbour with a slower link, because NCCL does
// something else there: it chooses by its own estimate, and its search finds other channels.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/sweep/rows.h"

namespace ddpsim::sweep {

class SweepFlips {
 public:
  // Rows in any order. Beyond kMost of them nothing is kept, and nothing said.
  void add(const SweepRow& row);
  // A line for each of such points, the first few; what they have in common before them. Empty:
  // there are none, or no axis is one link's bandwidth.
  std::vector<std::string> lines(const Sweep& s) const;

  static constexpr std::size_t kMost = 200'000;

 private:
  struct Seen {
    Duration step;
    std::string algorithm;
  };
  std::map<std::int64_t, Seen> seen_;  // by point
  bool too_many_ = false;
};

}  // namespace ddpsim::sweep
