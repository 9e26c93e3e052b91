//   messages on a link = pairs of ranks whose way crosses it
//
// Pairs of one node are walked one by one. Between nodes a way has three parts (topology::Fabric):
// from the sender to a NIC of its host, which depends on the sender and on the receiver's place in
// its host; from NIC to NIC; from the receiver's NIC to it. The first and the last are counted for
// every GPU. For the one in the middle hosts are put into classes: whose GPUs use their NICs alike
// (a kind), and whose NICs' ways through the network are alike. A way between two NICs of two
// classes is walked once, and counts for all pairs of their hosts. Where the network hashes NICs, a
// class is one host.
#include "sim/nccl/fabric/p2p_routes.h"

#include <algorithm>
#include <compare>
#include <map>
#include <tuple>

#include "sim/nccl/fabric/group.h"
#include "sim/nccl/fabric/p2p_price.h"
#include "sim/nccl/fabric/peers.h"
#include "sim/nccl/nth.h"

namespace ddpsim::nccl {
namespace {

using topology::Fabric;
using topology::LinkId;

// Part of a way: what a hop is made of.
struct Part {
  Duration latency;
  Bytes eager;  // the smallest of its links that has one; 0 = none
  friend auto operator<=>(const Part&, const Part&) = default;
};
Part operator+(const Part& a, const Part& b) {
  Bytes least = a.eager.count == 0   ? b.eager
                : b.eager.count == 0 ? a.eager
                                     : std::min(a.eager, b.eager);
  return {a.latency + b.latency, least};
}
Part part_of(const Fabric& f, const std::vector<LinkId>& links) {
  Part out;
  for (LinkId l : links) out = out + Part{f.links()[l].latency, f.links()[l].eager};
  return out;
}

void add_hop(std::uint8_t transport, const Part& way, std::vector<SlowestHop>& hops) {
  auto same = std::find_if(hops.begin(), hops.end(), [&](const SlowestHop& h) {
    return h.transport == transport && h.eager == way.eager;
  });
  if (same == hops.end())
    hops.push_back({true, transport, way.latency, way.eager, 0, 0, false});
  else
    same->wire = std::max(same->wire, way.latency);
}

void add_route(const Fabric& f, const topology::Route& route, P2pRoutes& out) {
  for (LinkId l : route.links) ++out.messages[l];
  add_hop(route.transport, part_of(f, route.links), out.hops);
}

// [device] takes part.
std::vector<bool> members_of(const Group& g) {
  std::vector<bool> out(g.fabric->devices());
  for (DeviceId d : g.devices) nth(out, d.number) = true;
  return out;
}

// The GPU of a's host by whose NIC a message leaves for the GPU at `place` of another node: the one
// at that place, where NVLinks lead to it (PXN); else a.
DeviceId leaves_by(const Group& g, const std::vector<bool>& members, DeviceId a, int place) {
  const Fabric& f = *g.fabric;
  const DeviceId near = f.device_of(f.host_of(a), place);
  if (!f.has_nic_links() || !nth(members, near.number) || near == a ||
      f.nic_of(near) == f.nic_of(a))
    return a;
  return path_type_inside(g, a, near) > topology::PathType::Nvl ||
                 f.nic_path_type(near, f.nic_of(near)) > topology::PathType::P2c
             ? a
             : near;
}

void find_way(const Group& g, const std::vector<bool>& members, DeviceId a, DeviceId b,
              topology::Route& route, topology::Route& scratch) {
  const Fabric& f = *g.fabric;
  const DeviceId by = f.host_of(a) == f.host_of(b) || f.nvlink_domain(a, b)
                          ? a
                          : leaves_by(g, members, a, f.local_of(b));
  if (by == a) return find_route_inside(g, a, b, route);
  f.find_route_by_nics(by, f.nic_of(by), b, f.nic_of(b), route);
  f.find_route(a, by, scratch);
  route.links.insert(route.links.begin(), scratch.links.begin(), scratch.links.end());
  route.latency = route.latency + scratch.latency;
}

// How a host's GPUs that take part use its NICs.
struct Kind {
  struct End {
    int nic = 0;
    Part part;  // between the GPU and the network
    friend auto operator<=>(const End&, const End&) = default;
  };
  std::vector<int> places;  // of its GPUs that take part
  std::vector<End> out;     // [GPU * devices per host + receiver's place]
  std::vector<End> in;      // [GPU]
  // No <=>: libc++ 14 (Emscripten) has none of vectors.
  friend bool operator<(const Kind& a, const Kind& b) {
    return std::tie(a.places, a.out, a.in) < std::tie(b.places, b.out, b.in);
  }
};

// Hosts of one kind, whose NICs' ways through the network are alike.
struct Class {
  int node = -1;  // of all its hosts; -1 = each is a node
  std::vector<HostId> hosts;
};
using Classes = std::map<std::vector<std::uint32_t>, Class>;

// Messages from one NIC of a host to one of another.
struct Flow {
  std::int64_t messages = 0;
  std::vector<Part> ends;  // of each eager size, the longest
};

std::map<std::pair<int, int>, Flow> flows_between(const Kind& a, const Kind& b,
                                                  int devices_per_host) {
  std::map<std::pair<int, int>, Flow> out;
  for (std::size_t i = 0; i < a.places.size(); ++i)
    for (std::size_t k = 0; k < b.places.size(); ++k) {
      const Kind::End& from = a.out[i * devices_per_host + b.places[k]];
      const Kind::End& to = b.in[k];
      Flow& flow = out[{from.nic, to.nic}];
      ++flow.messages;
      Part ends = from.part + to.part;
      auto same = std::find_if(flow.ends.begin(), flow.ends.end(),
                               [&](const Part& p) { return p.eager == ends.eager; });
      if (same == flow.ends.end())
        flow.ends.push_back(ends);
      else
        same->latency = std::max(same->latency, ends.latency);
    }
  return out;
}

// Pairs of hosts of different nodes.
std::int64_t pairs_of(const Class& a, const Class& b) {
  if (a.node >= 0 && a.node == b.node) return 0;
  std::int64_t all = a.hosts.size() * b.hosts.size();
  return &a == &b ? all - static_cast<std::int64_t>(a.hosts.size()) : all;
}

// The messages between nodes of an all-to-all.
class BetweenNodes {
 public:
  BetweenNodes(const Group& g, P2pRoutes& out)
      : g_(g),
        f_(*g.fabric),
        per_host_(f_.cluster().devices_per_host),
        members_(members_of(g)),
        out_(out) {
    at_place_.resize(per_host_);
    for (DeviceId d : g.devices) ++nth(at_place_, f_.local_of(d));
  }
  void add() {
    for (std::size_t node = 0; node < g_.nodes.size(); ++node) {
      std::vector<std::int64_t> elsewhere = at_place_;
      std::map<HostId, std::vector<DeviceId>> hosts;
      for (int r : g_.nodes[node]) {
        const DeviceId device = nth(g_.devices, r);
        --nth(elsewhere, f_.local_of(device));
        hosts[f_.host_of(device)].push_back(device);
      }
      std::int64_t senders = g_.devices.size() - g_.nodes[node].size();
      for (const auto& [host, devices] : hosts)
        add_host(host, hosts.size() > 1 ? static_cast<int>(node) : -1, devices, elsewhere, senders);
    }
    for (const auto& [a, from] : kinds_)
      for (const auto& [b, to] : kinds_)
        for (const auto& [nics, flow] : flows_between(a, b, per_host_))
          for (const auto& [x, classes] : from)
            for (const auto& [y, others] : to) add_crossing(classes, others, nics, flow);
  }

