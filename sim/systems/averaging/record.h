// Plain c10d gradient averaging after backward: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kAveragingSystem{"averaging"};

SystemRecord averaging_record();

}  // namespace ddpsim::systems
