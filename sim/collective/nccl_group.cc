// A communicator as NCCL builds it: nodes; the search on the first of them (and on the one with fewest ranks), in NCCL's own numbers of links; then what its
// rings, trees and NVLS put on each link of the fabric:
//   load(link) = sum over channels and hops that cross it of share / channels;  share = 2(n-1)/n ring, 1 a tree's chain, 1/2 an edge of each tree
// and the slowest hop of each kind, for the latencies.
#include "sim/collective/nccl.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "sim/collective/blocks.h"
#include "sim/nccl/search.h"
#include "sim/topology/path_type.h"

namespace ddpsim::collective {
namespace {

// Of links that are alike and carry alike, the first: they limit alike.
std::vector<LinkLoad> fold(const topology::Fabric& f, const std::vector<LinkLoad>& all) {
  using Key = std::tuple<std::int64_t, std::uint8_t, std::int64_t, double>;
  std::set<Key> seen;
  std::vector<LinkLoad> out;
  for (const LinkLoad& l : all) {
    const topology::Link& link = f.links()[l.link];
    if (seen.insert({link.bandwidth.bits_per_s, link.transport, link.staging.bits_per_s, l.per_byte}).second) out.push_back(l);
  }
  return out;
}

class Loads {
 public:
  Loads(const topology::Fabric& f, const std::vector<int>& devices) : f_(f), devices_(devices), count_(f.links().size(), 0) {}
  const topology::Route& route(int from, int to) {
    f_.find_route(devices_[static_cast<std::size_t>(from)], devices_[static_cast<std::size_t>(to)], route_);
    return route_;
  }
  void add(int from, int to, double amount) {
    for (topology::LinkId l : route(from, to).links) add_link(l, amount);
  }
  // Between hosts, by this NIC at both ends; -1 = by each device's own.
  void add_by_nic(int from, int to, int nic, double amount) {
    find_hop_route(f_, devices_, from, to, nic, route_);
    for (topology::LinkId l : route_.links) add_link(l, amount);
  }
  void add_link(topology::LinkId l, double amount) {
    if (count_[l] == 0) used_.push_back(l);
    count_[l] += amount;
  }
  std::vector<LinkLoad> take() {
    std::sort(used_.begin(), used_.end());
    std::vector<LinkLoad> out;
    for (topology::LinkId l : used_) {
      out.push_back({l, count_[l]});
      count_[l] = 0;
    }
    used_.clear();
    return out;
  }

