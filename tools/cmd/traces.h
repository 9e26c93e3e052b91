// Traces of PyTorch's profiler and of Nsight Systems, for the commands that read them: import,
// explain.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/traced_ranks.h"

namespace ddpsim::cli {

inline constexpr int kDefaultIterations = 20;
// One of each rank; an export of Nsight Systems may hold several. Throws InputError.
analysis::TracedRanks load_traces(const std::vector<std::string>& files, int iterations);

}  // namespace ddpsim::cli
