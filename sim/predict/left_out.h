// What an answer is not about: work of a script or a trace that the workload does not say, and
// another PyTorch's operators.
#pragma once

#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::predict {

// A sentence each: of Prediction::extrapolated, and of other answers about the same question.
std::vector<std::string> what_is_left_out(const Workload& w, const Plan& plan);

}  // namespace ddpsim::predict
