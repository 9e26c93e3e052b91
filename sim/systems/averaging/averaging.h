// Plain gradient averaging: what its record is made of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// One collective per parameter, or one for all.
Program lower_averaging(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> averaging_words();

}  // namespace ddpsim::systems
