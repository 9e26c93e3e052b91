// Whether what a question simulates fits into the clock.
#pragma once

#include <string>

#include "sim/door/loader.h"

namespace ddpsim::door {

// Throws InputError that blames `file` where the simulated steps may last longer than ddpsim
// counts. `longer`: than its Profile says.
void check_horizon(const Asked& l, const std::string& file, double longer = 1);

}  // namespace ddpsim::door
