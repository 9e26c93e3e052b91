// Published training steps (ddpsim.steps/1, docs/formats.md).
#pragma once

#include <vector>

#include "sim/io/json_reader.h"
#include "sim/validation/steps.h"

namespace ddpsim::io {

// One source. Throws InputError.
std::vector<validation::PublishedStep> read_steps(const Json& j, const std::string& file);

}  // namespace ddpsim::io
