// PyTorch DistributedDataParallel: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kDdpSystem{"pytorch_ddp"};

SystemRecord ddp_record();

}  // namespace ddpsim::systems
