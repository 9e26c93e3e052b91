// Known errors: what a profile's file says of how far its own numbers are off, and what published
// steps say of predictions, family by family. No prediction uses it; pages tell it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/io/json_reader.h"

namespace ddpsim::io {

struct KnownErrors {
  // `compute.described_error`: of described workloads on one such device, the computation described
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

// Predictions of published steps of one kind. docs/formats.md, ddpsim.known_errors/1.
struct KnownFamily {
  std::string system;     // as --plan takes it; "any": of one GPU
  std::string hosts;      // "one_gpu", "one_host", "several_hosts"
  std::string profile;    // by name
  std::string precision;  // of the workload
  int rows = 0, sources = 0;
  double median = 0;   // predicted / measured - 1
  std::string report;  // that lists them
};
// Throws InputError.
std::vector<KnownFamily> read_known_families(const Json& j, const std::string& file);

}  // namespace ddpsim::io
