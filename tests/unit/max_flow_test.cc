// Maximum flow: that the flow is one, and its value against the smallest of all cuts.
#include "sim/topology/max_flow.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using topology::Arc;

// Independent: every set of vertices with the source and without the sink.
std::int64_t smallest_cut(std::size_t vertices, const std::vector<Arc>& arcs, std::size_t source,
                          std::size_t sink) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t set = 0; set < std::size_t{1} << vertices; ++set) {
    auto has = [&](std::size_t v) { return (set >> v & 1) != 0; };
    if (!has(source) || has(sink)) continue;
    std::int64_t out = 0;
    for (const Arc& a : arcs)
      if (has(a.from) && !has(a.to)) out += a.capacity;
    least = std::min(least, out);
  }
  return least;
}

void expect_flow(std::size_t vertices, std::vector<Arc> arcs, std::size_t source, std::size_t sink,
                 const std::string& where) {
  std::int64_t most = topology::max_flow(vertices, arcs, source, sink);
  EXPECT_EQ(most, smallest_cut(vertices, arcs, source, sink)) << where;
  std::vector<std::int64_t> stays(vertices, 0);
  for (const Arc& a : arcs) {
    EXPECT_GE(a.flow, 0) << where << ": arc " << a.from << "-" << a.to;
    EXPECT_LE(a.flow, a.capacity) << where << ": arc " << a.from << "-" << a.to;
    stays[a.to] += a.flow;
    stays[a.from] -= a.flow;
  }
  for (std::size_t v = 0; v < vertices; ++v)
    EXPECT_EQ(stays[v], v == sink ? most : v == source ? -most : 0) << where << ": vertex " << v;
}

// Cables in both directions, and more into a vertex than out of it: what is too much goes back.
TEST(MaxFlow, ReturnsWhatAVertexHasTooMuchOf) {
  expect_flow(4, {{0, 1, 10}, {1, 2, 3}, {2, 1, 3}, {1, 3, 2}, {3, 1, 2}, {2, 3, 1}}, 0, 3,
              "dead end");
  expect_flow(3, {{0, 1, 7}, {1, 0, 7}, {1, 2, 0}, {2, 1, 4}}, 0, 2, "nothing arrives");
}

TEST(MaxFlow, IsAFlowAndTheSmallestCut) {
  Random random(20261122);
  for (int k = 0; k < 400; ++k) {
    std::size_t n = 2 + random.below(std::size_t{7});
    std::vector<Arc> arcs;
    for (std::size_t cables = 1 + random.below(3 * n); cables > 0; --cables) {
      std::size_t a = random.below(n);
      std::size_t b = random.below(n);
      if (a == b) continue;
      arcs.push_back({a, b, static_cast<std::int64_t>(random.below(10u))});
      if (random.below(4) != 0)
        arcs.push_back({b, a, static_cast<std::int64_t>(random.below(10u))});
    }
    expect_flow(n, arcs, 0, n - 1, "network " + std::to_string(k));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ddpsim::test
