// PyTorch's ZeroRedundancyOptimizer over DistributedDataParallel: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kZeroRedundancySystem{"zero_redundancy"};

SystemRecord zero_redundancy_record();

}  // namespace ddpsim::systems
