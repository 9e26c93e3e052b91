// Fat tree: a leaf's uplinks together carry hosts_per_leaf * nics * link / oversubscription, split evenly over the spines; flow k of a source
// takes spine (source NIC number) mod spines: deterministic, and balanced for neighbours on a ring.
#include "sim/topology/fabric.h"

#include <algorithm>

namespace ddpsim::topology {

Fabric::Fabric(const Cluster& cluster) : cluster_(cluster) {
  const Cluster& c = cluster_;
  if (c.pattern == Pattern::Graph) graph_ = route_graph(c);
  if (c.intra) {
    intra_transport_ = transport_id(c.intra->transport);
    intra_base_ = static_cast<LinkId>(links_.size());
    for (int d = 0; d < c.devices(); ++d) add(*c.intra);
  }
  if (c.pattern == Pattern::Graph) {
    trunk_base_ = static_cast<LinkId>(links_.size());
    for (const GraphLink& l : c.links) add(l.link);
    net_transport_ = c.links.empty() ? 0 : transport_id(c.links.front().link.transport);
    return;
  }
  net_transport_ = transport_id(c.link.transport);
  nic_base_ = static_cast<LinkId>(links_.size());
  for (int h = 0; h < c.hosts; ++h) {
    LinkSpec nic = c.link;
    for (const SlowLink& s : c.slow_links)
      if (s.host == h) nic.bandwidth = s.bandwidth;
    for (int k = 0; k < c.nics_per_host; ++k) add(nic);
  }
  trunk_base_ = static_cast<LinkId>(links_.size());
  if (c.pattern == Pattern::Racks) {
    group_size_ = (c.hosts + c.racks - 1) / c.racks;
    for (int r = 0; r < c.racks; ++r) add(c.uplink);
  }
  if (c.pattern == Pattern::FatTree) {
    group_size_ = c.hosts_per_leaf;
    int leaves = (c.hosts + group_size_ - 1) / group_size_;
    LinkSpec trunk = c.link;
    trunk.burst = {};
    trunk.peak = {};
    double total = static_cast<double>(c.link.bandwidth.bits_per_s) * c.hosts_per_leaf * c.nics_per_host;
    trunk.bandwidth.bits_per_s = std::max<std::int64_t>(1, static_cast<std::int64_t>(total / c.oversubscription / c.spines));
    for (int i = 0; i < leaves * c.spines; ++i) add(trunk);
  }
}

std::uint8_t Fabric::transport_id(const std::string& name) {
  auto it = std::find(transports_.begin(), transports_.end(), name);
  if (it == transports_.end()) it = transports_.insert(transports_.end(), name);
  return static_cast<std::uint8_t>(it - transports_.begin());
}

LinkId Fabric::add(const LinkSpec& spec) {
  Link l{spec.bandwidth, spec.latency, spec.burst, spec.peak, transport_id(spec.transport), spec.eager, spec.staging};
  links_.push_back(l);
  links_.push_back(l);
  return static_cast<LinkId>(links_.size() - 2);
}

bool Fabric::reachable(int from, int to) const {
  if (cluster_.pattern != Pattern::Graph || host_of(from) == host_of(to)) return true;
  auto node = static_cast<std::size_t>(graph_.host_node[static_cast<std::size_t>(host_of(to))]);
  return graph_.inbound[static_cast<std::size_t>(host_of(from))][node] != UINT32_MAX;
}

void Fabric::find_route(int from, int to, Route& route) const {
  const Cluster& c = cluster_;
  route.links.clear();
  int a = host_of(from);
  int b = host_of(to);
  if (a == b) {
    route.transport = intra_transport_;
    route.links.push_back(intra_base_ + 2 * static_cast<LinkId>(from));
    route.links.push_back(intra_base_ + 2 * static_cast<LinkId>(to) + 1);
  } else if (c.pattern == Pattern::Graph) {
    const auto& inbound = graph_.inbound[static_cast<std::size_t>(a)];
    int source = graph_.host_node[static_cast<std::size_t>(a)];
    for (int node = graph_.host_node[static_cast<std::size_t>(b)]; node != source;) {
      std::uint32_t link = inbound[static_cast<std::size_t>(node)];
      route.links.push_back(trunk_base_ + link);
      node = graph_.link_from[link];
    }
    std::reverse(route.links.begin(), route.links.end());
    route.transport = links_[route.links.front()].transport;
  } else {
    route.transport = net_transport_;
    int nic = a * c.nics_per_host + nic_of(from);
    route.links.push_back(nic_base_ + 2 * static_cast<LinkId>(nic));
    int ga = a / group_size_;
    int gb = b / group_size_;
    if (c.pattern == Pattern::Racks && ga != gb) {
      route.links.push_back(trunk_base_ + 2 * static_cast<LinkId>(ga));
      route.links.push_back(trunk_base_ + 2 * static_cast<LinkId>(gb) + 1);
    } else if (c.pattern == Pattern::FatTree && ga != gb) {
      int spine = nic % c.spines;
      route.links.push_back(trunk_base_ + 2 * static_cast<LinkId>(ga * c.spines + spine));
      route.links.push_back(trunk_base_ + 2 * static_cast<LinkId>(gb * c.spines + spine) + 1);
    }
    int nic_b = b * c.nics_per_host + nic_of(to);
    route.links.push_back(nic_base_ + 2 * static_cast<LinkId>(nic_b) + 1);
  }
  route.latency = {};
  for (LinkId l : route.links) route.latency += links_[l].latency;
}

std::string Fabric::link_name(LinkId link) const {
  const Cluster& c = cluster_;
  auto direction = [](LinkId offset) { return std::string(offset % 2 == 0 ? " up" : " down"); };
  if (c.intra && link < 2 * static_cast<LinkId>(c.devices())) {
    LinkId d = link / 2;
    auto per_host = static_cast<LinkId>(c.devices_per_host);
    return "host" + std::to_string(d / per_host) + ".dev" + std::to_string(d % per_host) + " " + c.intra->transport + direction(link);
  }
  if (c.pattern == Pattern::Graph) {
    LinkId offset = link - trunk_base_;
    const GraphLink& l = c.links[offset / 2];
    return offset % 2 == 0 ? l.from + "->" + l.to : l.to + "->" + l.from;
  }
  if (link >= trunk_base_) {
    LinkId offset = link - trunk_base_;
    if (c.pattern == Pattern::Racks) return "rack" + std::to_string(offset / 2) + " uplink" + direction(offset);
    auto spines = static_cast<LinkId>(c.spines);
    return "leaf" + std::to_string(offset / 2 / spines) + "-spine" + std::to_string(offset / 2 % spines) + direction(offset);
  }
  LinkId offset = link - nic_base_;
  auto nics = static_cast<LinkId>(c.nics_per_host);
  std::string nic = c.nics_per_host > 1 ? ".nic" + std::to_string(offset / 2 % nics) : std::string();
  return "host" + std::to_string(offset / 2 / nics) + nic + direction(offset);
}

Problem check_reachable(const Fabric& f, const std::vector<int>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    int to = devices[(i + 1) % devices.size()];
    if (devices[i] != to && !f.reachable(devices[i], to))
      return {"/links", "no path from host " + std::to_string(f.host_of(devices[i])) + " to host " + std::to_string(f.host_of(to)) +
                            "; every host that has a rank needs a route to the others"};
  }
  return {};
}

}  // namespace ddpsim::topology
