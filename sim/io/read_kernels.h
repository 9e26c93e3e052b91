// Published times of kernels (ddpsim.kernels/1, docs/formats.md).
#pragma once

#include <vector>

#include "sim/io/json_reader.h"
#include "sim/validation/kernels.h"

namespace ddpsim::io {

// One source. Throws InputError.
std::vector<validation::PublishedKernel> read_kernels(const Json& j, const std::string& file);

}  // namespace ddpsim::io