 private:
  // Its GPUs' ways to and from its NICs. `elsewhere`: receivers at each place of other nodes;
  // `senders`: of other nodes.
  void add_host(HostId host, int node, const std::vector<DeviceId>& devices,
                const std::vector<std::int64_t>& elsewhere, std::int64_t senders) {
    Kind kind;
    for (DeviceId a : devices) {
      kind.places.push_back(f_.local_of(a));
      for (int place = 0; place < per_host_; ++place) {
        std::int64_t receivers = nth(elsewhere, place);
        kind.out.emplace_back();
        if (receivers == 0) continue;
        const DeviceId by = leaves_by(g_, members_, a, place);
        links_.clear();
        if (by != a) f_.find_route(a, by, scratch_);
        if (by != a) links_ = scratch_.links;
        f_.append_exit(by, f_.nic_of(by), links_);
        for (LinkId l : links_) out_.messages[l] += receivers;
        kind.out.back() = {f_.nic_of(by), part_of(f_, links_)};
      }
      links_.clear();
      f_.append_entry(f_.nic_of(a), a, links_);
      for (LinkId l : links_) out_.messages[l] += senders;
      kind.in.push_back({f_.nic_of(a), part_of(f_, links_)});
    }
    std::vector<std::uint32_t> alike{static_cast<std::uint32_t>(node)};
    for (int nic = 0; nic < f_.nics_per_host(); ++nic) {
      alike.push_back(f_.network().alike_from(host, nic));
      alike.push_back(f_.network().alike_to(host, nic));
    }
    Class& c = kinds_[std::move(kind)][std::move(alike)];
    c.node = node;
    c.hosts.push_back(host);
  }
  void add_crossing(const Class& a, const Class& b, std::pair<int, int> nics, const Flow& flow) {
    std::int64_t pairs = pairs_of(a, b);
    if (pairs == 0) return;
    links_.clear();
    std::uint8_t transport = f_.append_crossing(a.hosts.front(), nics.first,
                                                b.hosts[&a == &b ? 1 : 0], nics.second, links_);
    for (LinkId l : links_) out_.messages[l] += pairs * flow.messages;
    Part way = part_of(f_, links_);
    for (const Part& ends : flow.ends) add_hop(transport, ends + way, out_.hops);
  }

