// theta* = min over resources (capacity left / sum of count * per_unit * weight of open flows), and over flows (max_rate / weight).
#include "sim/engine/fair_share.h"

#include <limits>

namespace ddpsim::engine {

void fair_share(std::span<const ShareFlow> flows, std::span<const ShareDemand> demands, std::span<const double> capacity,
                std::span<double> rate, ShareScratch& s) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  s.left.assign(capacity.begin(), capacity.end());
  s.slope.assign(capacity.size(), 0);
  s.open.assign(capacity.size(), 0);
  s.fixed.assign(flows.size(), 0);
  for (const ShareFlow& f : flows) {
    for (auto d = f.demand_begin; d < f.demand_end; ++d) {
      s.slope[demands[d].resource] += f.count * demands[d].per_unit * f.weight;
      ++s.open[demands[d].resource];
    }
  }
  auto fix = [&](std::size_t i, double x) {
    const ShareFlow& f = flows[i];
    rate[i] = x;
    s.fixed[i] = 1;
    for (auto d = f.demand_begin; d < f.demand_end; ++d) {
      auto r = demands[d].resource;
      s.left[r] -= f.count * demands[d].per_unit * x;
      if (s.left[r] < 0) s.left[r] = 0;
      s.slope[r] -= f.count * demands[d].per_unit * f.weight;
      --s.open[r];
    }
  };
  std::size_t remaining = flows.size();
  while (remaining > 0) {
    double level = kInfinity;
    std::size_t tight = capacity.size();
    for (std::size_t r = 0; r < capacity.size(); ++r) {
      if (s.open[r] == 0) continue;
      double l = s.left[r] / s.slope[r];
      if (l < level) level = l, tight = r;
    }
    bool by_own_limit = false;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (s.fixed[i] || flows[i].max_rate <= 0) continue;
      double l = flows[i].max_rate / flows[i].weight;
      if (l <= level) level = l, by_own_limit = true;
    }
    std::size_t before = remaining;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (s.fixed[i]) continue;
      const ShareFlow& f = flows[i];
      if (by_own_limit) {
        if (f.max_rate > 0 && f.max_rate / f.weight <= level) fix(i, f.max_rate), --remaining;
        continue;
      }
      for (auto d = f.demand_begin; d < f.demand_end; ++d) {
        if (demands[d].resource == tight) {
          fix(i, level * f.weight), --remaining;
          break;
        }
      }
    }
    if (remaining == before) break;  // only flows without demand and without limit are left: not reachable by contract
  }
}

}  // namespace ddpsim::engine
