// What each tenth of a step is spent on.
#pragma once

#include <array>
#include <string>

#include "sim/explain/played_step.h"

namespace ddpsim::predict {

// A tenth of the step, shares of it.
struct Decile {
  double computing = 0;
  double communicating = 0;  // a collective is in flight
  double link = 0;  // what the busiest link of the step would carry if each collective's bytes
                    // passed evenly while it is in flight, over its rate: more than 1 where
                    // collectives share it, or a token bucket's saved burst passes at its peak rate
  std::string decides;  // "computation", "bandwidth", "latency of collectives", "host thread"
};

struct Tenths {
  std::array<Decile, 10> of;
  LinkUse link;  // the busiest of the step
};
// REQUIRES: options.known.
Tenths tenths_of(const PlayedStep& step, const Question& q, const Options& options);

}  // namespace ddpsim::predict
