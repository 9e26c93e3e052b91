// Published training steps as commands see them: each predicted, absolute and relative to its row
// of one GPU, and the judgement of all.
#pragma once

#include <string>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/validation/steps.h"
#include "tools/cmd/command.h"

namespace ddpsim::cli {

// Every file of `folder` (ddpsim.steps/1), in the order of their names. Throws InputError.
std::vector<validation::PublishedStep> load_steps(const std::string& folder);
// Rows that cannot be predicted say why. `without`: as ddpsim validate --without; "" = nothing.
// `intervals`: false leaves them out (low = high = predicted), and rows with other constants.
std::vector<validation::StepResult> predict_steps(
    const Terminal& t, const std::string& folder,
    const std::vector<validation::PublishedStep>& rows, const std::string& without,
    bool intervals = true);

std::string steps_table(const validation::StepsReport& r);
std::string steps_markdown(const validation::StepsReport& r);
io::OrderedJson steps_json(const validation::StepsReport& r);

}  // namespace ddpsim::cli
