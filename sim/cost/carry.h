// Kernels of a GPU that nobody measured here, from those of one that was and both datasheets.
// Equations: docs/model.md, 5.1.
#pragma once

#include "sim/model/profile.h"

namespace ddpsim::predict {

// Operands that reach the tensor cores of an SM before Ampere, whose threads copy them through
// registers: multiply-adds of halves a clock. Ampere and Ada copy to shared memory asynchronously:
// twice as many; from Hopper on, whose kernels are the measured ones, tensor cores read them there.
// Fitted to published steps of one GPU (calib/published/steps; reports/gpu_steps.md leaves out each
// generation and each source), the only number here that is.
inline constexpr double kFed = 400;

// What `from.costs` would be on `to`, by what limits a kernel:
//   products   the peak rate of their precision; what a wave of tiles and a kernel cost beside
//   their
//              operations takes as many clocks
//   memory     the bandwidth, or what the SMs can ask for at once, as far as the measured kernel
//              stayed below its own GPU's bandwidth
//   FlashAttention-2  the SMs and their clock
//   fp32 convolutions where no TF32 is: fp32 products, without conversions; 3 x 3 by Winograd
//   precisions that `to` does not offer: none
// `common` of the result is what all kernels together were off where published steps could tell.
// REQUIRES: from.costs; both say SMs and clock.
KernelCosts carried(const Profile& from, const Profile& to, double fed = kFed);

}  // namespace ddpsim::predict
