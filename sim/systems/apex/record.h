// NVIDIA Apex's DistributedDataParallel: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kApexSystem{"apex"};

SystemRecord apex_record();

}  // namespace ddpsim::systems
