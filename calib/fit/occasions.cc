// Day of the civil calendar: days = 365 y + y/4 - y/100 + y/400 + days before the month, with years
// that begin in March (H. Hinnant, chrono-compatible low-level date algorithms).
#include "calib/fit/occasions.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <tuple>

namespace ddpsim::calib {
namespace {

constexpr std::int64_t kPause = 3600;  // seconds without a Run, after which it is another occasion

std::string machine_of(const Origin& o) {
  std::string out = o.cpu;
  if (o.cores > 0) out += ", " + std::to_string(o.cores) + " cores";
  for (const std::string& more : {o.kernel, o.software.substr(0, o.software.find(','))})
    if (!more.empty()) out += ", " + more;
  return out;
}

std::int64_t days_of(std::int64_t year, std::int64_t month, std::int64_t day) {
  std::int64_t y = month > 2 ? year : year - 1;
  std::int64_t before = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5;
  return 365 * y + y / 4 - y / 100 + y / 400 + before + day - 1 - 719468;
}

}  // namespace

std::optional<std::int64_t> seconds_of(const std::string& date) {
  int v[6] = {};
  int end = 0;
  const char* text = date.c_str();
  int read = std::sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &v[0], &v[1], &v[2], &v[3], &v[4],
                         &v[5], &end);
  bool whole = read == 6 && end == static_cast<int>(date.size()) && end == 20;
  if (!whole || v[1] < 1 || v[1] > 12 || v[2] < 1 || v[2] > 31) return {};
  return days_of(v[0], v[1], v[2]) * 86'400 + v[3] * 3600 + v[4] * 60 + v[5];
}

std::vector<Occasion> occasions(const std::vector<const Run*>& runs) {
  struct Entry {
    std::string machine;
    std::optional<std::int64_t> seconds;
    std::string date;
    std::size_t run = 0;
  };
  std::vector<Entry> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Origin& o = runs[i]->origin;
    all.push_back({machine_of(o), seconds_of(o.date), o.date, i});
  }
  std::stable_sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.machine, a.seconds, a.date) < std::tie(b.machine, b.seconds, b.date);
  });
  std::vector<Occasion> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Entry& e = all[i];
    bool same = i > 0 && all[i - 1].machine == e.machine &&
                all[i - 1].seconds.has_value() == e.seconds.has_value() &&
                (e.seconds ? *e.seconds - *all[i - 1].seconds < kPause : all[i - 1].date == e.date);
    if (!same) out.push_back({e.machine, e.date, {}});
    out.back().runs.push_back(e.run);
  }
  return out;
}

std::string name_of(const Occasion& o) {
  std::string machine = o.machine.empty() ? "a machine without a name" : o.machine;
  return o.first.empty() ? machine : machine + " (from " + o.first + ")";
}

}  // namespace ddpsim::calib
