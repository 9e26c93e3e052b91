// What a person pastes into a training script to have a plan.
#pragma once

#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::systems {

// Public arguments and variables only; none of a plan that a script cannot ask for. Of a plan that
// shards: the calls of fully_shard, FullyShardedDataParallel with its arguments, or DeepSpeed's
// zero_optimization. Modules are called as the workload calls its layers. `per_host`: devices of a
// host.
std::vector<std::string> script_lines(const Plan& plan, const Workload& w, DeviceKind device,
                                      int ranks, int per_host);

}  // namespace ddpsim::systems
