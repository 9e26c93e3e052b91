// How far published steps were off, by the family of a question: what the interval of a GPU is made
// of that nobody measured here.
#pragma once

#include <span>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

struct StepError {
  const char* of;  // "one GPU"; as `ddpsim validate --steps` and tools/sharded_report name it
  int rows = 0;
  int sources = 0;
  double low = 1;   // 80 % of the steps of another source are between these multiples of the
  double high = 1;  // predicted one
};

// All families.
std::span<const StepError> step_errors();
// That of a question; nullptr: nothing published is like it (a device that was measured, or is no
// GPU of NVIDIA; an emulated one; one rank with its computation measured).
const StepError* step_error(const Question& q);
// Widens an interval by its family's error. Returns the profile for what is not in that: without
// the spreads of its kernels, with its ranges of host, network and ranks.
Profile widened(const Question& q, const StepError& family, Prediction& out);
// The profile without the spreads of its kernels.
Profile without_spreads(const Profile& p);

}  // namespace ddpsim::predict
