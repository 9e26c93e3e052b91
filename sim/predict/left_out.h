// What an answer is not about: work of a script or a trace that the workload does not say, and
// another PyTorch's operators.
#pragma once

#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::predict {

// Sentences for Prediction::extrapolated.
void say_what_is_left_out(const Workload& w, const Plan& plan, std::vector<std::string>& out);

}  // namespace ddpsim::predict
