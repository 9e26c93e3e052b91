// How PyTorch's ZeroRedundancyOptimizer parts a model's parameters among ranks.
#pragma once

#include <vector>

#include "sim/model/workload.h"

namespace ddpsim::strategy {

// By rank, the parameters that it updates, largest first: each goes, in order of falling size, to
// the rank that has the fewest elements so far; of equals the first wins (_partition_parameters).
std::vector<std::vector<TensorIndex>> parameters_of_ranks(const Workload& w, int ranks);

}  // namespace ddpsim::strategy
