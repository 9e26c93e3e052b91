// A question's Program, as its plan lowers it on its cluster.
#pragma once

#include "sim/predict/predict.h"
#include "sim/strategy/lower.h"

namespace ddpsim::predict {

// `times`: of the question's workload on its profile (step_times).
inline Program lowered(const Question& q, const StepTimes& times,
                       strategy::Steps steps = strategy::Steps::All) {
  return strategy::lower(
      {q.workload, times, q.profile.kind, q.scenario.ranks, q.fabric.cluster().devices_per_host},
      q.scenario.plan, steps);
}

}  // namespace ddpsim::predict
