// Fat tree and rails: a leaf's uplinks together carry what is below it (hosts * NICs, or hosts of
// the group) * link / oversubscription, split evenly over the spines. `ecmp: source`: a fat tree
// takes spine (source NIC number) mod spines, rails take (source host) mod spines; `hash`:
// ecmp_choice. Dragonfly: the cable from group i to j is at router (j, less one if j > i) mod
// routers of i.
#include "sim/topology/network.h"

#include <algorithm>
#include <map>

namespace ddpsim::topology {
namespace {

LinkSpec uplink_of(const Cluster& c, double ports_below) {
  LinkSpec trunk = c.link;
  trunk.burst = {};
  trunk.peak = {};
  const double share = ports_below / c.oversubscription / c.spines;
  trunk.bandwidth.bits_per_s = std::max<std::int64_t>(1, scale(c.link.bandwidth, share).bits_per_s);
  return trunk;
}

// Number of the pair (a, b), a < b, among all pairs of n.
std::int64_t pair_number(std::int64_t n, std::int64_t a, std::int64_t b) {
  return a * (2 * n - a - 1) / 2 + (b - a - 1);
}

}  // namespace

std::uint32_t ecmp_choice(std::uint32_t source_nic, std::uint32_t destination_nic,
                          std::uint32_t paths) {
  std::uint64_t h = std::uint64_t{source_nic} * 0x9e3779b97f4a7c15ull + destination_nic;
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
  h ^= h >> 33;
  return static_cast<std::uint32_t>((h >> 32) * paths >> 32);
}

Network::Network(const Cluster& c) : pattern_(c.pattern), ecmp_(c.ecmp), nics_(c.nics_per_host) {
  leaves_ = 1;
  per_switch_ = c.hosts;
  switch (c.pattern) {
    case Pattern::Star:
    case Pattern::Nvl72:
      break;
    case Pattern::Racks: {
      per_switch_ = (c.hosts + c.racks - 1) / c.racks;
      leaves_ = c.racks;
      switches_ = c.racks + 1;
      std::uint32_t up = spec(c.uplink);
      for (int r = 0; r < c.racks; ++r) join(r, c.racks, up);
      break;
    }
    case Pattern::FatTree:
      per_switch_ = c.hosts_per_leaf;
      make_leaves_and_spines(c, (c.hosts + per_switch_ - 1) / per_switch_,
                             1.0 * c.hosts_per_leaf * c.nics_per_host);
      break;
    case Pattern::RailOptimised:
      per_switch_ = c.hosts_per_group;
      make_leaves_and_spines(c, (c.hosts + per_switch_ - 1) / per_switch_ * c.nics_per_host,
                             c.hosts_per_group);
      break;
    case Pattern::Ring:
    case Pattern::Torus:
      make_torus(c);
      break;
    case Pattern::Dragonfly:
      make_dragonfly(c);
      break;
    case Pattern::Graph:
      make_graph(c);
      break;
  }
}

std::uint32_t Network::spec(const LinkSpec& l) {
  specs_.push_back(l);
  return static_cast<std::uint32_t>(specs_.size() - 1);
}

void Network::make_leaves_and_spines(const Cluster& c, int leaves, double ports_below) {
  leaves_ = leaves;
  spines_ = c.spines;
  switches_ = leaves + c.spines;
  std::uint32_t up = spec(uplink_of(c, ports_below));
  for (int l = 0; l < leaves; ++l)
    for (int s = 0; s < c.spines; ++s) join(l, leaves + s, up);
}

void Network::make_torus(const Cluster& c) {
  extents_ = c.pattern == Pattern::Ring ? std::vector<int>{c.hosts} : c.extents;
  per_switch_ = 1;
  leaves_ = switches_ = c.hosts;
  std::uint32_t cable = spec(c.trunk);
  std::size_t dimensions = extents_.size();
  plus_.assign(c.hosts * dimensions, UINT32_MAX);
  for (int v = 0; v < c.hosts; ++v) {
    int stride = 1;
    for (std::size_t d = 0; d < dimensions; ++d) {
      int extent = extents_[d];
      int at = v / stride % extent;
      // Two neighbours are joined once, not there and back.
      if (extent > 2 || (extent == 2 && at == 0)) {
        plus_[v * dimensions + d] = static_cast<std::uint32_t>(trunks_.size());
        join(v, v + (at + 1 < extent ? stride : -stride * (extent - 1)), cable);
      }
      stride *= extent;
    }
  }
}

void Network::make_dragonfly(const Cluster& c) {
  groups_ = c.groups;
  routers_per_group_ = c.routers_per_group;
  per_switch_ = c.hosts_per_router;
  leaves_ = switches_ = c.groups * c.routers_per_group;
  std::uint32_t local = spec(c.trunk);
  std::uint32_t global = spec(c.global);
  for (int g = 0; g < groups_; ++g)
    for (int a = 0; a < routers_per_group_; ++a)
      for (int b = a + 1; b < routers_per_group_; ++b)
        join(g * routers_per_group_ + a, g * routers_per_group_ + b, local);
  for (int g = 0; g < groups_; ++g)
    for (int h = g + 1; h < groups_; ++h) join(gateway(g, h), gateway(h, g), global);
}

void Network::make_graph(const Cluster& c) {
  std::map<std::string, int> index;
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    index[c.nodes[i].name] = static_cast<int>(i);
    names_.push_back(c.nodes[i].name);
    is_host_.push_back(c.nodes[i].host);
    if (c.nodes[i].host) host_node_.push_back(static_cast<int>(i));
  }
  switches_ = static_cast<int>(c.nodes.size());
  for (const GraphLink& l : c.links) join(index.at(l.from), index.at(l.to), spec(l.link));
  if (ecmp_ == Ecmp::Source)
    inbound_ = route_graph(switches_, trunks_, {}, host_node_).inbound;
  else
    make_table();
}

