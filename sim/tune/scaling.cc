//   steps of an epoch: those of a DistributedSampler (model/sampler.h), the last one counted whole
//   cost = price * ranks * steps * step
#include "sim/tune/scaling.h"

#include <algorithm>

#include "sim/units/convert.h"

namespace ddpsim::predict {

Scaling scaling(const Question& q, const Plan& plan, double price_per_hour,
                std::int64_t epoch_samples, double deadline_s, const Options& options) {
  Scaling out;
  out.price_per_hour = price_per_hour;
  out.epoch_samples = epoch_samples;
  out.deadline_s = deadline_s;
  std::vector<int> counts;
  for (int n = 1; n < q.scenario.ranks; n *= 2) counts.push_back(n);
  counts.push_back(q.scenario.ranks);
  for (int n : counts) {
    Scenario s = q.scenario;
    s.plan = plan;
    s.ranks = n;
    if (!s.rank_order.empty()) s.rank_order.resize(n);
    s.slow_ranks.erase(s.slow_ranks.lower_bound(n), s.slow_ranks.end());
    Question changed{q.workload, q.fabric, q.profile, s};
    if (check(changed, options.known)) continue;
    RankCount r;
    r.ranks = n;
    r.step = steady_period(changed, Level::Mid, options);
    const double step_s = seconds(r.step);
    std::int64_t a_step = static_cast<std::int64_t>(q.workload.batch) * plan.accumulation_steps * n;
    r.samples_per_s = static_cast<double>(a_step) / step_s;
    r.epoch = epoch_of(
        {std::max<std::int64_t>(epoch_samples, 1), n, q.workload.batch, plan.accumulation_steps});
    r.epoch_s = static_cast<double>(r.epoch.steps) * step_s;
    r.epoch_cost = r.epoch_s / 3600 * price_per_hour * n;
    r.efficiency =
        out.counts.empty()
            ? 1
            : r.samples_per_s / n / (out.counts.front().samples_per_s / out.counts.front().ranks);
    out.counts.push_back(r);
  }
  for (std::size_t i = 0; i < out.counts.size(); ++i) {
    if (deadline_s > 0 && out.counts[i].epoch_s > deadline_s) continue;
    bool cheaper =
        !out.cheapest ||
        (price_per_hour > 0 && out.counts[i].epoch_cost <= out.counts[*out.cheapest].epoch_cost);
    if (cheaper) out.cheapest = i;
  }
  return out;
}

}  // namespace ddpsim::predict
