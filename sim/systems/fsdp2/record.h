// PyTorch fully_shard (FSDP2): the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kFsdp2System{"fsdp2"};

SystemRecord fsdp2_record();

}  // namespace ddpsim::systems
