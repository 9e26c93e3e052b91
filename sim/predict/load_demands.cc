#include "sim/predict/load_demands.h"

#include <algorithm>
#include <set>

namespace ddpsim::predict {
namespace {

// What tells links apart.
struct LinkKind {
  double rate = 0, burst = 0, peak = 0;
  std::vector<double> load;  // by pattern
  auto operator<=>(const LinkKind&) const = default;
};

}  // namespace

std::vector<std::vector<engine::Demand>> load_demands(const collective::Communicator& comm, const Profile& profile, Level level, bool fold,
                                                      const std::function<engine::ResourceId(topology::LinkId)>& resource) {
  const auto& patterns = comm.patterns;
  std::vector<std::vector<engine::Demand>> out(patterns.size());
  std::vector<std::size_t> at(patterns.size(), 0);  // by pattern: the next of its links
  std::set<LinkKind> seen;
  LinkKind last;
  LinkKind kind;
  for (bool first = true;; first = false) {
    topology::LinkId link = UINT32_MAX;
    for (std::size_t k = 0; k < patterns.size(); ++k)
      if (at[k] < patterns[k].load.size()) link = std::min(link, patterns[k].load[at[k]].link);
    if (link == UINT32_MAX) return out;
    kind.load.assign(patterns.size(), 0);
    for (std::size_t k = 0; k < patterns.size(); ++k)
      if (at[k] < patterns[k].load.size() && patterns[k].load[at[k]].link == link) kind.load[k] = patterns[k].load[at[k]++].per_byte;
    const topology::Link& l = comm.fabric->links()[link];
    kind.rate = collective::link_rate(comm, profile, level, link);
    kind.burst = static_cast<double>(l.burst.count);
    kind.peak = l.peak.bytes_per_ps();
    bool as_before = fold && !first && kind == last;
    last = kind;
    if (as_before || (fold && !seen.insert(kind).second)) continue;
    engine::ResourceId id = resource(link);
    for (std::size_t k = 0; k < patterns.size(); ++k)
      if (kind.load[k] > 0) out[k].push_back({id, kind.load[k]});
  }
}

}  // namespace ddpsim::predict
