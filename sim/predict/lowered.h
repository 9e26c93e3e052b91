// A question's Program, as its plan lowers it on its cluster.
#pragma once

#include "sim/predict/host_memory.h"
#include "sim/predict/predict.h"
#include "sim/predict/server_places.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/base/record.h"

namespace ddpsim::predict {

// `times`: of the question's workload on its profile (step_times), at this level.
inline Program lowered(const Question& q, const StepTimes& times,
                       systems::Steps steps = systems::Steps::All, Level level = Level::Mid) {
  systems::TimedWorkload timed{q.workload, times, q.profile.kind, q.scenario.ranks,
                               q.fabric.cluster().devices_per_host};
  timed.winograd =
      q.profile.kind == DeviceKind::Gpu && q.profile.compute.peak_flops[Precision::Tf32] == 0;
  if (uses_host_memory(q)) timed.host_memory = host_memory(q, level);
  if (const auto servers = servers_of(q.scenario.plan))
    timed.host_memory = server_memory(q, *servers, level);
  return systems::lower(timed, q.scenario.plan, steps);
}

}  // namespace ddpsim::predict
