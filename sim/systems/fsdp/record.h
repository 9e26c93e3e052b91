// PyTorch FullyShardedDataParallel (FSDP1): the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kFsdpSystem{"fsdp"};

SystemRecord fsdp_record();

}  // namespace ddpsim::systems