 private:
  const topology::Fabric& f_;
  const std::vector<int>& devices_;
  topology::Route route_;
  std::vector<double> count_;
  std::vector<topology::LinkId> used_;
};

nccl::Wire wire_of(topology::LinkKind kind) {
  switch (kind) {
    case topology::LinkKind::Nvlink: return nccl::Wire::Nvlink;
    case topology::LinkKind::C2c: return nccl::Wire::C2c;
    case topology::LinkKind::Pcie: return nccl::Wire::Pcie;
    case topology::LinkKind::Upi: return nccl::Wire::Upi;
    case topology::LinkKind::Net: return nccl::Wire::Nic;
  }
  return nccl::Wire::Nic;
}

// The node that NCCL searches: the first one. Its links in NCCL's numbers.
nccl::Node node_of(const topology::Fabric& f, const std::vector<int>& devices, const std::vector<int>& ranks, int cc, std::vector<int>& nics) {
  nccl::Node node;
  const Cluster& c = f.cluster();
  node.gpus = static_cast<int>(ranks.size());
  auto n = static_cast<std::size_t>(node.gpus);
  node.gpu_route.resize(n * n);
  node.gpu_path.assign(n * n, nccl::PathType::Loc);
  std::map<topology::LinkId, int> index;
  auto link_index = [&](topology::LinkId l) {
    auto [it, fresh] = index.emplace(l, static_cast<int>(node.links.size()));
    const topology::Link& link = f.links()[l];
    if (fresh) node.links.push_back(nccl::link_bandwidth(wire_of(link.kind), link.bandwidth.bytes_per_ps() * 1e3, cc));
    return it->second;
  };
  topology::Route route;
  auto device = [&](std::size_t i) { return devices[static_cast<std::size_t>(ranks[i])]; };
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) {
      if (a == b) continue;
      f.find_route(device(a), device(b), route);
      for (topology::LinkId l : route.links) node.gpu_route[a * n + b].push_back(link_index(l));
      node.gpu_path[a * n + b] = f.path_type(device(a), device(b));
    }
  int host = f.host_of(device(0));
  if (c.intra) node.nvswitch = topology::kind_of(c.intra->transport) == topology::LinkKind::Nvlink;
  else if (f.drawn()) node.nvswitch = f.inside(host).to_nvswitch(f.local_of(device(0))) != UINT32_MAX;
  if (node.nvswitch && n > 1) node.nvlink_per_gpu = node.links[static_cast<std::size_t>(node.gpu_route[1].front())];
  // NICs near the GPUs that take part.
  bool one_host = std::all_of(ranks.begin(), ranks.end(), [&](int r) { return f.host_of(devices[static_cast<std::size_t>(r)]) == f.host_of(device(0)); });
  if (!one_host) {
    // A NVLink domain of several hosts: each GPU by its own NIC.
    node.nics = node.gpus;
    node.nic_bandwidth = c.link.bandwidth.bytes_per_ps() * 1e3 * c.nics_per_host / c.devices_per_host;
    node.out_route.resize(n * n);
    node.in_route.resize(n * n);
    node.nic_path.assign(n * n, nccl::PathType::Sys);
    for (std::size_t a = 0; a < n; ++a) node.nic_path[a * n + a] = f.nic_path_type(device(a), f.nic_of(device(a)));
    return node;
  }
  for (std::size_t a = 0; a < n; ++a) nics.push_back(f.nic_of(device(a)));
  std::sort(nics.begin(), nics.end());
  nics.erase(std::unique(nics.begin(), nics.end()), nics.end());
  if (c.pattern == ddpsim::Pattern::Graph) {
    nics.assign(1, 0);
    for (const GraphLink& l : c.links) node.nic_bandwidth = std::max(node.nic_bandwidth, l.link.bandwidth.bytes_per_ps() * 1e3);
  } else {
    node.nic_bandwidth = c.link.bandwidth.bytes_per_ps() * 1e3;
  }
  node.nics = static_cast<int>(nics.size());
  // Sockets, and NICs without GPUDirect, are reached through the host's memory.
  const LinkSpec& net = c.pattern == ddpsim::Pattern::Graph && !c.links.empty() ? c.links.front().link : c.link;
  bool through_host = net.transport == "tcp" || net.staging.bits_per_s > 0;
  auto k = nics.size();
  node.out_route.resize(n * k);
  node.in_route.resize(n * k);
  node.nic_path.assign(n * k, nccl::PathType::Phb);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t i = 0; i < k; ++i) {
      node.nic_path[a * k + i] = c.pattern == ddpsim::Pattern::Graph ? nccl::PathType::Pix : f.nic_path_type(device(a), nics[i]);
      if (through_host) node.nic_path[a * k + i] = std::max(node.nic_path[a * k + i], nccl::PathType::Phb);
      if (!f.drawn() || !f.inside(host).draws_nics()) continue;
      for (std::uint32_t l : f.inside(host).to_nic(f.local_of(device(a)), nics[i]).links) node.out_route[a * k + i].push_back(link_index(f.inside_link(host, l)));
      for (std::uint32_t l : f.inside(host).from_nic(nics[i], f.local_of(device(a))).links) node.in_route[a * k + i].push_back(link_index(f.inside_link(host, l)));
    }
  return node;
}

// Order of the ranks of a node in channel k: the search's, if the node has as many ranks; else rotated, so that every NIC is used.
std::vector<int> chain(const nccl::ChannelGraph& graph, const std::vector<int>& ranks, std::size_t k) {
  std::vector<int> out;
  std::size_t n = ranks.size();
  if (k < graph.order.size() && graph.order[k].size() == n) {
    for (int i : graph.order[k]) out.push_back(ranks[static_cast<std::size_t>(i)]);
    return out;
  }
  std::size_t channels = std::max<std::size_t>(1, static_cast<std::size_t>(graph.channels));
  for (std::size_t i = 0; i < n; ++i) out.push_back(ranks[(k * n / channels + i) % n]);
  return out;
}

// The NIC of channel k, local index; -1 = not known.
int nic_of(const NcclGroup& g, const nccl::ChannelGraph& graph, std::size_t k, const std::vector<int>& nics) {
  bool drawn_by_nic = g.fabric->has_nic_links() && k < graph.nics.size() && static_cast<std::size_t>(graph.nics[k][0]) < nics.size();
  return drawn_by_nic ? nics[static_cast<std::size_t>(graph.nics[k][0])] : -1;
}

