#include "sim/predict/staleness.h"

#include <algorithm>
#include <cmath>

namespace ddpsim::predict {
namespace {

constexpr int kSteps = 24;
constexpr int kOfBound = 4;  // steps for each that a worker may be ahead, up to
constexpr std::int64_t kMostOfBound = 16;
constexpr double kSameTime = 0.01;  // of a step

// Steps that class c has ended, with a share of the one that it is in.
double progress(const Simulation& s, std::size_t c, TimePoint t) {
  for (std::size_t k = 0; k < s.steps.size(); ++k) {
    const auto [begin, end] = s.steps[k].of_class[c];
    if (end <= t) continue;
    const double part = static_cast<double>((t - begin).ps) / static_cast<double>((end - begin).ps);
    return static_cast<double>(k) + std::max(0.0, part);  // it may wait for its clock
  }
  return static_cast<double>(s.steps.size());
}

}  // namespace

int steps_apart(const std::vector<RankClass>& classes, std::int64_t staleness) {
  double slow = 0;
  double fast = 1e300;
  for (const RankClass& c : classes) {
    slow = std::max(slow, c.factor);
    fast = std::min(fast, c.factor);
  }
  const auto bound = std::clamp<std::int64_t>(staleness, 0, kMostOfBound);
  return static_cast<int>((kSteps + kOfBound * static_cast<int>(bound)) * slow / fast);
}

Paces paces_of(const Simulation& s, const std::vector<RankClass>& classes) {
  Paces out;
  const std::size_t n = classes.size();
  TimePoint since{0};
  TimePoint until = s.steps.back().of_class.front().second;
  for (std::size_t c = 0; c < n; ++c) {
    since = std::max(since, s.steps.front().of_class[c].second);
    until = std::min(until, s.steps.back().of_class[c].second);
  }
  since.ps += (until - since).ps / 2;
  const double seconds = static_cast<double>((until - since).ps) / 1e12;
  double all = 0;
  for (std::size_t c = 0; c < n; ++c) {
    out.steps_per_s.push_back((progress(s, c, until) - progress(s, c, since)) / seconds);
    all += out.steps_per_s.back();
  }
  out.step = {static_cast<std::int64_t>(static_cast<double>(n) / all * 1e12)};
  const auto near = static_cast<std::int64_t>(kSameTime * static_cast<double>(out.step.ps));
  double updates = 0;
  for (std::size_t c = 0; c < n; ++c)
    for (const SimulatedStep& step : s.steps) {
      const auto [begin, end] = step.of_class[c];
      if (begin < since || end > until) continue;
      double missed = 0;
      for (std::size_t other = 0; other < n; ++other)
        for (const SimulatedStep& theirs : s.steps) {
          const std::int64_t at = theirs.of_class[other].second.ps;
          if (other == c || at <= begin.ps + near || at > end.ps + near) continue;
          missed += at < end.ps - near ? 1 : 0.5;
        }
      const auto whole = static_cast<std::size_t>(std::ceil(missed));
      if (out.staleness_share.size() <= whole) out.staleness_share.resize(whole + 1);
      out.staleness_share[whole] += 1;
      out.staleness_mean += missed;
      out.staleness_most = std::max(out.staleness_most, missed);
      updates += 1;
    }
  for (double& share : out.staleness_share) share /= std::max(1.0, updates);
  out.staleness_mean /= std::max(1.0, updates);
  return out;
}

}  // namespace ddpsim::predict
