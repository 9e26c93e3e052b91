// Minimum cuts by maximum flow, and articulation points and bridges of hosts, switches and cables.
#include <algorithm>
#include <map>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/biconnected_components.hpp>

#include "sim/topology/max_flow.h"
#include "sim/topology/survey.h"

namespace ddpsim::topology {
namespace {

constexpr std::size_t kMostTrunks = 200'000;
constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

class Cut {
 public:
  explicit Cut(std::size_t vertices) : source_(vertices), sink_(vertices + 1) {}
  void join(std::size_t a, std::size_t b, std::int64_t there, std::int64_t back) {
    arcs_.push_back({a, b, there});
    arcs_.push_back({b, a, back});
  }
  void enter(std::size_t v, std::int64_t capacity) { arcs_.push_back({source_, v, capacity}); }
  void leave(std::size_t v, std::int64_t capacity) { arcs_.push_back({v, sink_, capacity}); }
  std::int64_t flow() { return max_flow(sink_ + 1, arcs_, source_, sink_); }

 private:
  std::vector<Arc> arcs_;
  std::size_t source_;
  std::size_t sink_;
};

std::int64_t rate(const Fabric& f, LinkId l) {
  return f.failed(l) ? 0 : f.links()[l].bandwidth.bits_per_s;
}

// "the" for one, "each of N" for more.
std::string of(std::int64_t n, const std::string& one, const std::string& many) {
  return n == 1 ? "the " + one : "each of " + std::to_string(n) + " " + many;
}

}  // namespace

std::int64_t bisection_between_hosts(const Fabric& f) {
  const Cluster& c = f.cluster();
  const Network& net = f.network();
  if (c.hosts < 2) return 0;
  if (net.trunks().size() > kMostTrunks) return -1;
  std::size_t n = net.switches();
  int half = (c.hosts + 1) / 2;
  bool rack = c.pattern == Pattern::Nvl72;
  std::size_t racks = rack ? static_cast<std::size_t>((c.hosts - 1) / c.hosts_per_rack + 1) : 0;
  Cut cut(n + racks);
  for (std::uint32_t t = 0; t < net.trunks().size(); ++t) {
    LinkId l = f.trunk_link(t);
    cut.join(net.trunks()[t].from, net.trunks()[t].to, rate(f, l), rate(f, l + 1));
  }
  std::map<std::pair<std::size_t, bool>, std::int64_t> ends;  // [switch, first half]
  for (HostId h : each<HostId>(c.hosts)) {
    const bool first = h.number < half;
    for (int k = 0; k < c.nics_per_host; ++k)
      ends[{net.switch_of(h, k), first}] +=
          f.has_nic_links() ? rate(f, f.nic_link(h, k)) : kUnlimited / c.hosts;
    if (rack)
      for (DeviceId d : f.devices_of(h)) {
        std::uint32_t up = f.drawn() ? f.inside(h).to_nvswitch(f.local_of(d)) : 0;
        if (up != UINT32_MAX)
          ends[{n + f.group_of(h), first}] +=
              rate(f, f.drawn() ? f.inside_link(h, up) : f.intra_link(d));
      }
  }
  for (const auto& [end, capacity] : ends) {
    if (end.second)
      cut.enter(end.first, capacity);
    else
      cut.leave(end.first, capacity);
  }
  return cut.flow();
}

std::int64_t bisection_inside(const Fabric& f, HostId host) {
  int n = f.cluster().devices_per_host;
  if (n < 2) return 0;
  int half = (n + 1) / 2;
  if (!f.drawn()) {
    std::int64_t first = 0;
    std::int64_t second = 0;
    for (DeviceId d : f.devices_of(host))
      (f.local_of(d) < half ? first : second) += f.links()[f.intra_link(d)].bandwidth.bits_per_s;
    return std::min(first, second);
  }
  const HostGraph& g = f.host_graph();
  Cut cut(g.vertices.size());
  for (std::uint32_t i = 0; i < g.links.size(); ++i)
    cut.join(g.links[i].from, g.links[i].to, rate(f, f.inside_link(host, 2 * i)),
             rate(f, f.inside_link(host, 2 * i + 1)));
  for (int d = 0; d < n; ++d) {
    std::size_t v = g.gpus[d];
    if (d < half)
      cut.enter(v, kUnlimited / n);
    else
      cut.leave(v, kUnlimited / n);
  }
  return cut.flow();
}

std::vector<std::string> single_points_of_failure(const Fabric& f) {
  const Cluster& c = f.cluster();
  const Network& net = f.network();
  std::vector<std::string> out;
  if (c.hosts < 2) return out;
  if (f.same_rack(HostId{}, HostId::at(c.hosts - 1)))
    return out;  // one NVLink domain: its switches are several, and not drawn
  // Switches, then (unless they are nodes of a graph) hosts.
  std::size_t switches = net.switches();
  boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, boost::no_property,
                        boost::property<boost::edge_index_t, std::size_t>>
      g(switches + (f.has_nic_links() ? static_cast<std::size_t>(c.hosts) : 0));
  // Parallel cables are one edge: only a single cable can be the only way.
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> cables;
  for (std::uint32_t t = 0; t < net.trunks().size(); ++t)
    if (!f.failed(f.trunk_link(t)))
      ++cables[std::minmax(static_cast<std::size_t>(net.trunks()[t].from),
                           static_cast<std::size_t>(net.trunks()[t].to))];
  if (f.has_nic_links())
    for (HostId h : each<HostId>(c.hosts))
      for (int k = 0; k < c.nics_per_host; ++k)
        if (!f.failed(f.nic_link(h, k))) ++cables[{net.switch_of(h, k), switches + h.number}];
  std::vector<std::int64_t> parallel;
  for (const auto& [ends, n] : cables) {
    boost::add_edge(ends.first, ends.second, parallel.size(), g);
    parallel.push_back(n);
  }
  std::vector<std::size_t> component(parallel.size());
  std::vector<std::size_t> points;
  boost::biconnected_components(
      g, boost::make_iterator_property_map(component.begin(), boost::get(boost::edge_index, g)),
      std::back_inserter(points));
  std::map<std::string, std::int64_t> roles;
  for (std::size_t v : points)
    if (v < switches) ++roles[net.role_of(static_cast<int>(v))];
  for (const auto& [role, n] : roles) {
    std::string many = role.ends_with("switch") ? role + "es" : role + "s";
    out.push_back(of(n, role, many));
  }
  std::map<std::size_t, std::size_t> size;
  for (std::size_t k : component) ++size[k];
  std::int64_t host_cables = 0;
  std::int64_t trunks = 0;
  for (auto [e, end] = boost::edges(g); e != end; ++e)
    if (std::size_t i = boost::get(boost::edge_index, g, *e);
        size[component[i]] == 1 && parallel[i] == 1)
      ++(boost::target(*e, g) >= switches || boost::source(*e, g) >= switches ? host_cables
                                                                              : trunks);
  if (trunks > 0)
    out.push_back(of(trunks,
                     f.has_nic_links() ? "trunk that is the only way between its ends"
                                       : "link that is the only way between its ends",
                     f.has_nic_links() ? "trunks, the only way between their ends"
                                       : "links, the only way between their ends"));
  if (host_cables > 0)
    out.push_back(host_cables == 1
                      ? "the one cable of a host"
                      : "the one cable of each of " + std::to_string(host_cables) + " hosts");
  return out;
}

}  // namespace ddpsim::topology
