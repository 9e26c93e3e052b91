// The clock at which a board's power limit holds a GPU in a step. Equations: sim/MODEL.md, 5.1.
#pragma once

#include "sim/model/power.h"
#include "sim/model/profile.h"

namespace ddpsim::predict {

// What a card draws at the clock of its peaks, from one of the same chip, which its own limit holds
// at its own clock while it does nothing but products. The shares of a limit that the other kinds
// of kernels take are those of `measured`. An operation takes as much energy as the square of the
// clock.
// REQUIRES: like.limit_w, clock_hz, bandwidth and a peak > 0.
Draw drawn_like(const PowerSection& measured, const SameChip& like, const ComputeSection& compute,
                const MemorySection& memory, double limit_w);

// Device time of one step at the clock of the peaks, by what the clock decides; picoseconds, and
// watts times picoseconds beside what it draws idle.
struct StepDraw {
  double clocked_ps = 0;  // products and attention
  double clocked_energy = 0;
  double memory_ps = 0;
};

// Share of that clock, in [0.4, 1], at which the mean over the step is the limit:
//   idle T + clocked_energy f^2 + memory * memory_ps = limit T,   T = clocked_ps / f + memory_ps
// 1: the limit is not felt, or the section is of a GPU whose kernels were measured.
double clock_share(const PowerSection& p, const StepDraw& step);

}  // namespace ddpsim::predict
