// What Horovod's autotuner would try and settle on, by the simulator's steps as its scores.
#pragma once

#include <string>
#include <vector>

#include "sim/predict/predict.h"
#include "sim/systems/horovod/autotune.h"

namespace ddpsim::predict {

struct AutotuneCourse {
  struct Tried {
    systems::AutotuneSetting setting;
    Duration step;
    double score = 0;  // bytes per microsecond
  };
  std::vector<Tried> tried;  // in order
  systems::AutotuneSetting best;
  Plan tuned;  // with it
  Duration tuned_step;
  Duration now;            // of the plan as it is, without tuning
  std::int64_t steps = 0;  // until it has settled, with those that warm up
  Duration lasts;          // as many
  std::vector<std::string> notes;
};

// The plan with what the tuner sets. `hierarchical` and `torus` only where the question can have
// them.
Plan with_autotuned(const Plan& plan, const systems::AutotuneSetting& s);

// REQUIRES: check(q) found nothing, the plan is Horovod's.
AutotuneCourse autotune(const Question& q, const Options& options, std::uint64_t seed);

}  // namespace ddpsim::predict
