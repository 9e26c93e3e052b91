// PyTorch nn.DataParallel: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kDataParallelSystem{"data_parallel"};

SystemRecord data_parallel_record();

}  // namespace ddpsim::systems
