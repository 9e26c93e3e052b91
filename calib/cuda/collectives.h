// What NCCL's collectives cost on this machine's GPUs -> samples (names and parameters: sim/FORMATS.md).
#pragma once

#include "calib/cuda/cuda.h"

namespace ddpsim::calib::cuda {

void measure_nccl(Run& run, const CalibrateOptions& options);

}  // namespace ddpsim::calib::cuda
