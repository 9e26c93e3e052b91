//   goodput = tau e^(-W/M) p / (M (e^((tau + stall)/M) - 1)),   p = E[e^(-R/M)]
//   tau: steps between checkpoints, W: writing in the background, R: a recovery, M: between
//   failures
#include "sim/goodput/interval.h"

#include <algorithm>
#include <cmath>

#include "sim/units/convert.h"
#include "sim/units/elementary.h"

namespace ddpsim::goodput {
namespace {

double in_seconds(Duration d) {
  return static_cast<double>(d.ps) * kSecondsPerPs;
}

Job with_steps(const Job& job, std::int64_t steps) {
  Job out = job;
  out.checkpoints.steps = steps;
  return out;
}

std::int64_t steps_of(double tau, const Job& job) {
  const double most = in_seconds(job.horizon) / in_seconds(job.step);
  return static_cast<std::int64_t>(
      std::clamp(tau / in_seconds(job.step) + 0.5, 1.0, std::max(1.0, most)));
}

// E[e^(-R/M)]: the chance that a recovery ends before the next failure.
double survival(const Job& job, double mtbf) {
  double p = 1;
  for (const Delay& d :
       after_failure(job.times, {job.recovery, job.failure, job.hosts, true, true})) {
    p *= natural_exponential(-in_seconds(d.fixed) / mtbf);
    if (const double x = in_seconds(d.random) / mtbf; x > 1e-9)
      p *= (1 - natural_exponential(-x)) / x;
  }
  return p;
}

// Of a function with one maximum, over whole numbers.
template <class F>
std::int64_t maximum(std::int64_t low, std::int64_t high, const F& f) {
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (f(middle) < f(middle + 1))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace

double young(double stall, double mtbf) {
  return std::sqrt(2 * stall * mtbf);
}

double daly(double stall, double mtbf) {
  if (stall >= 2 * mtbf) return mtbf;
  const double x = stall / (2 * mtbf);
  return young(stall, mtbf) * (1 + std::sqrt(x) / 3 + x / 9) - stall;
}

double mtbf_of(const Job& job) {
  return job.hosts > 0 ? job.host_mtbf_s / job.hosts : 0;
}

std::optional<double> expected_goodput(const Job& job) {
  const double m = mtbf_of(job);
  if (m <= 0 || !job.lost.empty() || !job.added.empty() || job.recovery == Recovery::Torchft)
    return {};
  const double tau = static_cast<double>(job.checkpoints.steps) * in_seconds(job.step);
  const double writes = in_seconds(job.checkpoints.writes);
  const double stalls = std::max(in_seconds(job.checkpoints.stalls), writes - tau);
  // e^x - 1 loses what is small beside 1.
  const double x = (tau + stalls) / m;
  const double grown = x < 1e-5 ? x * (1 + x / 2 * (1 + x / 3)) : natural_exponential(x) - 1;
  return tau / m * natural_exponential(-writes / m) * survival(job, m) / grown;
}

Intervals best_intervals(const Job& asked, std::uint64_t seed, int courses) {
  Job job = asked;
  job.lost.clear();
  Intervals out;
  out.mtbf_s = mtbf_of(job);
  const auto most = std::max<std::int64_t>(1, job.horizon.ps / job.step.ps);
  const double stalls = in_seconds(job.checkpoints.stalls);
  out.young_s = young(stalls, out.mtbf_s);
  out.daly_s = daly(stalls, out.mtbf_s);
  double start = std::max(out.daly_s, in_seconds(job.step));
  if (expected_goodput(job)) {
    out.closed_steps =
        maximum(1, most, [&](std::int64_t n) { return *expected_goodput(with_steps(job, n)); });
    start = static_cast<double>(*out.closed_steps) * in_seconds(job.step);
  }
  // Around it, by the fourth root of 2.
  constexpr double kRatio = 1.189207115002721;
  constexpr double kReach = 4;
  std::vector<std::pair<std::int64_t, double>> tried;
  for (double tau = start / kReach; tau <= start * kReach; tau *= kRatio) {
    const std::int64_t n = steps_of(tau, job);
    if (!tried.empty() && tried.back().first == n) continue;
    tried.emplace_back(n, play_many(with_steps(job, n), seed, courses).goodput);
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < tried.size(); ++i)
    if (tried[i].second > tried[best].second) best = i;
  out.steps = tried[best].first;
  std::size_t from = best;
  std::size_t to = best;
  const double enough = 0.99 * tried[best].second;
  while (from > 0 && tried[from - 1].second >= enough) --from;
  while (to + 1 < tried.size() && tried[to + 1].second >= enough) ++to;
  out.flat_from = tried[from].first;
  out.flat_to = tried[to].first;
  return out;
}

}  // namespace ddpsim::goodput
