// Closed forms look at one link of each kind where a communicator knows its kinds: of 131,072 ranks
// millions of links are alike.
#pragma once

#include <algorithm>

#include "sim/collective/communicator.h"

namespace ddpsim::collective {

// Calls each(LinkLoad) for one link of each kind, or for all links where the communicator does not
// know kinds (Communicator::distinct). REQUIRES: `load` is that of one of the communicator's
// patterns, or of a round that a price has a phase for.
template <typename Each>
void for_each_kind(const Communicator& c, const std::vector<LinkLoad>& load, Each each) {
  if (c.distinct.empty()) {
    for (const LinkLoad& l : load) each(l);
    return;
  }
  auto at = load.begin();
  for (topology::LinkId link : c.distinct) {
    at = std::lower_bound(at, load.end(), link,
                          [](const LinkLoad& l, topology::LinkId id) { return l.link < id; });
    if (at == load.end()) return;
    if (at->link == link) each(*at);
  }
}

}  // namespace ddpsim::collective
