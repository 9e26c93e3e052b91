// Limits of a validation (sim/FORMATS.md, budget).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/io/json_reader.h"
#include "sim/validation/validation.h"

namespace ddpsim::io {

// ddpsim.budget/1. Throws InputError, for an unknown name with the nearest known one.
std::vector<validation::Limit> read_budget(const Json& j, const std::string& file);

}  // namespace ddpsim::io