  const Group& g_;
  const Fabric& f_;
  int per_host_;
  std::vector<bool> members_;
  P2pRoutes& out_;
  std::vector<std::int64_t> at_place_;  // GPUs that take part
  std::map<Kind, Classes> kinds_;
  std::vector<LinkId> links_;
  topology::Route scratch_;
};

P2pPairs no_pairs(const Group& g) {
  P2pPairs out;
  out.inside.messages.resize(g.fabric->links().size());
  out.between.messages.resize(g.fabric->links().size());
  return out;
}

}  // namespace

void find_p2p_route(const Group& g, int from, int to, topology::Route& route) {
  topology::Route scratch;
  find_way(g, members_of(g), nth(g.devices, from), nth(g.devices, to), route, scratch);
}

P2pPairs routes_of_all_pairs(const Group& g) {
  P2pPairs out = no_pairs(g);
  std::vector<bool> members = members_of(g);
  topology::Route route;
  topology::Route scratch;
  for (const auto& node : g.nodes)
    for (int a : node)
      for (int b : node) {
        if (a == b) continue;
        find_way(g, members, nth(g.devices, a), nth(g.devices, b), route, scratch);
        add_route(*g.fabric, route, out.inside);
      }
  if (g.nodes.size() > 1) BetweenNodes(g, out.between).add();
  return out;
}

P2pPairs routes_to_the_next(const Group& g) {
  P2pPairs out = no_pairs(g);
  std::vector<bool> members = members_of(g);
  std::vector<std::size_t> node_of(g.devices.size());
  for (std::size_t k = 0; k < g.nodes.size(); ++k)
    for (int r : g.nodes[k]) nth(node_of, r) = k;
  topology::Route route;
  topology::Route scratch;
  for (std::size_t a = 0; a < g.devices.size(); ++a) {
    std::size_t b = (a + 1) % g.devices.size();
    find_way(g, members, g.devices[a], g.devices[b], route, scratch);
    add_route(*g.fabric, route, node_of[a] == node_of[b] ? out.inside : out.between);
  }
  return out;
}

}  // namespace ddpsim::nccl
