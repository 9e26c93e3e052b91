// Gossip SGD: the door of this folder.
#pragma once

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

SystemRecord gossip_record();

}  // namespace ddpsim::systems
