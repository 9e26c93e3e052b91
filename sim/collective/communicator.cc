#include "sim/collective/communicator.h"

#include <algorithm>
#include <map>
#include <set>

#include "sim/collective/blocks.h"
#include "sim/collective/sockets.h"
#include "sim/topology/link_loads.h"

namespace ddpsim::collective {
namespace {

// Ring c enters each host at the first rank behind NIC c and leaves it by the rank before that one:
// in all, every NIC sends once and receives once.
std::vector<std::vector<int>> nccl_rings(const topology::Fabric& f,
                                         const std::vector<int>& devices) {
  auto groups = ranks_by_host(f, devices);
  std::size_t rings = 1;
  if (groups.size() > 1) {
    rings = static_cast<std::size_t>(f.cluster().nics_per_host);
    for (const auto& g : groups) rings = std::min(rings, g.size());
  }
  std::vector<std::vector<int>> out(rings);
  for (std::size_t c = 0; c < rings; ++c) {
    out[c].reserve(devices.size());
    for (const auto& g : groups)
      for (std::size_t i = 0; i < g.size(); ++i)
        out[c].push_back(g[(c * g.size() / rings + i) % g.size()]);
  }
  return out;
}

void add_loads(std::vector<LinkLoad>& to, const std::vector<LinkLoad>& more) {
  std::vector<LinkLoad> sum;
  sum.reserve(to.size() + more.size());
  auto a = to.begin();
  for (const LinkLoad& l : more) {
    while (a != to.end() && a->link < l.link) sum.push_back(*a++);
    if (a != to.end() && a->link == l.link)
      sum.push_back({l.link, a++->per_byte + l.per_byte});
    else
      sum.push_back(l);
  }
  sum.insert(sum.end(), a, to.end());
  to = std::move(sum);
}

}  // namespace

Communicator make_joint(std::vector<Communicator> groups) {
  Communicator joint = groups.front();
  for (std::size_t k = 1; k < groups.size(); ++k)
    for (std::size_t p = 0; p < joint.patterns.size(); ++p) {
      Pattern& to = joint.patterns[p];
      const Pattern& more = groups[k].patterns[p];
      add_loads(to.load, more.load);
      to.moved += more.moved;
      for (std::size_t r = 0; r < std::min(to.rounds.size(), more.rounds.size()); ++r)
        add_loads(to.rounds[r].load, more.rounds[r].load);
    }
  joint.joined = std::move(groups);
  return joint;
}

Layout layout_of(const topology::Fabric& f, const std::vector<int>& devices) {
  Layout out;
  out.ranks = static_cast<int>(devices.size());
  bool hosts = f.cluster().devices_per_host > 1;
  for (int d : devices) out.group.push_back(hosts ? f.host_of(d) : f.group_of(f.host_of(d)));
  return out;
}

namespace {

int rank_at(const Layout& l, int position) {
  return l.order.empty() ? position : l.order[static_cast<std::size_t>(position)];
}

void find_way(const Communicator& c, int from, int to, topology::Route& route) {
  const int a = c.devices[static_cast<std::size_t>(from)];
  const int b = c.devices[static_cast<std::size_t>(to)];
  c.sockets ? find_socket_route(*c.fabric, a, b, route) : c.fabric->find_route(a, b, route);
}

// `mean`: gets the round's loads, times `weight`.
Pattern::Round route_round(const Communicator& c, const Round& round, double weight,
                           LinkLoads& mean) {
  Pattern::Round out;
  LinkLoads one(*c.fabric);
  topology::Route route;
  std::vector<double> summed(round.sums ? c.devices.size() : 0);
  std::vector<double> io(c.sockets ? c.devices.size() : 0);
  for (const Transfer& t : round.transfers) {
    int from = rank_at(c.layout, t.from);
    int to = rank_at(c.layout, t.to);
    find_way(c, from, to, route);
    one.add(route, t.share);
    mean.add(route, t.share * weight);
    auto same = std::find_if(out.hops.begin(), out.hops.end(),
                             [&](const Hop& h) { return h.transport == route.transport; });
    if (same == out.hops.end())
      out.hops.push_back({from, to, route.transport, route.latency});
    else if (route.latency > same->wire_latency)
      *same = {from, to, route.transport, route.latency};
    out.message = std::max(out.message, t.share);
    out.moved += t.share;
    if (round.sums) summed[static_cast<std::size_t>(to)] += t.share;
    if (!c.sockets) continue;
    for (int r : {from, to}) io[static_cast<std::size_t>(r)] += t.share / 2;
  }
  for (double s : io) out.io = std::max(out.io, s);
  for (double s : summed) {
    out.summed = std::max(out.summed, s);
    out.summed_by_all += s;
  }
  out.times = round.times;
  out.messages = static_cast<int>(round.transfers.size());
  out.load = one.take();
  return out;
}

}  // namespace

namespace {

Pattern route_rounds(const Communicator& c, Algorithm a, Operation o, const Rounds& rounds) {
  Pattern out;
  out.algorithm = a;
  out.operation = o;
  out.pipelined = rounds.pipelined;
  out.lanes = rounds.lanes;
  double total = 0;
  for (const Round& r : rounds.rounds) total += r.times;
  LinkLoads mean(*c.fabric);
  for (const Round& r : rounds.rounds)
    out.rounds.push_back(route_round(c, r, r.times / total, mean));
  if (c.backend == Backend::Mpi) {
    const std::vector<RoundTurns> turns = turns_of(rounds, c.ranks());
    for (std::size_t k = 0; k < turns.size(); ++k) out.rounds[k].exchange = turns[k];
  }
  out.load = mean.take();
  out.io = 0;
  for (const Pattern::Round& r : out.rounds) out.io += r.io * r.times / total;
  out.by_round = !rounds.pipelined && o != Operation::Broadcast;
  if (!rounds.pipelined)
    for (const Pattern::Round& r : out.rounds) out.moved += r.moved * r.times / total;
  if (rounds.pipelined) {
    out.cycle = route_round(c, rounds.cycle, 1, mean);
    mean.take();
    Round streamed;
    streamed.transfers = rounds.streamed;
    out.streamed = static_cast<int>(rounds.streamed.size());
    for (const Transfer& t : rounds.streamed) out.moved += t.share;
    route_round(c, streamed, 1, mean);
    out.load = mean.take();
  }
  return out;
}

}  // namespace

Pattern make_pattern(const Communicator& c, Algorithm a, Operation o) {
  return route_rounds(c, a, o, make_rounds(a, o, c.layout));
}

int mpi_pattern(MpiAllReduce a) {
  return kMpiPatterns + static_cast<int>(a) - 1;
}
int mpi_broadcast_pattern(Algorithm a) {
  auto at = std::find(kMpiBroadcasts.begin(), kMpiBroadcasts.end(), a);
  return kMpiPatterns + kMpiAllReduces + static_cast<int>(at - kMpiBroadcasts.begin());
}

namespace {

void add_mpi_patterns(Communicator& c) {
  for (int id = 1; id <= kMpiAllReduces; ++id)
    c.patterns.push_back(
        make_pattern(c, algorithm_of(static_cast<MpiAllReduce>(id)), Operation::AllReduce));
  for (Algorithm a : kMpiBroadcasts) {
    // A power of two has it: others get the tree that takes its place.
    const bool has = performs(a, Operation::Broadcast, c.ranks());
    c.patterns.push_back(make_pattern(c, has ? a : Algorithm::BinomialTree, Operation::Broadcast));
    c.patterns.back().moved = c.ranks();
  }
}

}  // namespace

Communicator make_communicator(const topology::Fabric& f, std::vector<int> devices, Backend backend,
                               Algorithm algorithm, bool sockets) {
  Communicator c;
  c.fabric = &f;
  c.devices = std::move(devices);
  c.backend = backend;
  c.sockets = sockets;
  c.layout = layout_of(f, c.devices);
  int n = c.ranks();
  if (backend == Backend::Nccl) {
    c.rings = nccl_rings(f, c.devices);
  } else {
    c.rings.emplace_back();
    for (int r = 0; r < n; ++r) c.rings[0].push_back(backend == Backend::Gloo ? (n - r) % n : r);
  }
  if (n < 2) {
    c.patterns.resize(backend == Backend::Tcp ? kReduce + 1 : kBroadcast + 1);
    return c;
  }
  topology::Route route;
  std::set<std::uint8_t> used;
  LinkLoads ring(f);
  double share = 1.0 / static_cast<double>(c.rings.size());
  for (std::size_t k = 0; k < c.rings.size(); ++k) {
    for (int i = 0; i < n; ++i) {
      int from = c.rings[k][static_cast<std::size_t>(i)];
      int to = c.rings[k][static_cast<std::size_t>((i + 1) % n)];
      find_way(c, from, to, route);
      ring.add(route, share);
      if (k == 0) c.ring_hops.push_back({from, to, route.transport, route.latency});
      used.insert(route.transport);
    }
  }
  const std::vector<LinkLoad> ring_load = ring.take();
  const auto along_ring = [&](Operation o) {
    Pattern p;
    p.operation = o;
    p.load = ring_load;
    p.moved = n;
    return p;
  };
  if (backend == Backend::Mpi) algorithm = Algorithm::Rabenseifner;
  c.patterns.push_back(algorithm == Algorithm::Ring
                           ? along_ring(Operation::AllReduce)
                           : make_pattern(c, algorithm, Operation::AllReduce));
  c.patterns.push_back(backend == Backend::Gloo
                           ? route_rounds(c, Algorithm::BinomialTree, Operation::Broadcast,
                                          rounds_of(binomial_tree_at_once(c.ranks())))
                           : make_pattern(c, Algorithm::BinomialTree, Operation::Broadcast));
  c.patterns[kBroadcast].moved = n;  // counted as a round of everybody
  if (backend == Backend::Mpi) add_mpi_patterns(c);
  if (backend == Backend::Tcp) {
    for (Operation half : {Operation::ReduceScatter, Operation::AllGather})
      c.patterns.push_back(along_ring(half));
    c.patterns.push_back(make_pattern(c, Algorithm::BinomialTree, Operation::Reduce));
  }
  for (const Pattern& p : c.patterns)
    for (const Pattern::Round& r : p.rounds)
      for (const Hop& h : r.hops) used.insert(h.transport);
  c.transports.assign(used.begin(), used.end());
  return c;
}

}  // namespace ddpsim::collective
