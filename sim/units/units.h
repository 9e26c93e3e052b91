// Strong quantities: time in integer picoseconds, data in bytes, bandwidth in bits per second.
//
// Every quantity of ddpsim's physics is one of these. They convert to and from text in one place
// (parse_*, to_string), and work/rate becomes time in one place (ceil_ps), which
// rounds up. Floating-point numbers of other units: convert.h. MiB (2^20) is not MB (10^6); Gb
// (bit) is not GB (byte).
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddpsim {

// Sums and products that stay at the end of int64's range instead of leaving it: what takes longer
// than 106 days takes kForever.
constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? (b < 0 ? INT64_MIN : INT64_MAX) : out;
}
constexpr std::int64_t saturating_subtract(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  return __builtin_sub_overflow(a, b, &out) ? (b > 0 ? INT64_MIN : INT64_MAX) : out;
}
constexpr std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? ((a < 0) != (b < 0) ? INT64_MIN : INT64_MAX) : out;
}

// A length of time, picoseconds. +-106 days; arithmetic saturates there.
struct Duration {
  std::int64_t ps = 0;
  friend constexpr auto operator<=>(Duration, Duration) = default;
  constexpr Duration& operator+=(Duration d) {
    ps = saturating_add(ps, d.ps);
    return *this;
  }
  constexpr Duration& operator-=(Duration d) {
    ps = saturating_subtract(ps, d.ps);
    return *this;
  }
};
constexpr Duration operator+(Duration a, Duration b) {
  return {saturating_add(a.ps, b.ps)};
}
constexpr Duration operator-(Duration a, Duration b) {
  return {saturating_subtract(a.ps, b.ps)};
}
constexpr Duration operator*(Duration a, std::int64_t n) {
  return {saturating_multiply(a.ps, n)};
}

// How many times b goes into a. REQUIRES: b is not zero.
constexpr double operator/(Duration a, Duration b) {
  return static_cast<double>(a.ps) / static_cast<double>(b.ps);
}
// What part of the whole it is; 0 of nothing.
constexpr double fraction(Duration part, Duration whole) {
  return whole.ps > 0 ? part / whole : 0;
}
constexpr double fraction(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// A point on the simulation's clock, picoseconds since its start.
struct TimePoint {
  std::int64_t ps = 0;
  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;
};
constexpr TimePoint operator+(TimePoint t, Duration d) {
  return {saturating_add(t.ps, d.ps)};
}
constexpr Duration operator-(TimePoint a, TimePoint b) {
  return {saturating_subtract(a.ps, b.ps)};
}

struct Bytes {
  std::int64_t count = 0;
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  constexpr Bytes& operator+=(Bytes b) {
    count = saturating_add(count, b.count);
    return *this;
  }
};
constexpr Bytes operator+(Bytes a, Bytes b) {
  return {saturating_add(a.count, b.count)};
}
constexpr Bytes operator*(Bytes a, std::int64_t n) {
  return {saturating_multiply(a.count, n)};
}
// Bytes with a fraction.
template <std::floating_point Factor>
constexpr double operator*(Bytes b, Factor factor) {
  return static_cast<double>(b.count) * factor;
}

// Bits per second. 1 GB/s = 8e9.
struct Bandwidth {
  std::int64_t bits_per_s = 0;
  friend constexpr auto operator<=>(Bandwidth, Bandwidth) = default;
  constexpr double bytes_per_ps() const { return static_cast<double>(bits_per_s) / 8e12; }
};

inline constexpr Duration kNanosecond{1'000};
inline constexpr Duration kMicrosecond{1'000'000};
inline constexpr Duration kMillisecond{1'000'000'000};
inline constexpr Duration kSecond{1'000'000'000'000};
inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;

// The one place where work becomes time: smallest whole number of picoseconds in which `work` units
// are done at `rate` units per picosecond. REQUIRES: work >= 0, rate > 0. Saturates at kForever.
inline constexpr std::int64_t kForever = INT64_MAX;
inline std::int64_t ceil_ps(double work, double rate) {
  double t = work / rate;
  if (!(t < 9.2e18)) return kForever;
  auto whole = static_cast<std::int64_t>(t);
  return whole + (static_cast<double>(whole) < t ? 1 : 0);
}
inline Duration time_of(Bytes work, double bytes_per_ps) {
  return {ceil_ps(work * 1.0, bytes_per_ps)};
}
// d * factor, rounded half up. REQUIRES: factor >= 0. Saturates at kForever.
Duration scale(Duration d, double factor);
// b * factor, rounded half up. REQUIRES: factor >= 0. Saturates at the largest bandwidth.
Bandwidth scale(Bandwidth b, double factor);

// A parsed quantity, or a sentence that says what was expected.
template <class T>
struct Parsed {
  std::optional<T> value;
  std::string error;
};
// "3.2us", "1 ms", "150ns", "20ps", "2s", "1min".
Parsed<Duration> parse_duration(std::string_view text);
// "25MiB", "100MB", "64KiB", "512B".
Parsed<Bytes> parse_bytes(std::string_view text);
// "400Gb/s", "50GB/s", "200Mbit/s", "11GiB/s".
Parsed<Bandwidth> parse_bandwidth(std::string_view text);

// Shortest readable form, four significant digits: "16.45 ms", "25 MiB", "400 Gb/s".
std::string to_string(Duration d);
std::string to_string(Bytes b);
std::string to_string(Bandwidth b);

}  // namespace ddpsim