int Network::switch_of(HostId host, int nic) const {
  if (pattern_ == Pattern::Graph) return host_node_[host.number];
  int group = host.number / per_switch_;
  return pattern_ == Pattern::RailOptimised ? group * nics_ + nic : group;
}

void Network::fail(const std::vector<std::uint32_t>& trunks) {
  failed_.assign(trunks_.size(), false);
  for (std::uint32_t t : trunks) failed_[t] = true;
  any_failed_ = !trunks.empty();
  if (!any_failed_) return;
  if (pattern_ == Pattern::Graph && ecmp_ == Ecmp::Source)
    inbound_ = route_graph(switches_, trunks_, failed_, host_node_).inbound;
  else
    make_table();
}

void Network::make_table() {
  std::vector<int> with_hosts = host_node_;
  if (pattern_ != Pattern::Graph)
    for (int s = 0; s < leaves_; ++s) with_hosts.push_back(s);
  std::size_t n = switches_;
  row_of_.assign(n, -1);
  distance_.assign(with_hosts.size() * n, UINT16_MAX);
  for (std::size_t i = 0; i < with_hosts.size(); ++i) row_of_[with_hosts[i]] = static_cast<int>(i);
  distances(switches_, trunks_, failed_, with_hosts, distance_);
  std::vector<std::vector<std::uint32_t>> at(n);
  for (std::uint32_t t = 0; t < trunks_.size(); ++t) {
    if (failed(t)) continue;
    at[trunks_[t].from].push_back(2 * t);
    at[trunks_[t].to].push_back(2 * t + 1);
  }
  at_.clear();
  first_.assign(1, 0);
  for (const auto& a : at) {
    at_.insert(at_.end(), a.begin(), a.end());
    first_.push_back(static_cast<std::uint32_t>(at_.size()));
  }
}

int Network::gateway(int group, int other) const {
  return group * routers_per_group_ + (other < group ? other : other - 1) % routers_per_group_;
}

std::uint32_t Network::local_trunk(int group, int a, int b) const {
  std::int64_t pairs = std::int64_t{routers_per_group_} * (routers_per_group_ - 1) / 2;
  bool back = a > b;
  if (back) std::swap(a, b);
  return static_cast<std::uint32_t>(2 * (group * pairs + pair_number(routers_per_group_, a, b)) +
                                    (back ? 1 : 0));
}

