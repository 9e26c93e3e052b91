// theta* = min over resources (capacity left / sum of count * per_unit * weight of open flows), and
// over flows (max_rate / weight).
#include "sim/engine/fair_share.h"

#include <algorithm>
#include <limits>

namespace ddpsim::engine {

namespace {

// Which flows use which resource.
void index_users(std::span<const ShareFlow> flows, std::span<const ShareDemand> demands,
                 std::size_t resources, ShareScratch& s) {
  s.first.assign(resources + 1, 0);
  for (const ShareDemand& d : demands) ++s.first[d.resource + 1];
  for (std::size_t r = 0; r < resources; ++r) s.first[r + 1] += s.first[r];
  s.users.resize(demands.size());
  s.open.assign(s.first.begin(), s.first.end() - 1);
  for (std::size_t i = 0; i < flows.size(); ++i)
    for (auto d = flows[i].demand_begin; d < flows[i].demand_end; ++d)
      s.users[s.open[demands[d].resource]++] = static_cast<std::uint32_t>(i);
}

}  // namespace

void fair_share(std::span<const ShareFlow> flows, std::span<const ShareDemand> demands,
                std::span<const double> capacity, std::span<double> rate, ShareScratch& s) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  index_users(flows, demands, capacity.size(), s);
  s.left.assign(capacity.begin(), capacity.end());
  s.slope.assign(capacity.size(), 0);
  s.open.assign(capacity.size(), 0);
  s.fixed.assign(flows.size(), 0);
  s.limited.clear();
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const ShareFlow& f = flows[i];
    if (f.max_rate > 0) s.limited.push_back(static_cast<std::uint32_t>(i));
    for (auto d = f.demand_begin; d < f.demand_end; ++d) {
      s.slope[demands[d].resource] += f.count * demands[d].per_unit * f.weight;
      ++s.open[demands[d].resource];
    }
  }
  auto own_level = [&](std::uint32_t i) { return flows[i].max_rate / flows[i].weight; };
  std::sort(s.limited.begin(), s.limited.end(), [&](std::uint32_t a, std::uint32_t b) {
    return own_level(a) != own_level(b) ? own_level(a) < own_level(b) : a < b;
  });
  s.unsaturated.clear();
  for (std::size_t r = 0; r < capacity.size(); ++r)
    if (s.open[r] > 0) s.unsaturated.push_back(static_cast<std::uint32_t>(r));
  auto fix = [&](std::uint32_t i, double x) {
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
  std::size_t next_limited = 0;
  while (true) {
    double level = kInfinity;
    std::uint32_t tight = 0;
    std::size_t kept = 0;
    for (std::uint32_t r : s.unsaturated) {
      if (s.open[r] == 0) continue;
      s.unsaturated[kept++] = r;
      double l = s.left[r] / s.slope[r];
      if (l < level) level = l, tight = r;
    }
    s.unsaturated.resize(kept);
    while (next_limited < s.limited.size() && s.fixed[s.limited[next_limited]]) ++next_limited;
    if (next_limited < s.limited.size() && own_level(s.limited[next_limited]) <= level) {
      std::uint32_t i = s.limited[next_limited++];
      fix(i, flows[i].max_rate);
      continue;
    }
    if (kept == 0) return;
    for (std::uint32_t u = s.first[tight]; u < s.first[tight + 1]; ++u)
      if (!s.fixed[s.users[u]]) fix(s.users[u], level * flows[s.users[u]].weight);
  }
}

}  // namespace ddpsim::engine
