// Parameter servers: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

inline constexpr System kParameterServerSystem{"parameter_server"};

SystemRecord parameter_server_record();

}  // namespace ddpsim::systems
