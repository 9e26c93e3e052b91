// The measured Runs of a folder beside predictions of their scenarios.
#pragma once

#include <string>
#include <vector>

#include "sim/validation/validation.h"
#include "tools/cmd/command.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

struct ValidateFlags {
  std::string runs;
  std::string profile;
  std::string profiles;
  std::string budget;
  std::string tolerance;
  std::string without;
  bool fail_fast = false;
  bool collectives = false;
  bool steps = false;
  bool kernels = false;
  std::string published;
  OutputFlags output;
};

// Predicts on all cores; what comes out does not depend on their number. `limits`: with
// flags.fail_fast it ends where they cannot be kept any more. Throws InputError: a folder without
// Runs, or a file that is none.
validation::Validation validate_folder(const Terminal& t, const ValidateFlags& flags,
                                       const std::vector<validation::Limit>& limits);

}  // namespace ddpsim::cli
