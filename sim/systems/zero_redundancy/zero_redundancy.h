// How PyTorch's ZeroRedundancyOptimizer parts a model's parameters among ranks.
#pragma once

#include <vector>

#include "sim/model/workload.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// Optimizer state in shards.
Program lower_zero_redundancy(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> zero_redundancy_words();
Problem validate_zero_redundancy(const Plan& p, const Workload& w, DeviceKind device);

// By rank, the parameters that it updates, largest first: each goes, in order of falling size, to
// the rank that has the fewest elements so far; of equals the first wins (_partition_parameters).
std::vector<std::vector<TensorIndex>> parameters_of_ranks(const Workload& w, int ranks);

}  // namespace ddpsim::systems
