// Axes of a sweep: --axis FIELD=VALUES, and --zip FIELD=VALUES for fields that change together.
//   VALUES: a list (1,5,25), a linear range (10:100:+10, 1:8 = steps of 1), a geometric range
//     (1:64:x2), or several of these; numbers may have a unit
//   (10Gb/s:400Gb/s:x2), both ends the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddpsim::sweep {

struct Axis {
  std::vector<std::string> fields;               // several: zipped
  std::vector<std::vector<std::string>> values;  // by point of the axis, then by field
};

// One FIELD=VALUES. Throws InputError, which names the flag (`flag`: "--axis" or "--zip").
Axis parse_axis(const std::string& flag, const std::string& text);
// The lists of --zip as one axis. Throws InputError if they differ in length.
Axis zip(const std::vector<Axis>& axes);

inline constexpr std::int64_t kMostPoints = 50'000'000;
// The product of their lengths. Throws InputError beyond kMostPoints, or for a field that is named
// twice.
std::int64_t points_of(const std::vector<Axis>& axes);

// Values of a point, in the order of all axes' fields; the last axis changes fastest.
std::vector<std::string> values_at(const std::vector<Axis>& axes, std::int64_t point);
std::vector<std::string> fields_of(const std::vector<Axis>& axes);

}  // namespace ddpsim::sweep
