// DeepSpeed ZeRO, stages 1 to 3: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kZeroSystem{"zero"};

SystemRecord zero_record();

}  // namespace ddpsim::systems
