// Dijkstra over (links, narrowest link), lexicographically: fewest links first, then the widest.
#include "sim/topology/host_routes.h"

#include <algorithm>
#include <array>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/connected_components.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/filtered_graph.hpp>

#include "sim/units/by.h"

namespace ddpsim::topology {
namespace {

constexpr By<LinkKind, const char*, 5> kKindNames{"nvlink", "c2c", "pcie", "upi", "net"};

// What a way costs: fewer links first, then more bandwidth.
struct Length {
  int hops = 0;
  std::int64_t width = INT64_MAX;
  bool operator<(const Length& o) const { return hops != o.hops ? hops < o.hops : width > o.width; }
};
constexpr Length kUnreached{INT32_MAX, 0};

struct Edge {
  std::uint32_t link = 0;  // directed
  std::int64_t width = 0;
};
using Graph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Edge>;
using Vertex = boost::graph_traits<Graph>::vertex_descriptor;

// GPUs and NICs end a way; only the one that it starts from has links out of it.
struct Leaves {
  const Graph* graph = nullptr;
  const HostGraph* host = nullptr;
  Vertex start = 0;
  template <class E>
  bool operator()(E e) const {
    Vertex v = boost::source(e, *graph);
    VertexKind k = host->vertices[v].kind;
    return v == start || (k != VertexKind::Gpu && k != VertexKind::Nic);
  }
};

class Search {
 public:
  Search(const HostGraph& host, const std::vector<bool>& failed)
      : host_(host), graph_(host.vertices.size()) {
    for (std::size_t i = 0; i < host.links.size(); ++i) {
      if (!failed.empty() && failed[i]) continue;
      const auto& l = host.links[i];
      auto from = static_cast<Vertex>(l.from);
      auto to = static_cast<Vertex>(l.to);
      boost::add_edge(from, to,
                      Edge{static_cast<std::uint32_t>(2 * i), l.link.bandwidth.bits_per_s}, graph_);
      boost::add_edge(to, from,
                      Edge{static_cast<std::uint32_t>(2 * i + 1), l.link.bandwidth.bits_per_s},
                      graph_);
      if (l.link.transport != "nvlink") continue;
      nvlink_.resize(host.vertices.size() * host.vertices.size(), UINT32_MAX);
      for (bool back : {false, true}) {
        std::uint32_t& known = nvlink_[nvlink_index(back ? l.to : l.from, back ? l.from : l.to)];
        if (known == UINT32_MAX) known = static_cast<std::uint32_t>(2 * i + (back ? 1 : 0));
      }
    }
  }

  // Ways from `start` to every vertex.
  void run(int start) {
    start_ = static_cast<Vertex>(start);
    auto n = host_.vertices.size();
    length_.assign(n, kUnreached);
    before_.assign(n, 0);
    by_.assign(n, UINT32_MAX);
    boost::filtered_graph<Graph, Leaves> g(graph_, Leaves{&graph_, &host_, start_});
    struct Record : boost::default_dijkstra_visitor {
      std::vector<std::uint32_t>* by = nullptr;
      void edge_relaxed(Graph::edge_descriptor e,
                        const boost::filtered_graph<Graph, Leaves>& graph) {
        (*by)[boost::target(e, graph)] = graph[e].link;
      }
    };
    Record record;
    record.by = &by_;
    auto widths = boost::get(&Edge::width, g);
    boost::dijkstra_shortest_paths(
        g, start_,
        boost::predecessor_map(
            boost::make_iterator_property_map(before_.begin(), boost::get(boost::vertex_index, g)))
            .distance_map(boost::make_iterator_property_map(length_.begin(),
                                                            boost::get(boost::vertex_index, g)))
            .weight_map(widths)
            .distance_compare([](const Length& a, const Length& b) { return a < b; })
            .distance_combine([](const Length& d, const auto& w) { return extend(d, w); })
            .distance_inf(kUnreached)
            .distance_zero(Length{})
            .visitor(record));
  }

  LocalPath to(int end) const {
    LocalPath p;
    auto v = static_cast<Vertex>(end);
    if (v == start_) {
      p.type = PathType::Loc;
      return p;
    }
    if (by_[v] == UINT32_MAX) return p;
    for (; v != start_; v = before_[v]) p.links.push_back(by_[v]);
    std::reverse(p.links.begin(), p.links.end());
    finish(p);
    return p;
  }

  // By NVLink through one other GPU, if that is shorter, or as short and wider.
  void through_a_gpu(int end, LocalPath& best) const {
    auto length = [](const LocalPath& x) {
      if (x.type == PathType::Dis) return kUnreached;
      return Length{static_cast<int>(x.links.size()), x.bits_per_s};
    };
    auto width = [&](std::uint32_t l) { return host_.links[l / 2].link.bandwidth.bits_per_s; };
    for (int middle : host_.gpus) {
      if (middle == static_cast<int>(start_) || middle == end) continue;
      std::uint32_t first = nvlink(static_cast<int>(start_), middle);
      std::uint32_t second = nvlink(middle, end);
      if (first == UINT32_MAX || second == UINT32_MAX) continue;
      if (!(Length{2, std::min(width(first), width(second))} < length(best))) continue;
      best = {};
      best.links = {first, second};
      finish(best);
    }
  }

