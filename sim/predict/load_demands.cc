#include "sim/predict/load_demands.h"

#include <algorithm>
#include <set>

namespace ddpsim::predict {
namespace {

// What tells links apart.
struct LinkKind {
  double rate = 0, burst = 0, peak = 0;
  std::vector<double> load;  // by list of loads
  auto operator<=>(const LinkKind&) const = default;
};

}  // namespace

std::vector<std::vector<std::vector<engine::Demand>>> load_demands(
    const collective::Communicator& comm, const Profile& profile, Level level, bool fold,
    const std::function<engine::ResourceId(topology::LinkId)>& resource) {
  std::vector<std::vector<std::vector<engine::Demand>>> out;
  std::vector<const std::vector<collective::LinkLoad>*> loads;
  std::vector<std::pair<std::size_t, std::size_t>> place;  // of each list of loads, in `out`
  for (const collective::Pattern& p : comm.patterns) {
    std::size_t rounds = p.by_round ? p.rounds.size() : 0;
    out.emplace_back(1 + rounds);
    for (std::size_t k = 0; k <= rounds; ++k) {
      loads.push_back(k == 0 ? &p.load : &p.rounds[k - 1].load);
      place.emplace_back(out.size() - 1, k);
    }
  }
  std::vector<std::size_t> at(loads.size(), 0);  // by list: the next of its links
  std::set<LinkKind> seen;
  LinkKind last;
  LinkKind kind;
  const topology::Link* before = nullptr;
  for (bool first = true;; first = false) {
    topology::LinkId link = UINT32_MAX;
    for (std::size_t k = 0; k < loads.size(); ++k)
      if (at[k] < loads[k]->size()) link = std::min(link, (*loads[k])[at[k]].link);
    if (link == UINT32_MAX) return out;
    kind.load.assign(loads.size(), 0);
    for (std::size_t k = 0; k < loads.size(); ++k)
      if (at[k] < loads[k]->size() && (*loads[k])[at[k]].link == link)
        kind.load[k] = (*loads[k])[at[k]++].per_byte;
    const topology::Link& l = comm.fabric->links()[link];
    if (before == nullptr || before->bandwidth != l.bandwidth || before->transport != l.transport)
      kind.rate = collective::link_rate(comm, profile, level, link);
    before = &l;
    kind.burst = static_cast<double>(l.burst.count);
    kind.peak = l.peak.bytes_per_ps();
    bool as_before = fold && !first && kind == last;
    last = kind;
    if (as_before || (fold && !seen.insert(kind).second)) continue;
    engine::ResourceId id = resource(link);
    for (std::size_t k = 0; k < loads.size(); ++k)
      if (kind.load[k] > 0) out[place[k].first][place[k].second].push_back({id, kind.load[k]});
  }
}

}  // namespace ddpsim::predict
