// One unit as another: every power of ten between units is here (sim/LAYERS, `bare`). The units of
// NCCL's own model are types: floating-point microseconds, and GB/s (1e9 bytes a second).
//
// Equal amounts by another order of operations differ in their last bit: x / kPsPerSecond is not
// x * kSecondsPerPs, and a prediction's bytes are kept.
#pragma once

#include <cstdint>

#include "sim/units/units.h"

namespace ddpsim {

inline constexpr double kPsPerSecond = 1e12;
inline constexpr double kSecondsPerPs = 1e-12;
inline constexpr double kMsPerSecond = 1e3;
inline constexpr double kPsPerUs = 1e6;
inline constexpr double kFsPerPs = 1e3;
inline constexpr double kMegaPerGiga = 1e3;
inline constexpr double kBytesPerUsOfGBps = 1e3;
inline constexpr double kBytesPerGB = 1e9;
inline constexpr double kMillion = 1e6;  // counts in sentences
inline constexpr std::int64_t kNsPerUs = 1'000;

constexpr double seconds(Duration d) {
  return static_cast<double>(d.ps) / kPsPerSecond;
}
constexpr double milliseconds(Duration d) {
  return static_cast<double>(d.ps) / 1e9;
}
// A rate as ceil_ps() takes it.
constexpr double per_ps(double per_second) {
  return per_second / kPsPerSecond;
}

struct Microseconds {
  double us = 0;
};
struct BytesPerUs {
  double bytes_per_us = 0;
};
struct GBps {
  double gb_per_s = 0;
};
struct BytesPerSecond {
  double bytes_per_s = 0;
};

// Amounts of one unit are added, multiplied, divided and compared, as their numbers are.
template <class>
inline constexpr bool kIsAmount = false;
template <>
inline constexpr bool kIsAmount<Microseconds> = true;
template <>
inline constexpr bool kIsAmount<BytesPerUs> = true;
template <>
inline constexpr bool kIsAmount<GBps> = true;
template <>
inline constexpr bool kIsAmount<BytesPerSecond> = true;
template <class Q>
concept Amount = kIsAmount<Q>;

template <Amount Q>
constexpr double number(Q q) {
  auto [x] = q;
  return x;
}
template <Amount Q>
constexpr Q operator+(Q a, Q b) {
  return {number(a) + number(b)};
}
template <Amount Q>
constexpr Q operator-(Q a, Q b) {
  return {number(a) - number(b)};
}
template <Amount Q>
constexpr Q operator*(Q a, double times) {
  return {number(a) * times};
}
template <Amount Q>
constexpr Q operator*(double times, Q a) {
  return {times * number(a)};
}
template <Amount Q>
constexpr Q operator/(Q a, double parts) {
  return {number(a) / parts};
}
template <Amount Q>
constexpr double operator/(Q a, Q b) {
  return number(a) / number(b);
}
template <Amount Q>
constexpr Q& operator+=(Q& a, Q b) {
  return a = a + b;
}
template <Amount Q>
constexpr Q& operator-=(Q& a, Q b) {
  return a = a - b;
}
template <Amount Q>
constexpr Q& operator*=(Q& a, double times) {
  return a = a * times;
}
template <Amount Q>
constexpr Q& operator/=(Q& a, double parts) {
  return a = a / parts;
}
template <Amount Q>
constexpr bool operator==(Q a, Q b) {
  return number(a) == number(b);
}
// No <=>: GCC 12 compiles that of floating-point numbers to branches.
template <Amount Q>
constexpr bool operator<(Q a, Q b) {
  return number(a) < number(b);
}
template <Amount Q>
constexpr bool operator>(Q a, Q b) {
  return number(a) > number(b);
}
template <Amount Q>
constexpr bool operator<=(Q a, Q b) {
  return number(a) <= number(b);
}
template <Amount Q>
constexpr bool operator>=(Q a, Q b) {
  return number(a) >= number(b);
}

constexpr Microseconds microseconds(Duration d) {
  return {static_cast<double>(d.ps) / kPsPerUs};
}
// With a fraction.
constexpr double picoseconds(Microseconds t) {
  return t.us * kPsPerUs;
}
// Rounded half up. REQUIRES: not below 0. Saturates at kForever.
constexpr Duration to_duration(Microseconds t) {
  const double ps = picoseconds(t) + 0.5;
  return {ps < 9.2e18 ? static_cast<std::int64_t>(ps) : kForever};
}

constexpr GBps gb_per_s(BytesPerSecond r) {
  return {r.bytes_per_s / 1e9};
}
constexpr GBps gb_per_s(Bandwidth b) {
  return {b.bytes_per_ps() * 1e3};
}
constexpr BytesPerSecond bytes_per_s(GBps r) {
  return {r.gb_per_s * 1e9};
}
constexpr BytesPerSecond bytes_per_s(Bandwidth b) {
  return {b.bytes_per_ps() * kPsPerSecond};
}
constexpr BytesPerUs bytes_per_us(GBps r) {
  return {r.gb_per_s * kBytesPerUsOfGBps};
}
// Of so many, in this order.
constexpr BytesPerUs bytes_per_us(GBps r, double times) {
  return {kBytesPerUsOfGBps * times * r.gb_per_s};
}
constexpr BytesPerUs bytes_per_us(BytesPerSecond r) {
  return {r.bytes_per_s / 1e6};
}
constexpr BytesPerUs bytes_per_us(double bytes_per_ps) {
  return {bytes_per_ps * kPsPerUs};
}
constexpr double bytes_per_ps(BytesPerUs r) {
  return r.bytes_per_us / kPsPerUs;
}

// The time of so many bytes. Whole picoseconds come from ceil_ps().
constexpr Microseconds operator/(double bytes, BytesPerUs rate) {
  return {bytes / rate.bytes_per_us};
}
constexpr Microseconds operator/(double bytes, GBps rate) {
  return bytes / bytes_per_us(rate);
}

}  // namespace ddpsim