void Network::step(int& router, std::size_t d, int sign, std::vector<std::uint32_t>& out) const {
  std::size_t dimensions = extents_.size();
  int stride = 1;
  for (std::size_t i = 0; i < d; ++i) stride *= extents_[i];
  int extent = extents_[d];
  auto neighbour = [&](int v, int s) {
    int at = v / stride % extent;
    return v + ((at + s + extent) % extent - at) * stride;
  };
  int next = neighbour(router, sign);
  std::uint32_t ahead = plus_[router * dimensions + d];
  if (sign > 0 && ahead != UINT32_MAX)
    out.push_back(2 * ahead);
  else
    out.push_back(2 * plus_[next * dimensions + d] + 1);
  router = next;
}

bool Network::by_pattern(HostId host_a, int nic_a, HostId host_b, int nic_b,
                         std::vector<std::uint32_t>& out) const {
  std::size_t before = out.size();
  int a = switch_of(host_a, nic_a);
  int b = switch_of(host_b, nic_b);
  if (a == b) return true;
  auto u = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  switch (pattern_) {
    case Pattern::Star:
    case Pattern::Nvl72:
    case Pattern::Graph:
      break;
    case Pattern::Racks:
      out.push_back(2 * u(a));
      out.push_back(2 * u(b) + 1);
      break;
    case Pattern::FatTree:
    case Pattern::RailOptimised: {
      const int source = number_of(host_a, nic_a);
      int spine =
          ecmp_ == Ecmp::Hash
              ? static_cast<int>(ecmp_choice(u(source), u(number_of(host_b, nic_b)), u(spines_)))
              : (pattern_ == Pattern::FatTree ? source : host_a.number) % spines_;
      out.push_back(2 * u(std::int64_t{a} * spines_ + spine));
      out.push_back(2 * u(std::int64_t{b} * spines_ + spine) + 1);
      break;
    }
    case Pattern::Ring:
    case Pattern::Torus: {
      int at = a;
      int stride = 1;
      for (std::size_t d = 0; d < extents_.size(); ++d) {
        int extent = extents_[d];
        int ahead = (b / stride % extent - at / stride % extent + extent) % extent;
        bool plus = 2 * ahead <= extent;
        for (int k = plus ? ahead : extent - ahead; k > 0; --k) step(at, d, plus ? 1 : -1, out);
        stride *= extent;
      }
      break;
    }
    case Pattern::Dragonfly: {
      int n = routers_per_group_;
      int ga = a / n;
      int gb = b / n;
      if (ga == gb) {
        out.push_back(local_trunk(ga, a % n, b % n));
        break;
      }
      int leave = gateway(ga, gb);
      int enter = gateway(gb, ga);
      if (a != leave) out.push_back(local_trunk(ga, a % n, leave % n));
      std::int64_t globals = std::int64_t{groups_} * n * (n - 1) / 2;
      out.push_back(2 * u(globals + pair_number(groups_, std::min(ga, gb), std::max(ga, gb))) +
                    (ga > gb ? 1u : 0u));
      if (enter != b) out.push_back(local_trunk(gb, enter % n, b % n));
      break;
    }
  }
  if (any_failed_)
    for (std::size_t i = before; i < out.size(); ++i)
      if (failed_[out[i] / 2]) {
        out.resize(before);
        return false;
      }
  return true;
}

void Network::by_table(int from, int to, std::uint32_t source, std::uint32_t destination,
                       std::vector<std::uint32_t>& out) const {
  const std::uint16_t* distance =
      distance_.data() + static_cast<std::size_t>(row_of_[to]) * switches_;
  auto end_of = [&](std::uint32_t l) {
    return l % 2 == 0 ? trunks_[l / 2].to : trunks_[l / 2].from;
  };
  for (std::size_t at = from; static_cast<int>(at) != to;) {
    auto nearer = [&](std::uint32_t l) { return distance[end_of(l)] + 1 == distance[at]; };
    std::uint32_t paths = 0;
    for (std::uint32_t i = first_[at]; i < first_[at + 1]; ++i) paths += nearer(at_[i]) ? 1 : 0;
    std::uint32_t choice =
        ecmp_ == Ecmp::Hash ? ecmp_choice(source, destination, paths) : source % paths;
    for (std::uint32_t i = first_[at]; i < first_[at + 1]; ++i)
      if (nearer(at_[i]) && choice-- == 0) {
        out.push_back(at_[i]);
        at = end_of(at_[i]);
        break;
      }
  }
}

