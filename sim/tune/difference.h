// What two settings differ in, and whether a person could measure it.
#pragma once

#include <string>

#include "sim/units/units.h"

namespace ddpsim::predict {

// Of two settings under one profile: what they differ in at each level of its ranges. Errors of a
// profile are common to both, so that a difference is better known than either step; it is known to
// no better than where the levels agree, and a profile that was held to executed steps to no better
// than those.
struct Difference {
  Duration mid;  // how much shorter the second is
  Duration low;  // with all ranges at their pessimistic end
  Duration high;
  bool measurable = false;  // every level says the same, by more than executed steps repeat to, and
                            // `mid` is above the profile's own residual
};
// Executed steps of one scenario repeat to about this fraction.
inline constexpr double kRepeats = 0.005;

// "14.0 %".
std::string percent_text(double fraction);
// Of a setting whose gain does not decide: nothing that a person could measure, or nothing that is
// sure. `both`: what the two predict.
std::string undecided(double gain, const std::string& both);

}  // namespace ddpsim::predict