// Channels that take the same way.
struct Channel {
  std::vector<std::vector<int>> order;  // of each node
  int nic = -1;
  double share = 0;
};
std::vector<Channel> distinct_channels(const NcclGroup& g, const nccl::ChannelGraph& graph, const std::vector<int>& nics, bool same_chain) {
  auto channels = static_cast<std::size_t>(std::max(1, graph.channels));
  std::vector<Channel> out;
  for (std::size_t k = 0; k < channels; ++k) {
    Channel c;
    c.nic = nic_of(g, graph, k, nics);
    for (const auto& node : g.nodes) c.order.push_back(chain(graph, node, same_chain ? 0 : k));
    auto same = std::find_if(out.begin(), out.end(), [&](const Channel& o) { return o.nic == c.nic && o.order == c.order; });
    if (same == out.end()) same = out.insert(out.end(), std::move(c));
    same->share += 1.0 / static_cast<double>(channels);
  }
  return out;
}

void make_loads(NcclGroup& g, const std::vector<int>& nics) {
  const topology::Fabric& f = *g.fabric;
  Loads loads(f, g.devices);
  double n = g.ranks();
  int hosts = static_cast<int>(g.nodes.size());
  for (const Channel& c : distinct_channels(g, g.system.graphs.by_algorithm[0], nics, false)) {
    double share = 2 * (n - 1) / n * c.share;
    NcclGroup::Ring ring;
    ring.share = c.share;
    ring.nic = c.nic;
    for (std::size_t h = 0; h < c.order.size(); ++h) {
      const std::vector<int>& order = c.order[h];
      for (std::size_t i = 0; i + 1 < order.size(); ++i) loads.add(order[i], order[i + 1], share);
      int next = c.order[(h + 1) % c.order.size()].front();
      if (hosts > 1) loads.add_by_nic(order.back(), next, c.nic, share);
      else loads.add(order.back(), next, share);
      ring.order.insert(ring.order.end(), order.begin(), order.end());
    }
    g.rings.push_back(std::move(ring));
  }
  g.every[0] = loads.take();
  for (const Channel& c : distinct_channels(g, g.system.graphs.by_algorithm[1], nics, hosts == 1)) {
    double share = c.share;
    int nic = c.nic;
    std::vector<int> head;
    for (const std::vector<int>& order : c.order) {
      head.push_back(order.front());
      for (std::size_t i = 0; i + 1 < order.size(); ++i) {
        loads.add(order[i + 1], order[i], share);
        loads.add(order[i], order[i + 1], share);
      }
    }
    for (int tree : {0, 1}) {
      std::vector<int> parents = double_tree_parents(hosts, tree);
      for (int i = 0; i < hosts; ++i) {
        int up = parents[static_cast<std::size_t>(i)];
        if (up < 0) continue;
        loads.add_by_nic(head[static_cast<std::size_t>(i)], head[static_cast<std::size_t>(up)], nic, share / 2);
        loads.add_by_nic(head[static_cast<std::size_t>(up)], head[static_cast<std::size_t>(i)], nic, share / 2);
      }
    }
  }
  g.every[1] = loads.take();
  if (g.system.nvswitch) {
    // Each GPU gives all its data to the switch and takes its slice's sum, gives the sum and takes all: size * (1 + 1/n) each way.
    auto switch_links = [&] {
      for (const auto& node : g.nodes) {
        double heads = static_cast<double>(node.size());
        for (std::size_t i = 0; i < node.size() && node.size() > 1; ++i) {
          const std::vector<topology::LinkId>& links = loads.route(node[i], node[(i + 1) % node.size()]).links;
          loads.add_link(links.front(), 1 + 1 / heads);
        }
        for (std::size_t i = 0; i < node.size() && node.size() > 1; ++i) {
          const std::vector<topology::LinkId>& links = loads.route(node[(i + 1) % node.size()], node[i]).links;
          loads.add_link(links.back(), 1 + 1 / heads);
        }
      }
    };
    switch_links();
    g.every[2] = loads.take();
    switch_links();
    for (int tree : {0, 1}) {
      std::vector<int> parents = double_tree_parents(hosts, tree);
      for (int i = 0; i < hosts; ++i) {
        int up = parents[static_cast<std::size_t>(i)];
        if (up < 0) continue;
        const auto& a = g.nodes[static_cast<std::size_t>(i)];
        const auto& b = g.nodes[static_cast<std::size_t>(up)];
        std::size_t heads = std::min(a.size(), b.size());
        for (std::size_t h = 0; h < heads; ++h) {
          loads.add(a[h], b[h], 0.5 / static_cast<double>(heads));
          loads.add(b[h], a[h], 0.5 / static_cast<double>(heads));
        }
      }
    }
    g.every[3] = loads.take();
  }
  std::array<std::vector<LinkLoad>*, 4> folded{&g.ring, &g.tree, &g.nvls, &g.nvls_tree};
  for (std::size_t i = 0; i < folded.size(); ++i) *folded[i] = fold(f, g.every[i]);
}

