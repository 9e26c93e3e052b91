// Kernels of a GPU that nobody measured here, from those of one that was and both datasheets.
// Equations: sim/MODEL.md, 2.6.
#pragma once

#include "sim/model/profile.h"

namespace ddpsim::predict {

// What `from.costs` would be on `to`, by what limits a kernel:
//   products   the peak rate of their precision; what a wave of tiles and a kernel cost beside
//   their
//              operations takes as many clocks
//   memory     the bandwidth, or what the SMs can ask for at once, as far as the measured kernel
//              stayed below its own GPU's bandwidth
//   fp32 convolutions where no TF32 is: fp32 products, without conversions; 3 x 3 by Winograd
//   precisions that `to` does not offer: none
// `common` of the result is what all kernels together were off where published steps could tell.
// REQUIRES: from.costs; both say SMs and clock.
KernelCosts carried(const Profile& from, const Profile& to);

}  // namespace ddpsim::predict
