// Megatron-LM's DistributedDataParallel and distributed optimizer: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kMegatronSystem{"megatron"};

SystemRecord megatron_record();

}  // namespace ddpsim::systems
