// What a communicator's patterns ask of the links, at collective fidelity.
#pragma once

#include <functional>
#include <vector>

#include "sim/collective/price.h"
#include "sim/engine/task_graph.h"

namespace ddpsim::predict {

// Demands of one byte of work: by pattern, of the mean ([0]) and of each round ([1 + round], where
// the pattern is priced by round). `resource`: gives a link's, in ascending order of links. Links
// that carry the same share of everything constrain alike: with `fold`, one of each kind is enough.
std::vector<std::vector<std::vector<engine::Demand>>> load_demands(
    const collective::Communicator& comm, const Profile& profile, Level level, bool fold,
    const std::function<engine::ResourceId(topology::LinkId)>& resource);

// Communicator::distinct, of its patterns as they are.
std::vector<topology::LinkId> distinct_links(const collective::Communicator& comm);

}  // namespace ddpsim::predict
