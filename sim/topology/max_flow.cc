// Boost's edges come in pairs: the arc, and one without capacity that takes its flow back.
#include "sim/topology/max_flow.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>

namespace ddpsim::topology {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
struct Pipe {
  std::int64_t capacity = 0;
  std::int64_t residual = 0;
  Traits::edge_descriptor back;
};
using Graph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Pipe>;

}  // namespace

std::int64_t max_flow(std::size_t vertices, std::vector<Arc>& arcs, std::size_t source,
                      std::size_t sink) {
  Graph g(vertices);
  std::vector<Traits::edge_descriptor> edges;
  edges.reserve(arcs.size());
  for (const Arc& a : arcs) {
    // A pair for each direction of a cable, too: of an edge that has capacity itself, Boost does
    // not return what a vertex has too much of, and the flow is none (its own assertion says so).
    auto there = boost::add_edge(a.from, a.to, g).first;
    auto back = boost::add_edge(a.to, a.from, g).first;
    g[there].capacity = a.capacity;
    g[there].back = back;
    g[back].back = there;
    edges.push_back(there);
  }
  std::int64_t most = boost::push_relabel_max_flow(
      g, source, sink, boost::get(&Pipe::capacity, g), boost::get(&Pipe::residual, g),
      boost::get(&Pipe::back, g), boost::get(boost::vertex_index, g));
  for (std::size_t i = 0; i < arcs.size(); ++i)
    arcs[i].flow = g[edges[i]].capacity - g[edges[i]].residual;
  return most;
}

}  // namespace ddpsim::topology
