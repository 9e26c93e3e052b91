// What a message costs beside its bytes where hosts share a machine is how that machine schedules
// its threads: it differs between occasions by up to an order of magnitude, and a profile gives the
// range that was seen (Occasions, sim/model/profile.h). What that makes of a step.
#pragma once

#include <optional>
#include <string>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

struct MessageRange {
  Duration low;          // the step with messages as quick as they were seen
  Duration high;         // as slow
  std::string sentence;  // for Prediction::extrapolated; empty: they move the step by at most 1 %
};

// Nothing where the profile has no range for a transport of the question's fabric. `step`: the
// question's own, without jitter, with these options.
std::optional<MessageRange> message_range(const Question& q, Duration step, const Options& options);

// Gloo on hosts that share a machine, with a measured profile that has no range: a sentence for
// Prediction::extrapolated where messages are more than 1 % of the step; otherwise empty.
std::string seen_on_one_occasion(const Question& q, Duration step, const Options& options);

}  // namespace ddpsim::predict
