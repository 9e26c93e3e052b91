// Traces of PyTorch's profiler, for the commands that read them: import kineto, explain.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/traced_ranks.h"

namespace ddpsim::cli {

inline constexpr int kDefaultIterations = 20;
// One of each rank. Throws InputError.
analysis::TracedRanks load_traces(const std::vector<std::string>& files, int iterations);

}  // namespace ddpsim::cli
