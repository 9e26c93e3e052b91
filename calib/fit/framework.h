// A framework's own work from samples of PyTorch's: hooks, kernels and copies of DDP, and what its
// communication hooks compute. Each writes its terms into the profile and says so in the notes;
// without samples of its own it leaves both alone.
#pragma once

#include <vector>

#include "calib/fit/fit.h"

namespace ddpsim::calib {

// DDP copies a gradient into its bucket and out again: two reads and two writes of it, two kernels
// and one hook a parameter.
//   small ones: hook + 2 kernels;   large ones, less that: 4 S / bandwidth, of one rank alone and
//                                   of several at once
void fit_framework(const std::vector<FitCollectives>& runs, Fit& out);

// Products of a matrix with a few columns (PowerSGD's three): of small ones what an operator that
// Python calls costs, of large ones the matrix's bytes over the rest of their time.
void fit_thin_products(const std::vector<FitCollectives>& runs, Fit& out);

}  // namespace ddpsim::calib
