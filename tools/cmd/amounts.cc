#include "tools/cmd/amounts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sim/goodput/job.h"
#include "sim/model/error.h"
#include "sim/units/number.h"

namespace ddpsim::cli {
namespace {

constexpr double kDay = 86'400;

}  // namespace

double seconds_of(const std::string& flag, const std::string& text) {
  double unit = 0;
  if (text.size() > 1 && text.back() == 'h') unit = 3600;
  if (text.size() > 1 && text.back() == 'd') unit = kDay;
  const std::string place = flag + " " + text;
  const InputError wrong{place, "expected a time such as 50000h, 30d, 10min or 1.2s"};
  if (unit > 0) {
    auto v = parse_number(text.substr(0, text.size() - 1));
    if (!v || !(*v > 0 && *v <= 1e12)) throw wrong;
    return *v * unit;
  }
  Parsed<Duration> d = parse_duration(text);
  if (!d.value || d.value->ps < 0) throw wrong;
  return static_cast<double>(d.value->ps) * 1e-12;
}

double positive_seconds(const std::string& flag, const std::string& text) {
  const double s = seconds_of(flag, text);
  if (!(s > 0)) throw InputError{flag + " " + text, "expected a time above 0"};
  return s;
}

Duration duration_of(const std::string& flag, const std::string& text) {
  const double s = seconds_of(flag, text);
  if (!(s * 1e12 <= static_cast<double>(goodput::kLongest.ps)))
    throw InputError{flag + " " + text, "is more than 100 days"};
  return {std::llround(s * 1e12)};
}

Duration positive_duration(const std::string& flag, const std::string& text) {
  Duration d = duration_of(flag, text);
  if (d.ps < 1) throw InputError{flag + " " + text, "expected a time above 0"};
  return d;
}

int count_of(const std::string& flag, const std::string& text, int least, int most) {
  auto v = parse_integer(text);
  if (!v || *v < least || *v > most)
    throw InputError{flag + " " + text,
                     fmt::format("expected a whole number, {} to {}", least, most)};
  return static_cast<int>(*v);
}

std::int64_t bytes_of(const std::string& flag, const std::string& text) {
  Parsed<Bytes> b = parse_bytes(text);
  if (!b.value) throw InputError{flag + " " + text, b.error};
  return b.value->count;
}

double bytes_per_s(const std::string& flag, const std::string& text) {
  Parsed<Bandwidth> b = parse_bandwidth(text);
  if (!b.value) throw InputError{flag + " " + text, b.error};
  if (b.value->bits_per_s < 1) throw InputError{flag + " " + text, "expected one above 0"};
  return static_cast<double>(b.value->bits_per_s) / 8;
}

Duration seconds_as(double s) {
  return {static_cast<std::int64_t>(
      std::min(s * 1e12 + 0.5, static_cast<double>(goodput::kLongest.ps)))};
}

}  // namespace ddpsim::cli
