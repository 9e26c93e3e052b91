// Workers that go at their own pace: how fast each is, and how stale what it computes with.
#pragma once

#include <optional>
#include <vector>

#include "sim/play/simulate.h"

namespace ddpsim::predict {

struct Paces {
  std::vector<double> steps_per_s;  // of each worker
  Duration step;                    // workers / steps a second of all of them
  // Updates of other workers between a worker's pull and its own update: at the same time, one
  // half.
  double staleness_mean = 0;
  double staleness_most = 0;
  std::vector<double> staleness_share;  // of so many (rounded up), of all updates
};

// Steps to play so that the slowest of these ends some while the fastest still goes on, and fast
// ones have come as far ahead as they may.
int steps_apart(const std::vector<RankClass>& classes, std::int64_t staleness);

// How many steps each rank takes until the slowest is in its last ones; nothing where all were at
// work together for some of those that were played.
std::optional<int> steps_to_meet(const Simulation& s);

// How much of each class's step lies in the second half of what is played, until the first worker
// has no more; a step begins where the one before it of the same class ended. Step after step,
// class after class. REQUIRES: classes of one rank each, simulated with steps_apart() steps.
std::vector<double> counted_of(const Simulation& s);
// Of these. REQUIRES: `counted` is counted_of(s).
Paces paces_of(const Simulation& s, const std::vector<RankClass>& classes,
               const std::vector<double>& counted);

}  // namespace ddpsim::predict
