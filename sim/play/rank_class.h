// Ranks that behave alike are simulated once.
#pragma once

#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::predict {

struct RankClass {
  std::vector<int> ranks;
  double factor = 1;                 // of compute time
  std::vector<double> step_factors;  // by steady step, on top; empty = 1
};

// fold = false: one class a rank. Classes are in the order of their first ranks.
std::vector<RankClass> fold_ranks(const Scenario& s, bool fold);

}  // namespace ddpsim::predict
