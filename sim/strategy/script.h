// What a person pastes into a training script to have a plan.
#pragma once

#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::strategy {

// Public arguments and variables only; none of a plan that a script cannot ask for.
std::vector<std::string> script_lines(const Plan& plan, DeviceKind device);

}  // namespace ddpsim::strategy
