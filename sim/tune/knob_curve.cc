#include "sim/tune/knob_curve.h"

#include <algorithm>
#include <map>

#include "sim/systems/base/settings.h"

namespace ddpsim::predict {
namespace {

using systems::Knob;
using systems::KnobValue;

// Halves the gaps beside the best points, the best first.
template <class Attempt>
void refine(const std::map<std::size_t, CurvePoint>& tried, std::size_t most, Attempt attempt) {
  while (tried.size() < most) {
    std::vector<std::pair<std::size_t, std::int64_t>> order;
    for (const auto& [i, p] : tried) order.push_back({i, p.step.ps});
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second < b.second; });
    std::size_t before = tried.size();
    for (const auto& [i, ps] : order) {
      auto at = tried.find(i);
      std::vector<std::size_t> middles;
      if (at != tried.begin() && i - std::prev(at)->first > 1)
        middles.push_back((i + std::prev(at)->first) / 2);
      if (std::next(at) != tried.end() && std::next(at)->first - i > 1)
        middles.push_back((i + std::next(at)->first) / 2);
      for (std::size_t m : middles) attempt(m);
      if (tried.size() > before) break;
    }
    if (tried.size() == before) return;
  }
}

}  // namespace

CurvePoint point_of(PlannedSteps& steps, const Plan& plan, std::optional<KnobValue> value) {
  CurvePoint p;
  p.value = std::move(value);
  p.step = steps.step(plan, Level::Mid);
  if (auto count = systems::record_of(plan.system).count) {
    p.buckets = count(steps.question().workload, plan);
  } else {
    Scenario s;
    p.buckets =
        steady_step(steps.with(plan, s), Level::Mid, steps.options()).program.steady.buckets.size();
  }
  return p;
}

void find_interval(PlannedSteps& steps, const Plan& plan, CurvePoint& p) {
  auto [low, high] = steps.interval(plan);
  p.low = low;
  p.high = high;
}

std::vector<CurvePoint> curve_of(PlannedSteps& steps, const Knob& knob,
                                 const std::vector<KnobValue>& all, bool every) {
  std::map<std::size_t, CurvePoint> tried;
  auto attempt = [&](std::size_t i) {
    if (!tried.count(i))
      tried.emplace(
          i, point_of(steps, systems::with(steps.question().scenario.plan, knob, all[i]), all[i]));
  };
  std::size_t most = every ? all.size() : steps.budget();
  if (all.size() <= most) {
    for (std::size_t i = 0; i < all.size(); ++i) attempt(i);
  } else {
    for (double familiar : {1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0}) {
      double v = knob.unit == "bytes" ? familiar * 1024 * 1024 : familiar;
      auto after =
          std::find_if(all.begin(), all.end(), [&](const KnobValue& k) { return k.number > v; });
      if (after != all.begin()) attempt(after - all.begin() - 1);
    }
    std::size_t coarse = most / 2;
    for (std::size_t k = 0; k < coarse; ++k) attempt(k * (all.size() - 1) / (coarse - 1));
    refine(tried, most, attempt);
  }
  std::vector<CurvePoint> out;
  for (auto& [i, p] : tried) out.push_back(std::move(p));
  return out;
}

std::size_t best_of(const std::vector<CurvePoint>& curve) {
  constexpr double kAlike = 0.001;
  auto it =
      std::min_element(curve.begin(), curve.end(),
                       [](const CurvePoint& a, const CurvePoint& b) { return a.step < b.step; });
  std::size_t best = it - curve.begin();
  Duration limit = scale(it->step, 1 + kAlike);
  std::size_t from = best;
  std::size_t to = best;
  while (from > 0 && curve[from - 1].step <= limit) --from;
  while (to + 1 < curve.size() && curve[to + 1].step <= limit) ++to;
  for (std::size_t i = to + 1; i-- > from;)
    if (curve[i].value->number > 0 && curve[i].value->number <= curve[to].value->number / 2)
      return i;
  return best;
}

std::pair<std::size_t, std::size_t> flat_around(const std::vector<CurvePoint>& curve,
                                                std::size_t best) {
  constexpr double kFlat = 0.01;
  Duration limit = scale(curve[best].step, 1 + kFlat);
  std::size_t from = best;
  std::size_t to = best;
  while (from > 0 && curve[from - 1].step <= limit) --from;
  while (to + 1 < curve.size() && curve[to + 1].step <= limit) ++to;
  return {from, to};
}

}  // namespace ddpsim::predict