bool Network::reachable(HostId host_a, int nic_a, HostId host_b, int nic_b) const {
  int a = switch_of(host_a, nic_a);
  int b = switch_of(host_b, nic_b);
  if (a == b) return true;
  if (!inbound_.empty()) return inbound_[host_a.number][b] != UINT32_MAX;
  if (pattern_ != Pattern::Graph && !any_failed_) return true;
  return distance_[static_cast<std::size_t>(row_of_[b]) * switches_ + a] != UINT16_MAX;
}

void Network::find_way(HostId host_a, int nic_a, HostId host_b, int nic_b,
                       std::vector<std::uint32_t>& out) const {
  if (pattern_ == Pattern::Graph && ecmp_ == Ecmp::Source) {
    std::size_t before = out.size();
    const auto& inbound = inbound_[host_a.number];
    int source = host_node_[host_a.number];
    for (int node = host_node_[host_b.number]; node != source;) {
      std::uint32_t link = inbound[node];
      out.push_back(link);
      node = link % 2 == 0 ? trunks_[link / 2].from : trunks_[link / 2].to;
    }
    std::reverse(out.begin() + before, out.end());
    return;
  }
  if (pattern_ != Pattern::Graph && by_pattern(host_a, nic_a, host_b, nic_b, out)) return;
  by_table(switch_of(host_a, nic_a), switch_of(host_b, nic_b),
           static_cast<std::uint32_t>(number_of(host_a, nic_a)),
           static_cast<std::uint32_t>(number_of(host_b, nic_b)), out);
}

bool Network::each_its_own() const {
  bool spines = pattern_ == Pattern::FatTree || pattern_ == Pattern::RailOptimised;
  return pattern_ == Pattern::Graph || any_failed_ || (spines && ecmp_ == Ecmp::Hash);
}

std::uint32_t Network::alike_from(HostId host, int nic) const {
  const int source = number_of(host, nic);
  std::int64_t number = switch_of(host, nic);
  if (each_its_own())
    number = source;
  else if (pattern_ == Pattern::FatTree)
    number = number * spines_ + source % spines_;
  else if (pattern_ == Pattern::RailOptimised)
    number = number * spines_ + host.number % spines_;
  return static_cast<std::uint32_t>(number);
}

std::uint32_t Network::alike_to(HostId host, int nic) const {
  return static_cast<std::uint32_t>(each_its_own() ? number_of(host, nic) : switch_of(host, nic));
}

const char* Network::role_of(int s) const {
  switch (pattern_) {
    case Pattern::Star:
    case Pattern::Nvl72:
      return "switch";
    case Pattern::Racks:
      return s < leaves_ ? "rack switch" : "core switch";
    case Pattern::FatTree:
    case Pattern::RailOptimised:
      return s < leaves_ ? "leaf switch" : "spine switch";
    case Pattern::Graph:
      return is_host_[s] ? "host" : "switch";
    default:
      return "router";
  }
}

std::string Network::switch_name(int s) const {
  switch (pattern_) {
    case Pattern::Star:
    case Pattern::Nvl72:
      return "switch";
    case Pattern::Racks:
      return s < leaves_ ? "rack" + std::to_string(s) : "core";
    case Pattern::FatTree:
      return s < leaves_ ? "leaf" + std::to_string(s) : "spine" + std::to_string(s - leaves_);
    case Pattern::RailOptimised:
      return s < leaves_ ? "group" + std::to_string(s / nics_) + ".leaf" + std::to_string(s % nics_)
                         : "spine" + std::to_string(s - leaves_);
    case Pattern::Dragonfly:
      return "group" + std::to_string(s / routers_per_group_) + ".router" +
             std::to_string(s % routers_per_group_);
    case Pattern::Graph:
      return names_[s];
    default:
      return "router" + std::to_string(s);
  }
}

std::string Network::trunk_name(std::uint32_t trunk, int direction) const {
  const Trunk& t = trunks_[trunk];
  const char* way = direction == 0 ? " up" : " down";
  if (pattern_ == Pattern::Racks) return "rack" + std::to_string(t.from) + " uplink" + way;
  if (pattern_ == Pattern::FatTree || pattern_ == Pattern::RailOptimised)
    return switch_name(t.from) + "-" + switch_name(t.to) + way;
  return direction == 0 ? switch_name(t.from) + "->" + switch_name(t.to)
                        : switch_name(t.to) + "->" + switch_name(t.from);
}

}  // namespace ddpsim::topology
