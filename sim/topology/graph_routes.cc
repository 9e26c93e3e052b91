// Breadth-first search over switches and trunks.
#include <algorithm>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>

#include "sim/topology/network.h"

namespace ddpsim::topology {
namespace {

struct EdgeIndex {
  std::uint32_t link = 0;
};
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property,
                                    EdgeIndex>;

struct RecordInbound : boost::default_bfs_visitor {
  std::vector<std::uint32_t>* inbound = nullptr;
  template <class Edge>
  void tree_edge(Edge e, const Graph& g) {
    (*inbound)[boost::target(e, g)] = g[e].link;
  }
};

struct RecordDistance : boost::default_bfs_visitor {
  std::uint16_t* distance = nullptr;
  template <class Edge>
  void tree_edge(Edge e, const Graph& g) {
    distance[boost::target(e, g)] =
        static_cast<std::uint16_t>(std::min(distance[boost::source(e, g)] + 1, UINT16_MAX - 1));
  }
};

Graph graph_of(int nodes, const std::vector<Trunk>& links, const std::vector<bool>& failed) {
  Graph g(nodes);
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (!failed.empty() && failed[i]) continue;
    auto from = static_cast<std::size_t>(links[i].from);
    auto to = static_cast<std::size_t>(links[i].to);
    auto link = static_cast<std::uint32_t>(2 * i);
    boost::add_edge(from, to, EdgeIndex{link}, g);
    boost::add_edge(to, from, EdgeIndex{link + 1}, g);
  }
  return g;
}

}  // namespace

GraphRoutes route_graph(int nodes, const std::vector<Trunk>& links, const std::vector<bool>& failed,
                        const std::vector<int>& host_node) {
  GraphRoutes out;
  Graph g = graph_of(nodes, links, failed);
  for (int node : host_node) {
    std::vector<std::uint32_t> inbound(nodes, UINT32_MAX);
    RecordInbound visitor;
    visitor.inbound = &inbound;
    boost::breadth_first_search(g, node, boost::visitor(visitor));
    out.inbound.push_back(std::move(inbound));
  }
  return out;
}

void distances(int switches, const std::vector<Trunk>& trunks, const std::vector<bool>& failed,
               const std::vector<int>& ends, std::vector<std::uint16_t>& out) {
  Graph g = graph_of(switches, trunks, failed);
  for (std::size_t row = 0; row < ends.size(); ++row) {
    RecordDistance visitor;
    visitor.distance = out.data() + row * switches;
    visitor.distance[ends[row]] = 0;
    boost::breadth_first_search(g, ends[row], boost::visitor(visitor));
  }
}

}  // namespace ddpsim::topology
