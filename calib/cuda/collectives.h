// What NCCL's collectives cost on this machine's GPUs -> Runs of samples (docs/formats.md).
#pragma once

#include <vector>

#include "calib/cuda/cuda.h"

namespace ddpsim::calib::cuda {

// A Run for each operation, number of ranks and way to run it, each `head` with its samples and
// their setting (Run::collectives). What could not be measured goes to head.skipped.
std::vector<Run> measure_nccl(Run& head, const CalibrateOptions& options);

}  // namespace ddpsim::calib::cuda
