#include "sim/play/staleness.h"

#include <algorithm>
#include <cmath>

#include "sim/units/convert.h"

namespace ddpsim::predict {
namespace {

constexpr int kSteps = 24;
constexpr int kOfBound = 4;  // steps for each that a worker may be ahead, up to
constexpr std::int64_t kMostOfBound = 16;
constexpr double kSameTime = 0.01;  // of a step

struct WindowOfTime {
  TimePoint since, until;
};
// From when each has ended a step until the first has none left.
WindowOfTime all_at_work(const Simulation& s) {
  WindowOfTime w{TimePoint{0}, s.steps.back().of_class.front().second};
  for (std::size_t c = 0; c < s.steps.front().of_class.size(); ++c) {
    w.since = std::max(w.since, s.steps.front().of_class[c].second);
    w.until = std::min(w.until, s.steps.back().of_class[c].second);
  }
  return w;
}
// Its second half; where one had not ended a step when another had ended all, of the whole time.
WindowOfTime window_of(const Simulation& s) {
  WindowOfTime w = all_at_work(s);
  if (w.until <= w.since) w.since = TimePoint{0};
  w.since.ps += (w.until - w.since).ps / 2;
  return w;
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

std::optional<int> steps_to_meet(const Simulation& s) {
  const auto [since, until] = all_at_work(s);
  if (since < until || until.ps <= 0) return {};
  TimePoint slow = until;
  for (const auto& [begin, end] : s.steps.back().of_class) slow = std::max(slow, end);
  return static_cast<int>(
      std::min(1e6, std::ceil(static_cast<double>(s.steps.size()) * static_cast<double>(slow.ps) /
                              static_cast<double>(until.ps))));
}

std::vector<double> counted_of(const Simulation& s) {
  const WindowOfTime w = window_of(s);
  std::vector<double> out;
  for (std::size_t k = 0; k < s.steps.size(); ++k)
    for (std::size_t c = 0; c < s.steps[k].of_class.size(); ++c) {
      const TimePoint begin =
          k > 0 ? s.steps[k - 1].of_class[c].second : s.steps[k].of_class[c].first;
      const TimePoint end = s.steps[k].of_class[c].second;
      const Duration inside = std::min(end, w.until) - std::max(begin, w.since);
      out.push_back(inside.ps <= 0 ? 0 : inside / (end - begin));
    }
  return out;
}

Paces paces_of(const Simulation& s, const std::vector<RankClass>& classes,
               const std::vector<double>& counted) {
  Paces out;
  const std::size_t n = classes.size();
  const auto [since, until] = window_of(s);
  const double window_s = seconds(until - since);
  double all = 0;
  for (std::size_t c = 0; c < n; ++c) {
    double steps = 0;
    for (std::size_t k = 0; k < s.steps.size(); ++k) steps += counted[k * n + c];
    out.steps_per_s.push_back(steps / window_s);
    all += out.steps_per_s.back();
  }
  out.step = {static_cast<std::int64_t>(static_cast<double>(n) / all * kPsPerSecond)};
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