void find_hops(NcclGroup& g) {
  topology::Route route;
  auto slowest = [&](int from, int to, NcclHop& hop) {
    g.fabric->find_route(g.devices[static_cast<std::size_t>(from)], g.devices[static_cast<std::size_t>(to)], route);
    if (hop.exists && hop.wire >= route.latency) return;
    hop = {true, route.transport, route.latency, {}, 1e30, 0};
    for (topology::LinkId id : route.links) {
      const topology::Link& l = g.fabric->links()[id];
      hop.rate = std::min(hop.rate, l.bandwidth.bytes_per_ps() * 1e12);
      if (l.eager.count > 0 && (hop.eager.count == 0 || l.eager < hop.eager)) hop.eager = l.eager;
      if (l.staging.bits_per_s > 0) hop.staging = l.staging.bytes_per_ps() * 1e12 / 2;
    }
  };
  for (std::size_t k = 0; k < g.nodes.size(); ++k) {
    const auto& node = g.nodes[k];
    for (std::size_t i = 0; i + 1 < node.size(); ++i) slowest(node[i], node[i + 1], g.intra);
    if (g.nodes.size() > 1) slowest(node.front(), g.nodes[(k + 1) % g.nodes.size()].front(), g.inter);
  }
}

}  // namespace

std::vector<std::vector<int>> nccl_nodes(const topology::Fabric& fabric, const std::vector<int>& devices) {
  return ranks_by_host(fabric, devices, fabric.cluster().pattern == ddpsim::Pattern::Nvl72);  // MNNVL: a domain is a node
}

NcclGroup make_nccl_group(const topology::Fabric& fabric, std::vector<int> devices, nccl::Settings settings, int compute_capability,
                          const nccl::Graphs* found) {
  NcclGroup g;
  g.fabric = &fabric;
  g.devices = std::move(devices);
  g.settings = std::move(settings);
  g.nodes = nccl_nodes(fabric, g.devices);
  nccl::System& s = g.system;
  s.ranks = g.ranks();
  s.nodes = static_cast<int>(g.nodes.size());
  s.compute_capability = compute_capability;
  if (g.ranks() < 2) return g;
  std::vector<int> nics;  // local indices of those that the search names
  nccl::Node node = node_of(fabric, g.devices, g.nodes.front(), compute_capability, nics);
  s.nvswitch = node.nvswitch;
  std::size_t fewest = g.nodes.front().size();
  for (const auto& n : g.nodes) fewest = std::min(fewest, n.size());
  const NcclFacts& facts = fabric.cluster().nccl;
  s.cpu = static_cast<nccl::Cpu>(facts.cpu);
  s.ll = facts.ll;
  s.ll128 = facts.ll128;
  s.collnet = facts.collnet;
  s.nvls = facts.multicast && fewest >= 2;
  s.graphs = found ? *found : nccl::search(node, s.nodes, compute_capability, g.settings.version.minor >= 13 ? facts.net_latency : Duration{}, s.collnet);
  if (found && !nics.empty()) {  // which names NICs by their own numbers
    nics.resize(static_cast<std::size_t>(fabric.nics_per_host()));
    std::iota(nics.begin(), nics.end(), 0);
  }
  // A node with fewer ranks has fewer channels: all take the fewest (NCCL: an all-gather of the graphs, then the minimum of each number).
  if (fewest < g.nodes.front().size()) {
    const auto& small = *std::min_element(g.nodes.begin(), g.nodes.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    std::vector<int> other_nics;
    nccl::Graphs other = nccl::search(node_of(fabric, g.devices, small, compute_capability, other_nics), s.nodes, compute_capability, {}, s.collnet);
    nics.clear();  // each GPU by its own NIC: the nodes' NICs do not correspond
    for (std::size_t i = 0; i < other.by_algorithm.size(); ++i) {
      nccl::ChannelGraph& a = s.graphs.by_algorithm[i];
      const nccl::ChannelGraph& b = other.by_algorithm[i];
      if (small.size() > 1) a.bw_intra = std::min(a.bw_intra, b.bw_intra);
      a.bw_inter = std::min(a.bw_inter, b.bw_inter);
      a.channels = std::min(a.channels, b.channels);
      auto kept = static_cast<std::size_t>(a.channels);
      if (a.order.size() > kept) a.order.resize(kept);
      if (a.nics.size() > kept) a.nics.resize(kept);
    }
  }
  find_hops(g);
  make_loads(g, nics);
  return g;
}

}  // namespace ddpsim::collective
