#include "sim/topology/link_loads.h"

#include <set>
#include <tuple>

namespace ddpsim::topology {

std::vector<LinkLoad> fold(const Fabric& f, const std::vector<LinkLoad>& all,
                           const std::vector<bool>& apart) {
  using Key = std::tuple<std::int64_t, std::uint8_t, std::int64_t, double, bool>;
  std::set<Key> seen;
  std::vector<LinkLoad> out;
  for (const LinkLoad& l : all) {
    const Link& link = f.links()[l.link];
    if (seen.insert({link.bandwidth.bits_per_s, link.transport, link.staging.bits_per_s, l.per_byte,
                     !apart.empty() && apart[l.link]})
            .second)
      out.push_back(l);
  }
  return out;
}

}  // namespace ddpsim::topology
