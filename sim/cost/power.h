// The clock at which a board's power limit holds a GPU in a step. Equations: docs/model.md, 5.1.
#pragma once

#include "sim/model/power.h"
#include "sim/model/profile.h"

namespace ddpsim::predict {

// What a card draws at the clock of its peaks, from one of the same chip, of which every share of
// its peaks draws the share of its limit that it draws on the measured GPU, whose peaks are
// `peaks`. The energy of an operation grows with the square of the clock. REQUIRES: like: limit_w,
// clock_hz and the peak of fp32 > 0.
Draw drawn_like(const PowerSection& measured, const ByPrecision& peaks, const SameChip& like,
                const ComputeSection& compute, double limit_w);

// One step at the clock of the peaks: picoseconds, and the joules of operations.
struct StepDraw {
  double clocked_ps = 0;  // products and attention: what the clock decides
  double memory_ps = 0;   // the other kernels
  double joules = 0;      // of `clocked`, beside what is drawn idle and busy
};

// Share of that clock, in [0.4, 1], at which the mean over the step is the limit:
//   idle T + (busy clocked_ps + joules) f^2 + busy memory_ps = limit T
//   T = clocked_ps / f + memory_ps
// 1: the limit is not felt.
double clock_share(const PowerSection& p, const StepDraw& step);

}  // namespace ddpsim::predict
