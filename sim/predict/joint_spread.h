// How far all kernels of a step are off together, from how far each shape alone is.
#pragma once

#include "sim/model/profile.h"
#include "sim/model/workload.h"

namespace ddpsim::predict {

// The profile with the spreads of its measured kernels (sim/model/kernels.h) made as narrow as that
// of this workload's sum. A spread is of one shape that the fit did not see. In a step, kernels
// that share fitted constants (products of a precision, convolutions of a precision, one operation
// in one direction) err together, and those whose constants were fitted apart err apart: the parts'
// deviations add up as the root of the sum of their squares. So does what whole steps were off
// (common or common_conv); the result's `common` is what is left of it. As it is where it has no
// measured kernels, or the workload brings its times. How much ranks vary is independent of how
// long computation is: rank_cv's ends are what it adds to computation's, as squares.
Profile with_joint_spread(const Workload& w, const Profile& p, int ranks);

}  // namespace ddpsim::predict
