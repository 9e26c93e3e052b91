// A communicator as NCCL builds it: nodes; the search on the first of them (and on the one with
// fewest ranks), in NCCL's own numbers of links; then what its rings, trees and NVLS put on each
// link of the fabric:
//   load(link) = sum over channels and hops that cross it of share / channels;  share = 2(n-1)/n
//     ring, 1 a tree's chain, 1/2 an edge of each tree
// and the slowest hop of each kind, for the latencies.
#include "sim/nccl/fabric/group.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "sim/nccl/fabric/node.h"
#include "sim/nccl/fabric/peers.h"
#include "sim/nccl/fabric/stages.h"
#include "sim/nccl/nth.h"
#include "sim/nccl/rccl.h"
#include "sim/nccl/search.h"
#include "sim/topology/hop_routes.h"

namespace ddpsim::nccl {
namespace {

// Order of the ranks of a node in channel k: the search's, if the node has as many ranks; else
// rotated, so that every NIC is used.
std::vector<int> chain(const ChannelGraph& graph, const std::vector<int>& ranks, std::size_t k) {
  std::vector<int> out;
  std::size_t n = ranks.size();
  if (k < graph.order.size() && graph.order[k].size() == n) {
    for (int i : graph.order[k]) out.push_back(nth(ranks, i));
    return out;
  }
  std::size_t channels = std::max<std::size_t>(1, graph.channels);
  for (std::size_t i = 0; i < n; ++i) out.push_back(ranks[(k * n / channels + i) % n]);
  return out;
}

// The NIC of channel k, local index; -1 = not known.
int nic_of(const Group& g, const ChannelGraph& graph, std::size_t k, const std::vector<int>& nics) {
  bool drawn_by_nic = g.fabric->has_nic_links() && k < graph.nics.size() &&
                      static_cast<std::size_t>(graph.nics[k][0]) < nics.size();
  return drawn_by_nic ? nth(nics, graph.nics[k][0]) : -1;
}

std::vector<AlikeChannels> distinct_channels(const Group& g, const ChannelGraph& graph,
                                             const std::vector<int>& nics, bool ring,
                                             bool same_chain) {
  std::size_t channels = std::max(1, graph.channels);
  std::vector<AlikeChannels> out;
  for (std::size_t k = 0; k < channels; ++k) {
    AlikeChannels c;
    // A channel that crosses enters and leaves by the NIC nearest to its first and its last GPU; of
    // two rings that exchange their NICs, each takes the other's way through every second node, so
    // that a NIC meets the same one of the next node.
    c.nic = graph.crossnic == 0 ? nic_of(g, graph, k, nics) : -1;
    bool exchange = ring && graph.crossnic == 2 && channels % 2 == 0;
    for (std::size_t i = 0; i < g.nodes.size(); ++i)
      c.order.push_back(chain(graph, g.nodes[i],
                              same_chain               ? 0
                              : exchange && i % 2 == 1 ? k ^ 1
                                                       : k));
    // A ring of one node has no beginning.
    std::vector<int>& only = c.order.front();
    if (ring && g.nodes.size() == 1)
      std::rotate(only.begin(), std::min_element(only.begin(), only.end()), only.end());
    auto same = std::find_if(out.begin(), out.end(), [&](const AlikeChannels& o) {
      return o.nic == c.nic && o.order == c.order;
    });
    if (same == out.end()) same = out.insert(out.end(), std::move(c));
    same->share += 1.0 / static_cast<double>(channels);
  }
  return out;
}

// Each hop of a ring between nodes.
template <class F>
void each_crossing(const Group& g, const F& f) {
  for (const Wiring::Ring& r : g.rings)
    for (std::size_t i = 0; i < r.order.size(); ++i) {
      const int from = r.order[i];
      const int to = r.order[(i + 1) % r.order.size()];
      if (nth(g.node_of, from) != nth(g.node_of, to)) f(r, from, to);
    }
}

// A ring leaves a node by one rank and enters it by another, each with a proxy thread of its own.
double proxy_copies(const Group& g) {
  std::map<int, double> copied;  // by rank
  std::map<int, double> of_nic;  // by NIC, what leaves it
  std::map<int, int> nic_of;     // by rank
  for (const Wiring::Ring& r : g.rings) of_nic[r.nic] += r.share;
  each_crossing(g, [&](const Wiring::Ring& r, int from, int to) {
    for (int rank : {from, to}) copied[rank] += r.share, nic_of[rank] = r.nic;
  });
  double most = 0;
  for (const auto& [rank, share] : copied) most = std::max(most, share / of_nic[nic_of[rank]]);
  return most > 0 ? most : 2;
}

// Of the rings' bytes between nodes: the busiest rank's share.
double busiest_of_rings(const Group& g) {
  std::map<std::pair<int, bool>, double> share;  // by rank; sent, or received
  each_crossing(g, [&](const Wiring::Ring& r, int from, int to) {
    share[{from, true}] += r.share;
    share[{to, false}] += r.share;
  });
  double most = 0;
  for (const auto& [rank, of_rank] : share) most = std::max(most, of_rank);
  return most;
}

void make_loads(Group& g, const std::vector<int>& nics) {
  topology::LinkLoads loads(*g.fabric);
  topology::Route route;
  double n = g.ranks();
  std::size_t hosts = g.nodes.size();
  for (const AlikeChannels& c :
       distinct_channels(g, g.system.graphs[GraphId::Ring], nics, true, false)) {
    double share = 2 * (n - 1) / n * c.share;
    Wiring::Ring ring;
    ring.share = c.share;
    ring.nic = c.nic;
    auto hop = [&](int from, int to, int nic) {
      find_hop_route(g, from, to, nic, route);
      loads.add(route, share);
    };
    for (std::size_t h = 0; h < c.order.size(); ++h) {
      const std::vector<int>& order = c.order[h];
      for (std::size_t i = 0; i + 1 < order.size(); ++i) hop(order[i], order[i + 1], -1);
      hop(order.back(), c.order[(h + 1) % c.order.size()].front(), hosts > 1 ? c.nic : -1);
      ring.order.insert(ring.order.end(), order.begin(), order.end());
    }
    g.rings.push_back(std::move(ring));
  }
  g.proxy_copies = proxy_copies(g);
  g.busiest_of_rings = busiest_of_rings(g);
  g.every_ring = loads.take();
  g.ring = fold(*g.fabric, g.every_ring, g.to_memory);
  g.trees = distinct_channels(g, g.system.graphs[GraphId::Tree], nics, false, hosts == 1);
  for (Operation op : kAll<Operation>) g.tables[op] = cost_table(g.system, op, g.settings.version);
  // What NCCL cannot choose here is not listed: in large jobs stages are many.
  auto may_run = [&](Algorithm a, Operation op) {
    return std::any_of(g.tables[op][a].begin(), g.tables[op][a].end(),
                       [](const Cell& c) { return c.bandwidth > GBps{}; });
  };
  for (Algorithm a : kAll<Algorithm>)
    if (a != Algorithm::Ring &&
        (may_run(a, Operation::AllReduce) || may_run(a, Operation::AllGather) ||
         may_run(a, Operation::ReduceScatter)))
      g.pipes[pipeline_of(a)] = make_pipe(
          g, pipeline_of(a), a == Algorithm::Pat ? Operation::AllGather : Operation::AllReduce);
}

void find_hops(Group& g) {
  topology::Route route;
  auto slower = [&](SlowestHop& hop) {
    if (hop.exists && hop.wire >= route.latency) return;
    hop = {true, route.transport, route.latency, {}, {INT64_MAX}, {}, false};
    for (topology::LinkId id : route.links) {
      const topology::Link& l = g.fabric->links()[id];
      hop.rate = std::min(hop.rate, l.bandwidth);
      if (l.eager.count > 0 && (hop.eager.count == 0 || l.eager < hop.eager)) hop.eager = l.eager;
      if (l.staging.bits_per_s > 0) hop.staging = l.staging;
      hop.by_memory = hop.by_memory || (!g.to_memory.empty() && g.to_memory[id]);
    }
  };
  auto slowest = [&](int from, int to, SlowestHop& hop) {
    find_hop_route(g, from, to, -1, route);
    slower(hop);
  };
  for (std::size_t k = 0; k < g.nodes.size(); ++k) {
    const auto& node = g.nodes[k];
    for (std::size_t i = 0; i + 1 < node.size(); ++i) slowest(node[i], node[i + 1], g.intra);
    if (g.nodes.size() > 1)
      slowest(node.front(), g.nodes[(k + 1) % g.nodes.size()].front(), g.inter);
  }
  if (!g.system.nvswitch) return;
  const topology::Fabric& f = *g.fabric;
  const DeviceId device = nth(g.devices, g.nodes.front().front());
  const HostId host = f.host_of(device);
  std::uint32_t inside = f.drawn() ? f.inside(host).to_nvswitch(f.local_of(device)) : 0;
  topology::LinkId up = f.drawn() ? f.inside_link(host, inside) : f.intra_link(device);
  route.links = {up, up ^ 1u};
  route.transport = f.links()[up].transport;
  route.latency = f.links()[up].latency * 2;
  slower(g.window);
}

}  // namespace

std::vector<std::vector<int>> nodes_of(const topology::Fabric& fabric,
                                       const std::vector<DeviceId>& devices) {
  return ranks_by_host(
      fabric, devices,
      fabric.cluster().pattern == ddpsim::Pattern::Nvl72);  // MNNVL: a domain is a node
}

Problem check_nodes(const topology::Fabric& fabric, const std::vector<DeviceId>& devices) {
  if (devices.size() <= kMostOfNode) return {};
  for (const auto& node : nodes_of(fabric, devices))
    if (node.size() > kMostOfNode) {
      bool racks = fabric.cluster().pattern == ddpsim::Pattern::Nvl72;
      return {racks ? "/hosts_per_rack" : "/devices_per_host",
              std::to_string(node.size()) + " GPUs of one " + (racks ? "NVLink rack" : "host") +
                  " take part, and NCCL knows nodes of at most " + std::to_string(kMostOfNode) +
                  "; take fewer ranks, or smaller " + (racks ? "racks" : "hosts")};
    }
  return {};
}

Group make_group(const topology::Fabric& fabric, std::vector<DeviceId> devices, Settings settings,
                 int compute_capability, const Graphs* found, const Searches* known) {
  Group g;
  g.fabric = &fabric;
  g.devices = std::move(devices);
  g.settings = std::move(settings);
  g.nodes = nodes_of(fabric, g.devices);
  g.node_of.resize(g.devices.size());
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    for (int r : g.nodes[i]) nth(g.node_of, r) = static_cast<int>(i);
  System& s = g.system;
  s.version = g.settings.version;
  s.ranks = g.ranks();
  s.nodes = static_cast<int>(g.nodes.size());
  s.compute_capability = compute_capability;
  if (g.ranks() < 2) return g;
  g.to_memory = links_to_memory(g);
  std::vector<int> nics;  // local indices of those that the search names
  Machine machine{compute_capability, static_cast<Cpu>(fabric.cluster().nccl.cpu),
                  g.settings.version, g.settings.cross_nic, fabric.cluster().nccl.rccl};
  Node node = node_of(g, g.nodes.front(), machine, nics);
  s.nvswitch = node.nvswitch;
  std::size_t fewest = g.nodes.front().size();
  for (const auto& n : g.nodes) fewest = std::min(fewest, n.size());
  const NcclFacts& facts = fabric.cluster().nccl;
  s.cpu = static_cast<Cpu>(facts.cpu);
  s.ll = facts.ll;
  s.ll128 = facts.ll128;
  s.collnet = facts.collnet;
  s.nvls = facts.multicast && fewest >= 2;
  s.rccl = facts.rccl;
  std::optional<Graphs> by_table = s.rccl ? rccl_graphs(node, s.nodes) : std::nullopt;
  if (found)
    s.graphs = *found;
  else if (by_table)
    s.graphs = *by_table;
  else
    s.graphs = search(
        node, s.nodes, machine,
        g.settings.version.has(Change::NetworkLatencyOfPlugin) ? facts.net_latency : Duration{},
        s.collnet, known);
  if (found && !nics.empty()) {  // which names NICs by their own numbers
    nics.resize(fabric.nics_per_host());
    std::iota(nics.begin(), nics.end(), 0);
  }
  // A node with fewer ranks has fewer channels: all take the fewest (NCCL: an all-gather of the
  // graphs, then the minimum of each number).
  if (fewest < g.nodes.front().size()) {
    const auto& small =
        *std::min_element(g.nodes.begin(), g.nodes.end(),
                          [](const auto& a, const auto& b) { return a.size() < b.size(); });
    std::vector<int> other_nics;
    Graphs other =
        search(node_of(g, small, machine, other_nics), s.nodes, machine, {}, s.collnet, known);
    nics.clear();  // each GPU by its own NIC: the nodes' NICs do not correspond
    for (GraphId id : kAll<GraphId>) {
      ChannelGraph& a = s.graphs[id];
      const ChannelGraph& b = other[id];
      if (small.size() > 1) a.bw_intra = std::min(a.bw_intra, b.bw_intra);
      a.bw_inter = std::min(a.bw_inter, b.bw_inter);
      a.channels = std::min(a.channels, b.channels);
      a.pattern = std::max(a.pattern, b.pattern);
      std::size_t kept = a.channels;
      if (a.order.size() > kept) a.order.resize(kept);
      if (a.nics.size() > kept) a.nics.resize(kept);
    }
  }
  find_hops(g);
  make_loads(g, nics);
  return g;
}

}  // namespace ddpsim::nccl
