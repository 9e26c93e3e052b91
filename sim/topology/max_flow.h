// The most that can flow from one vertex to another through arcs of limited capacity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddpsim::topology {

// Capacity and flow in one unit of the caller's, for example bit/s.
struct Arc {
  std::size_t from = 0;
  std::size_t to = 0;
  std::int64_t capacity = 0;
  std::int64_t flow = 0;
};

// The maximum flow from `source` to `sink`, by push-relabel (Goldberg and Tarjan, J. ACM 35, 1988;
// Boost.Graph); sets the flow of each arc to one that attains it: 0 <= flow <= capacity, and what
// enters a vertex leaves it. Arcs may be parallel, and there and back.
// REQUIRES: vertices of arcs below `vertices`; source != sink; capacities >= 0, which add up to no
// more than an int64 holds.
std::int64_t max_flow(std::size_t vertices, std::vector<Arc>& arcs, std::size_t source,
                      std::size_t sink);

}  // namespace ddpsim::topology
