#include "sim/collective/communicator.h"

#include <algorithm>
#include <map>
#include <set>

namespace ddpsim::collective {
namespace {

// Ranks of each host, hosts in the order of their first rank.
std::vector<std::vector<int>> by_host(const topology::Fabric& f, const std::vector<int>& devices) {
  std::vector<std::vector<int>> groups;
  std::map<int, std::size_t> group_of;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    auto [it, fresh] = group_of.emplace(f.host_of(devices[r]), groups.size());
    if (fresh) groups.emplace_back();
    groups[it->second].push_back(static_cast<int>(r));
  }
  return groups;
}

// Ring c enters each host at the first rank behind NIC c and leaves it by the rank before that one: in all, every NIC sends once and receives once.
std::vector<std::vector<int>> nccl_rings(const topology::Fabric& f, const std::vector<int>& devices) {
  auto groups = by_host(f, devices);
  std::size_t rings = 1;
  if (groups.size() > 1) {
    rings = static_cast<std::size_t>(f.cluster().nics_per_host);
    for (const auto& g : groups) rings = std::min(rings, g.size());
  }
  std::vector<std::vector<int>> out(rings);
  for (std::size_t c = 0; c < rings; ++c) {
    out[c].reserve(devices.size());
    for (const auto& g : groups)
      for (std::size_t i = 0; i < g.size(); ++i) out[c].push_back(g[(c * g.size() / rings + i) % g.size()]);
  }
  return out;
}

class LoadCounter {
 public:
  explicit LoadCounter(const topology::Fabric& f) : count_(f.links().size(), 0) {}
  void add(const topology::Route& route, double amount) {
    for (topology::LinkId l : route.links) {
      if (count_[l] == 0) used_.push_back(l);
      count_[l] += amount;
    }
  }
  std::vector<LinkLoad> take() {
    std::sort(used_.begin(), used_.end());
    std::vector<LinkLoad> out;
    out.reserve(used_.size());
    for (topology::LinkId l : used_) {
      out.push_back({l, count_[l]});
      count_[l] = 0;
    }
    used_.clear();
    return out;
  }

 private:
  std::vector<double> count_;
  std::vector<topology::LinkId> used_;
};

}  // namespace

std::vector<std::pair<int, int>> tree_round(int ranks, int round) {
  std::vector<std::pair<int, int>> out;
  int distance = 1 << round;
  for (int v = 0; v < distance && v + distance < ranks; ++v) out.emplace_back(v, v + distance);
  return out;
}

Communicator make_communicator(const topology::Fabric& f, std::vector<int> devices, Backend backend) {
  Communicator c;
  c.fabric = &f;
  c.devices = std::move(devices);
  c.backend = backend;
  int n = c.ranks();
  if (backend == Backend::Nccl) {
    c.rings = nccl_rings(f, c.devices);
  } else {
    c.rings.emplace_back();
    for (int r = 0; r < n; ++r) c.rings[0].push_back(backend == Backend::Gloo ? (n - r) % n : r);
  }
  if (n < 2) return c;
  topology::Route route;
  std::set<std::uint8_t> used;
  LoadCounter ring(f);
  double share = 1.0 / static_cast<double>(c.rings.size());
  for (std::size_t k = 0; k < c.rings.size(); ++k) {
    for (int i = 0; i < n; ++i) {
      int from = c.rings[k][static_cast<std::size_t>(i)];
      int to = c.rings[k][static_cast<std::size_t>((i + 1) % n)];
      f.find_route(c.devices[static_cast<std::size_t>(from)], c.devices[static_cast<std::size_t>(to)], route);
      ring.add(route, share);
      if (k == 0) c.ring_hops.push_back({from, to, route.transport, route.latency});
      used.insert(route.transport);
    }
  }
  c.ring_load = ring.take();
  int rounds = 0;
  while ((1 << rounds) < n) ++rounds;
  LoadCounter mean(f);
  LoadCounter one(f);
  for (int round = 0; round < rounds; ++round) {
    Communicator::TreeRound r;
    for (auto [from, to] : tree_round(n, round)) {
      f.find_route(c.devices[static_cast<std::size_t>(from)], c.devices[static_cast<std::size_t>(to)], route);
      one.add(route, 1);
      mean.add(route, 1.0 / rounds);
      used.insert(route.transport);
      auto same = std::find_if(r.hops.begin(), r.hops.end(), [&](const Hop& h) { return h.transport == route.transport; });
      if (same == r.hops.end()) r.hops.push_back({from, to, route.transport, route.latency});
      else if (route.latency > same->wire_latency) *same = {from, to, route.transport, route.latency};
    }
    r.load = one.take();
    c.tree.push_back(std::move(r));
  }
  c.tree_load = mean.take();
  c.transports.assign(used.begin(), used.end());
  return c;
}

}  // namespace ddpsim::collective
