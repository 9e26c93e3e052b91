// A question's Program, as its plan lowers it on its cluster.
#pragma once

#include "sim/predict/host_memory.h"
#include "sim/predict/predict.h"
#include "sim/predict/server_places.h"
#include "sim/strategy/lower.h"

namespace ddpsim::predict {

// `times`: of the question's workload on its profile (step_times), at this level.
inline Program lowered(const Question& q, const StepTimes& times,
                       strategy::Steps steps = strategy::Steps::All, Level level = Level::Mid) {
  strategy::TimedWorkload timed{q.workload, times, q.profile.kind, q.scenario.ranks,
                                q.fabric.cluster().devices_per_host};
  timed.winograd = q.profile.kind == DeviceKind::Gpu &&
                   q.profile.compute.peak_flops[static_cast<std::size_t>(Precision::Tf32)] == 0;
  if (uses_host_memory(q)) timed.host_memory = host_memory(q, level);
  if (q.scenario.plan.system == System::ParameterServer)
    timed.host_memory = server_memory(q, level);
  return strategy::lower(timed, q.scenario.plan, steps);
}

}  // namespace ddpsim::predict
