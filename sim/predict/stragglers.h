// What the slowest of several ranks costs: their computation varies from step to step and from GPU
// to GPU, and a collective waits for all of them.
#pragma once

#include "sim/model/plan.h"
#include "sim/model/profile.h"

namespace ddpsim::predict {

// Mean of the largest of n standard normal numbers, within 1.3 % (exact for 2^k and 3 * 2^k).
// REQUIRES: n >= 1.
double expected_largest(int n);

// How many times as long the slowest rank of a step computes as the slowest would if none varied:
// of alike ranks 1 + cv * expected_largest(ranks); a rank that is slower by itself (slow_ranks)
// leaves the others less often the slowest. 1 where the scenario says itself how ranks vary
// (jitter), or that they do not (stragglers: false).
double straggling(const Profile& p, const Scenario& s, Level level);

// What that adds to a step.
struct Stragglers {
  int ranks = 0;
  double cv = 0;      // of a rank's computation
  double factor = 1;  // straggling()
  Duration time;
};

}  // namespace ddpsim::predict
