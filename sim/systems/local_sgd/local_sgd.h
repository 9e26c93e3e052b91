// Local SGD and DiLoCo: what its record is made of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// A step is a round, of accumulation_steps batches with an update each.
Program lower_local_sgd(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> local_sgd_words();
std::vector<RankGroups> local_sgd_groups(const Plan& plan, int ranks, int per_host);
Problem validate_local_sgd(const Plan& p, const Workload& w, DeviceKind device);
Problem check_local_sgd_ranks(const Plan& plan, int ranks, int per_host);

}  // namespace ddpsim::systems
