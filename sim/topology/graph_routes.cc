// Breadth-first search from each host over the cluster's graph.
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <map>

#include "sim/topology/fabric.h"

namespace ddpsim::topology {
namespace {

struct EdgeIndex {
  std::uint32_t link = 0;
};
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, EdgeIndex>;

struct RecordInbound : boost::default_bfs_visitor {
  std::vector<std::uint32_t>* inbound;
  template <class Edge>
  void tree_edge(Edge e, const Graph& g) {
    (*inbound)[boost::target(e, g)] = g[e].link;
  }
};

}  // namespace

GraphRoutes route_graph(const Cluster& c) {
  GraphRoutes out;
  std::map<std::string, int> index;
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    index[c.nodes[i].name] = static_cast<int>(i);
    if (c.nodes[i].host) out.host_node.push_back(static_cast<int>(i));
  }
  Graph g(c.nodes.size());
  for (std::size_t i = 0; i < c.links.size(); ++i) {
    int from = index.at(c.links[i].from);
    int to = index.at(c.links[i].to);
    auto link = static_cast<std::uint32_t>(2 * i);
    boost::add_edge(static_cast<std::size_t>(from), static_cast<std::size_t>(to), EdgeIndex{link}, g);
    boost::add_edge(static_cast<std::size_t>(to), static_cast<std::size_t>(from), EdgeIndex{link + 1}, g);
    out.link_from.push_back(from);
    out.link_from.push_back(to);
  }
  for (int node : out.host_node) {
    std::vector<std::uint32_t> inbound(c.nodes.size(), UINT32_MAX);
    RecordInbound visitor;
    visitor.inbound = &inbound;
    boost::breadth_first_search(g, static_cast<std::size_t>(node), boost::visitor(visitor));
    out.inbound.push_back(std::move(inbound));
  }
  return out;
}

}  // namespace ddpsim::topology
