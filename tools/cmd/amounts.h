// Values of flags about days: each throws InputError, naming the flag and what to write instead.
#pragma once

#include <cstdint>
#include <string>

#include "sim/units/units.h"

namespace ddpsim::cli {

// "50000h", "30d", "1.2s", "5min", up to 10^12 hours or days.
double seconds_of(const std::string& flag, const std::string& text);
double positive_seconds(const std::string& flag, const std::string& text);
// The same, at most 100 days.
Duration duration_of(const std::string& flag, const std::string& text);
Duration positive_duration(const std::string& flag, const std::string& text);
// A whole number from `least` to `most`.
int count_of(const std::string& flag, const std::string& text, int least, int most);
std::int64_t bytes_of(const std::string& flag, const std::string& text);
// Above 0.
double bytes_per_s(const std::string& flag, const std::string& text);
// No flag's: rounded, at most 100 days. REQUIRES: s >= 0.
Duration seconds_as(double s);

}  // namespace ddpsim::cli
