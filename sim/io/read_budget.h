// Limits of a validation (docs/formats.md, budget).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/io/json_reader.h"
#include "sim/validation/validation.h"

namespace ddpsim::io {

// ddpsim.budget/1. Throws InputError, for an unknown name with the nearest known one. `known`:
// empty = any name, and one that has no value breaks its limit.
std::vector<validation::Limit> read_budget(
    const Json& j, const std::string& file,
    const std::vector<std::string>& known = validation::value_names());

}  // namespace ddpsim::io
