// Horovod's DistributedOptimizer: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kHorovodSystem{"horovod"};

SystemRecord horovod_record();

}  // namespace ddpsim::systems