  // One way behind the other.
  LocalPath joined(const LocalPath& first, const LocalPath& second) const {
    LocalPath p;
    if (first.type == PathType::Dis || second.type == PathType::Dis) return p;
    p.links = first.links;
    p.links.insert(p.links.end(), second.links.begin(), second.links.end());
    finish(p);
    return p;
  }

 private:
  static Length extend(const Length& d, std::int64_t width) {
    return d.hops == INT32_MAX ? d : Length{d.hops + 1, std::min(d.width, width)};
  }
  static Length extend(std::int64_t, const Length& d) { return d; }

  std::size_t nvlink_index(int from, int to) const { return from * host_.vertices.size() + to; }
  std::uint32_t nvlink(int from, int to) const {
    return nvlink_.empty() ? UINT32_MAX : nvlink_[nvlink_index(from, to)];
  }

  // Type and width of a way. Type: the farthest of its links, as ncclTopoSetPaths has it.
  void finish(LocalPath& p) const {
    p.type = PathType::Loc;
    p.bits_per_s = INT64_MAX;
    p.decides = p.links.front();
    int pcie = 0;
    bool c2c = false;
    auto decisive = [&](std::uint32_t l) {  // how much a link decides the software path
      constexpr By<LinkKind, int, 5> kOrder{0, 2, 3, 1, 1};
      return kOrder[kind_of(host_.links[l / 2].link.transport)];
    };
    for (std::uint32_t l : p.links) {
      const auto& link = host_.links[l / 2];
      p.bits_per_s = std::min(p.bits_per_s, link.link.bandwidth.bits_per_s);
      VertexKind a = host_.vertices[link.from].kind;
      VertexKind b = host_.vertices[link.to].kind;
      PathType t = PathType::Sys;
      switch (kind_of(link.link.transport)) {
        case LinkKind::Nvlink:
          t = PathType::Nvl;
          break;
        case LinkKind::C2c:
          t = PathType::C2c, c2c = true;
          break;
        case LinkKind::Pcie:
          ++pcie;
          t = a == VertexKind::Cpu || b == VertexKind::Cpu                 ? PathType::Phb
              : a == VertexKind::PcieSwitch && b == VertexKind::PcieSwitch ? PathType::Pxb
                                                                           : PathType::Pix;
          break;
        default:
          break;
      }
      p.type = std::max(p.type, t);
      if (decisive(l) > decisive(p.decides)) p.decides = l;
    }
    if (p.type == PathType::Nvl && p.links.size() == 2) {
      const auto& first = host_.links[p.links[0] / 2];
      int middle = p.links[0] % 2 == 0 ? first.to : first.from;
      if (host_.vertices[middle].kind == VertexKind::Gpu) p.type = PathType::Nvb;
    }
    if (p.type == PathType::Phb && c2c && pcie == 1) p.type = PathType::P2c;
  }

