// Counts of a described workload that depend on the sequence length.
#pragma once

#include <cstdint>
#include <vector>

namespace ddpsim::io {

// c0 + c1 tokens + c2 tokens^2. REQUIRES: below 2^63.
std::int64_t at_length(const std::vector<std::int64_t>& c, std::int64_t tokens);

}  // namespace ddpsim::io
