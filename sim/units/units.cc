// Parsing is exact: a decimal literal is an integer mantissa and a power of ten, multiplied by the
// unit in 128-bit integers.
#include "sim/units/units.h"

#include <array>
#include <cstdio>
#include <span>

namespace ddpsim {
namespace {

using Int128 = __int128;

struct Decimal {
  Int128 mantissa = 0;
  int scale = 0;  // value = mantissa / 10^scale
  std::string_view rest;
};

constexpr int kMaxDigits = 18;

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal d;
  std::size_t i = 0;
  int digits = 0;
  bool dot = false;
  for (; i < text.size(); ++i) {
    char c = text[i];
    if (c == '.' && !dot) {
      dot = true;
    } else if (c >= '0' && c <= '9') {
      if (++digits > kMaxDigits) return std::nullopt;
      d.mantissa = d.mantissa * 10 + (c - '0');
      if (dot) ++d.scale;
    } else {
      break;
    }
  }
  if (digits == 0) return std::nullopt;
  d.rest = text.substr(i);
  return d;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

// Rounds half up; fails outside int64.
std::optional<std::int64_t> apply(const Decimal& d, std::int64_t factor) {
  Int128 divisor = 1;
  for (int i = 0; i < d.scale; ++i) divisor *= 10;
  Int128 product = d.mantissa * factor;
  Int128 rounded = (product + divisor / 2) / divisor;
  if (rounded > INT64_MAX) return std::nullopt;
  return static_cast<std::int64_t>(rounded);
}

template <class T>
Parsed<T> parse_with(std::string_view text, std::span<const Unit> units,
                     const std::string& expected) {
  std::string_view s = trim(text);
  std::string quoted = "\"" + std::string(text.substr(0, 60)) + "\"";
  if (!s.empty() && s.front() == '-')
    return {std::nullopt, quoted + " is negative; expected " + expected};
  auto d = parse_decimal(s);
  if (!d) return {std::nullopt, quoted + " is not a number with a unit; expected " + expected};
  std::string_view name = trim(d->rest);
  if (name.empty()) return {std::nullopt, quoted + " has no unit; expected " + expected};
  for (const Unit& u : units) {
    if (u.name != name) continue;
    auto v = apply(*d, u.factor);
    if (!v) return {std::nullopt, quoted + " is too large"};
    return {T{*v}, {}};
  }
  return {std::nullopt, quoted + " has an unknown unit \"" + std::string(name.substr(0, 20)) +
                            "\"; expected " + expected};
}

constexpr std::array<Unit, 7> kTimeUnits{{{"ps", 1},
                                          {"ns", 1'000},
                                          {"us", 1'000'000},
                                          {"µs", 1'000'000},
                                          {"ms", 1'000'000'000},
                                          {"s", 1'000'000'000'000},
                                          {"min", 60'000'000'000'000}}};
constexpr std::array<Unit, 9> kByteUnits{{{"B", 1},
                                          {"kB", 1'000},
                                          {"KB", 1'000},
                                          {"MB", 1'000'000},
                                          {"GB", 1'000'000'000},
                                          {"KiB", kKiB},
                                          {"MiB", kMiB},
                                          {"GiB", 1024 * kMiB},
                                          {"TB", 1'000'000'000'000}}};
constexpr std::array<Unit, 19> kRateUnits{{{"b/s", 1},
                                           {"kbps", 1'000},
                                           {"Mbps", 1'000'000},
                                           {"Gbps", 1'000'000'000},
                                           {"Tbps", 1'000'000'000'000},
                                           {"kb/s", 1'000},
                                           {"Mb/s", 1'000'000},
                                           {"Gb/s", 1'000'000'000},
                                           {"Tb/s", 1'000'000'000'000},
                                           {"kbit/s", 1'000},
                                           {"Mbit/s", 1'000'000},
                                           {"Gbit/s", 1'000'000'000},
                                           {"B/s", 8},
                                           {"kB/s", 8'000},
                                           {"MB/s", 8'000'000},
                                           {"GB/s", 8'000'000'000},
                                           {"TB/s", 8'000'000'000'000},
                                           {"MiB/s", 8 * kMiB},
                                           {"GiB/s", 8 * 1024 * kMiB}}};

std::string significant(double v, std::string_view unit) {
  char buffer[64];
  // Four significant digits, and no exponent.
  const char* form = v < 9999.5 && v > -9999.5 ? "%.4g %.*s" : "%.0f %.*s";
  std::snprintf(buffer, sizeof buffer, form, v, static_cast<int>(unit.size()), unit.data());
  return buffer;
}

}  // namespace

Duration scale(Duration d, double factor) {
  double v = static_cast<double>(d.ps) * factor + 0.5;
  return {v < 9.2e18 ? static_cast<std::int64_t>(v) : kForever};
}

Bandwidth scale(Bandwidth b, double factor) {
  double v = static_cast<double>(b.bits_per_s) * factor + 0.5;
  return {v < 9.2e18 ? static_cast<std::int64_t>(v) : INT64_MAX};
}

Parsed<Duration> parse_duration(std::string_view text) {
  return parse_with<Duration>(text, kTimeUnits, "a time such as \"5us\", \"1.5ms\" or \"300ns\"");
}

Parsed<Bytes> parse_bytes(std::string_view text) {
  return parse_with<Bytes>(text, kByteUnits, "a size such as \"64KiB\", \"25MiB\" or \"100MB\"");
}

Parsed<Bandwidth> parse_bandwidth(std::string_view text) {
  auto r =
      parse_with<Bandwidth>(text, kRateUnits, "a bandwidth such as \"100Gb/s\" or \"12.5GB/s\"");
  if (r.value) return r;
  // "40G" may mean bits or bytes: name both.
  std::string_view s = trim(text);
  auto d = s.empty() || s.front() == '-' ? std::nullopt : parse_decimal(s);
  if (d) {
    std::string_view name = trim(d->rest);
    if (name == "G" || name == "M" || name == "k" || name == "T") {
      std::string number(s.substr(0, s.size() - d->rest.size()));
      std::string prefix(name);
      r.error = "\"" + std::string(s) + "\" has no unit (did you mean " + number + prefix +
                "B/s or " + number + prefix + "b/s?)";
    }
  }
  return r;
}

std::string to_string(Duration d) {
  double v = static_cast<double>(d.ps);
  double a = v < 0 ? -v : v;
  if (a >= 1e12) return significant(v / 1e12, "s");
  if (a >= 1e9) return significant(v / 1e9, "ms");
  if (a >= 1e6) return significant(v / 1e6, "us");
  if (a >= 1e3) return significant(v / 1e3, "ns");
  return significant(v, "ps");
}

std::string to_string(Bytes b) {
  double v = static_cast<double>(b.count);
  if (v >= 1024.0 * kMiB) return significant(v / (1024.0 * kMiB), "GiB");
  if (v >= kMiB) return significant(v / static_cast<double>(kMiB), "MiB");
  if (v >= kKiB) return significant(v / static_cast<double>(kKiB), "KiB");
  return significant(v, "B");
}

std::string to_string(Bandwidth b) {
  double v = static_cast<double>(b.bits_per_s);
  if (v >= 1e12) return significant(v / 1e12, "Tb/s");
  if (v >= 1e9) return significant(v / 1e9, "Gb/s");
  if (v >= 1e6) return significant(v / 1e6, "Mb/s");
  if (v >= 1e3) return significant(v / 1e3, "kb/s");
  return significant(v, "b/s");
}

}  // namespace ddpsim