  const HostGraph& host_;
  Graph graph_;
  std::vector<std::uint32_t> nvlink_;  // [from][to] the first one that joins them; UINT32_MAX =
                                       // none; empty: there are none at all
  Vertex start_ = 0;
  std::vector<Length> length_;
  std::vector<Vertex> before_;
  std::vector<std::uint32_t> by_;
};

LocalPath reversed(LocalPath p) {
  std::reverse(p.links.begin(), p.links.end());
  for (std::uint32_t& l : p.links) l ^= 1u;
  p.decides ^= 1u;
  return p;
}

std::vector<int> nvlink_domains(const HostGraph& host, const std::vector<bool>& failed) {
  boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS> g(host.vertices.size());
  for (std::size_t i = 0; i < host.links.size(); ++i)
    if (host.links[i].link.transport == "nvlink" && (failed.empty() || !failed[i]))
      boost::add_edge(host.links[i].from, host.links[i].to, g);
  std::vector<int> component(host.vertices.size());
  if (!component.empty()) boost::connected_components(g, component.data());
  std::vector<int> out;
  for (int v : host.gpus) out.push_back(component[v]);
  return out;
}

std::vector<int> cpus_of(const HostGraph& host) {
  std::vector<int> out;
  for (std::size_t v = 0; v < host.vertices.size(); ++v)
    if (host.vertices[v].kind == VertexKind::Cpu) out.push_back(static_cast<int>(v));
  return out;
}

std::vector<LocalPath>::const_iterator nearest_of(const std::vector<LocalPath>& ways) {
  return std::min_element(ways.begin(), ways.end(), [](const auto& x, const auto& y) {
    return std::tuple(x.type, x.links.size()) < std::tuple(y.type, y.links.size());
  });
}

}  // namespace

const char* name_of(LinkKind k) {
  return kKindNames[k];
}
LinkKind kind_of(const std::string& transport) {
  return kKindNames.find(transport).value_or(LinkKind::Net);
}

void HostRoutes::choose_nic(int gpu, std::vector<int>& serves) {
  int best = -1;
  for (int k = 0; k < nics_; ++k) {
    auto rank = [&](int nic) {
      const LocalPath& x = to_nic_[index(gpu, nic, nics_)];
      return std::tuple(x.type, x.links.size(), serves[nic]);
    };
    if (best < 0 || rank(k) < rank(best)) best = k;
  }
  nic_of_.push_back(std::max(best, 0));
  if (best >= 0) ++serves[best];
}

void HostRoutes::find_nvswitches(const HostGraph& host, const std::vector<bool>& failed) {
  to_nvswitch_.assign(gpus_, UINT32_MAX);
  for (std::size_t i = 0; i < host.links.size(); ++i) {
    if (!failed.empty() && failed[i]) continue;
    for (int g = 0; g < gpus_; ++g) {
      int v = host.gpus[g];
      auto is_switch = [&](int x) { return host.vertices[x].kind == VertexKind::Nvswitch; };
      if (host.links[i].from == v && is_switch(host.links[i].to))
        to_nvswitch_[g] = static_cast<std::uint32_t>(2 * i);
      if (host.links[i].to == v && is_switch(host.links[i].from))
        to_nvswitch_[g] = static_cast<std::uint32_t>(2 * i + 1);
    }
  }
}

// PXN: a GPU whose own way to a NIC leaves the PCIe switches takes the NVLink to the first GPU
// that is near that NIC. What comes in goes to the GPU itself.
void HostRoutes::find_ways_by_other_gpus() {
  std::vector<LocalPath> own = to_nic_;
  for (int a = 0; a < gpus_; ++a)
    for (int k = 0; k < nics_; ++k) {
      LocalPath& p = to_nic_[index(a, k, nics_)];
      if (p.type <= PathType::P2c) continue;
      const LocalPath* best = nullptr;
      const LocalPath* leg = nullptr;
      for (int b = 0; b < gpus_; ++b) {
        const LocalPath& last = own[index(b, k, nics_)];
        const LocalPath& first = between_[index(a, b, gpus_)];
        if (b == a || first.type != PathType::Nvl || last.type > PathType::P2c) continue;
        if (!best || last.type < best->type ||
            (last.type == best->type && last.bits_per_s > best->bits_per_s))
          best = &last, leg = &first;
      }
      if (!best) continue;
      p.links = leg->links;
      p.links.insert(p.links.end(), best->links.begin(), best->links.end());
      p.type = PathType::Pxn;
      p.bits_per_s = std::min(leg->bits_per_s, best->bits_per_s);
    }
}

HostRoutes::HostRoutes(const HostGraph& host, const std::vector<bool>& failed)
    : gpus_(static_cast<int>(host.gpus.size())), nics_(static_cast<int>(host.nics.size())) {
  Search search(host, failed);
  between_.resize(host.gpus.size() * host.gpus.size());
  to_nic_.resize(host.gpus.size() * host.nics.size());
  const std::vector<int> cpus = cpus_of(host);
  std::vector<std::vector<LocalPath>> to_cpu(host.gpus.size());
  std::vector<int> serves(host.nics.size(), 0);
  for (int a = 0; a < gpus_; ++a) {
    search.run(host.gpus[a]);
    for (int b = a; b < gpus_; ++b) {
      LocalPath p = search.to(host.gpus[b]);
      if (a != b) search.through_a_gpu(host.gpus[b], p);
      split_ = split_ || p.type == PathType::Dis;
      between_[index(b, a, gpus_)] = reversed(p);
      between_[index(a, b, gpus_)] = std::move(p);
    }
    for (int c : cpus) to_cpu[a].push_back(search.to(c));
    for (int k = 0; k < nics_; ++k) {
      LocalPath& p = to_nic_[index(a, k, nics_)] = search.to(host.nics[k]);
      draws_nics_ = draws_nics_ || p.type != PathType::Dis;
    }
    choose_nic(a, serves);
  }
  by_cpu_.resize(between_.size());
  to_cpu_.resize(gpus_);
  for (int b = 0; b < gpus_ && !cpus.empty(); ++b) {
    const std::vector<LocalPath>& ways = to_cpu[b];
    auto nearest = nearest_of(ways);
    std::size_t cpu = nearest - ways.begin();
    to_cpu_[b] = *nearest;
    for (int a = 0; a < gpus_; ++a)
      if (a != b) by_cpu_[index(a, b, gpus_)] = search.joined(to_cpu[a][cpu], reversed(*nearest));
  }
  find_nvswitches(host, failed);
  domain_ = nvlink_domains(host, failed);
  for (const LocalPath& p : to_nic_) from_nic_.push_back(reversed(p));
  find_ways_by_other_gpus();
}

}  // namespace ddpsim::topology
