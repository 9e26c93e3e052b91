// execute: a question played on real hosts -> a measured Run. A process per rank, in its host's
// namespace; the parent stays what it was.
#pragma once

#include <string>
#include <vector>

#include "sim/model/run.h"
#include "sim/predict/predict.h"

namespace ddpsim::calib {

struct ExecuteOptions {
  int steady_steps = 6;    // the first of them is not counted by analysis::typical_step
  int recorded_steps = 3;  // of which the Run has spans: the last ones
  bool real_compute = false;
  bool loopback = false;         // do not make hosts
  std::vector<int> other_steps;  // steady steps of each other job, enough to outlast the first;
                                 // empty = 4 times as many
  double timeout_s = 600;
  const Program* program = nullptr;  // played by the first job in place of what its plan lowers to;
                                     // REQUIRES predict::unplayable(*program) empty
};

// REQUIRES: backend_of(plan) is Tcp for every job; predict::check(q) empty. Without privilege, or
// on a cluster that cannot be made of namespaces, the ranks run over plain loopback and
// origin.hosts and origin.reason say so. Throws std::runtime_error if a rank fails, a sum is wrong,
// or the time is over; nothing is left running.
Run execute(const predict::Question& q, const ExecuteOptions& options);

}  // namespace ddpsim::calib
