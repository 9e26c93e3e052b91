#include "calib/gpu/samples.h"

#include <algorithm>
#include <cmath>

namespace ddpsim::calib::gpu {

Kept keep(std::span<const Reading> readings, double slack) {
  Kept out;
  std::vector<int> clocks;
  for (const Reading& r : readings)
    if (r.sm_mhz > 0) clocks.push_back(r.sm_mhz);
  std::sort(clocks.begin(), clocks.end());
  double least = clocks.empty() ? 0 : (1 - slack) * clocks[clocks.size() * 3 / 4];
  int throttled = 0;
  int slow = 0;
  for (const Reading& r : readings) {
    if (r.throttled)
      ++throttled;
    else if (r.sm_mhz > 0 && r.sm_mhz < least)
      ++slow;
    else
      out.durations.push_back(r.took);
  }
  if (throttled + slow == 0) return out;
  if (2 * out.durations.size() < readings.size()) {
    out.durations.clear();
    for (const Reading& r : readings) out.durations.push_back(r.took);
    out.reason = "most readings were throttled or at a low clock (" + std::to_string(throttled) +
                 " and " + std::to_string(slow) + " of " + std::to_string(readings.size()) +
                 "): all were kept";
    return out;
  }
  out.discarded = throttled + slow;
  out.reason =
      std::to_string(throttled) + " throttled, " + std::to_string(slow) + " at a low clock";
  return out;
}

bool settled(std::span<const Duration> durations, double within) {
  std::size_t n = durations.size();
  if (n < 10) return false;
  std::vector<Duration> sorted(durations.begin(), durations.end());
  std::sort(sorted.begin(), sorted.end());
  // The median's rank is binomial: half of n, give or take 1.96 sqrt(n) / 2.
  auto spread = static_cast<std::size_t>(std::ceil(0.98 * std::sqrt(static_cast<double>(n))));
  std::size_t low = n / 2 > spread ? n / 2 - spread : 0;
  std::size_t high = std::min(n - 1, n / 2 + spread);
  return static_cast<double>((sorted[high] - sorted[low]).ps) / 2 <=
         within * static_cast<double>(sorted[n / 2].ps);
}

}  // namespace ddpsim::calib::gpu
