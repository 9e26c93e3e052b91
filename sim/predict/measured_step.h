// A user's own number: what one device took for a step by itself. Computation is scaled to it.
#pragma once

#include <string>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

// One rank without a data-parallel wrapper: forward and backward of each micro-step, and the
// optimizer; on the device `slow` times as long.
Duration one_rank_step(const StepTimes& t, int micro_steps, double slow = 1);

// The workload whose one_rank_step() on this Profile's device is `measured`, by one factor on every
// time of the device and of the host: both timelines, and so the longer of them, are as much
// longer. `of`: of the work that was measured (its own measured step is not looked at); the factor
// is found there. Another workload, or accumulation, has that factor carried over to it. REQUIRES:
// measured.ps > 0, one_rank_step of `of` is not 0, both can be timed (roofline_problem).
struct MeasuredWork {
  const Workload& workload;
  int micro_steps = 1;
};
Workload scaled_to(Duration measured, const MeasuredWork& of, const MeasuredWork& now,
                   const Profile& p);

// "computation x1.31: measured 97 ms on one GPU, predicted 74 ms"
std::string sentence(const MeasuredStep& m);
// What is doubtful about it: a factor above 4 or below 0.25; "" = nothing.
std::string doubt(const MeasuredStep& m);

}  // namespace ddpsim::predict
