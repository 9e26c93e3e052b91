// What a person pastes into a training script to have a plan.
#pragma once

#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::strategy {

// Public arguments and variables only; none of a plan that a script cannot ask for.
std::vector<std::string> script_lines(const Plan& plan, DeviceKind device);

// The same of a plan that shards: the calls of fully_shard, FullyShardedDataParallel with its
// arguments, or DeepSpeed's zero_optimization. Modules are called as the workload calls its layers.
// `per_host`: devices of a host.
std::vector<std::string> sharded_lines(const Plan& plan, const Workload& w, int ranks,
                                       int per_host);

}  // namespace ddpsim::strategy
