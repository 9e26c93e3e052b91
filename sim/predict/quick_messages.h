// What Gloo's messages cost beside their bytes, where ranks share a machine, is how that machine
// scheduled their threads on the occasion on which the profile was measured. Other occasions differ
// by more than an order of magnitude, so a prediction that rests on it says so.
#pragma once

#include <optional>
#include <string>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

// The step with messages as quick as they have been seen; nothing where that is within 1 % of
// `step` or the profile's messages were not measured so. `step`: the question's own, with these
// options.
std::optional<Duration> with_quick_messages(const Question& q, Duration step, Options options);
// One sentence for Prediction::extrapolated.
std::string uncertain_messages(Duration quick);

}  // namespace ddpsim::predict
