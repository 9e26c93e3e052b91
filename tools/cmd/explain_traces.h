// ddpsim explain TRACES: measured steps.
#pragma once

#include "tools/cmd/question.h"

namespace ddpsim::cli {

// Whether a file is a trace of PyTorch's profiler, and no scenario. False where it cannot be read.
bool is_trace(const std::string& path);

// `question`: --cluster, --ranks, --set and --profile ask for the step on another network;
// --workload says whose parameters were trained.
void explain_traces(Terminal& t, const std::vector<std::string>& files,
                    const QuestionFlags& question, const OutputFlags& output);

}  // namespace ddpsim::cli
