// A node of a communicator as NCCL's search sees it.
#pragma once

#include <vector>

#include "sim/nccl/fabric/group.h"
#include "sim/nccl/search.h"

namespace ddpsim::nccl {

// The node that is the group's `ranks`, its links in NCCL's numbers. Appends to `nics` the
// local indices of the NICs that the search names; none where a node has several hosts. REQUIRES:
// the group's to_memory is known.
Node node_of(const Group& g, const std::vector<int>& ranks, const Machine& machine,
             std::vector<int>& nics);

}  // namespace ddpsim::nccl
