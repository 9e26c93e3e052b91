// ddpsim validate --kernels: published times of single kernels beside what shipped profiles say.
#pragma once

#include "tools/cmd/command.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

// Every file of `folder` (ddpsim.kernels/1). Limits of `budget`, "" = none. Throws InputError;
// GateFailed.
void validate_kernels(Terminal& t, const OutputFlags& output, const std::string& folder,
                      const std::string& budget);

}  // namespace ddpsim::cli
