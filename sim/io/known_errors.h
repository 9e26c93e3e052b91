// What a profile's file says of how far its own numbers are off. No prediction uses it; pages tell
// it.
#pragma once

#include <optional>
#include <string>

#include "sim/io/json_reader.h"

namespace ddpsim::io {

struct KnownErrors {
  // `compute.described_error`: of described workloads on this device, the computation described
  // over the one that captures measured, less 1.
  struct Described {
    int captures = 0;
    double median = 0;   // -0.3: described as 30 % too short
    std::string source;  // the report that lists them
  };
  std::optional<Described> described;
  // `transports.*.table_residual`, the largest: 80 % of the sizes of the tables of collectives that
  // the profile was fitted to are within this fraction; 0 = not said.
  double table_residual = 0;
};
// Throws InputError. REQUIRES: a profile that read_profile() takes, but for these keys.
KnownErrors read_known_errors(const Json& profile, const std::string& file);

}  // namespace ddpsim::io
