// Local SGD and DiLoCo: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kLocalSgdSystem{"local_sgd"};

SystemRecord local_sgd_record();

}  // namespace ddpsim::systems
