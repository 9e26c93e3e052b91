#include "sim/collective/communicator.h"

#include <algorithm>
#include <set>

#include "sim/collective/backend/sockets.h"
#include "sim/collective/blocks.h"
#include "sim/collective/make.h"
#include "sim/topology/link_loads.h"

namespace ddpsim::collective {

Backend Communicator::backend() const {
  return std::visit([](const auto& l) { return l.kBackend; }, library);
}

PatternId Communicator::id(Operation o) const {
  return std::visit([o](const auto& l) { return l.pattern(o); }, library);
}

const Pattern& Communicator::pattern(PatternId id) const {
  static const Pattern kNone;
  return id ? patterns[id.index] : kNone;
}

PatternId Communicator::add(Pattern pattern) {
  patterns.push_back(std::move(pattern));
  return {static_cast<std::uint32_t>(patterns.size() - 1)};
}

bool by_sockets(const Communicator& c) {
  const auto* gloo = std::get_if<Gloo>(&c.library);
  return gloo && gloo->sockets;
}

StepListWays step_list_ways(const Communicator& c) {
  return std::visit(
      [](const auto& l) -> StepListWays {
        if constexpr (requires { l.ways(); }) return l.ways();
        return {};
      },
      c.library);
}

void find_way(const Communicator& c, int from, int to, int nic, topology::Route& route) {
  if (const nccl::Group* group = nccl_group(c))
    return nccl::find_hop_route(*group, from, to, nic, route);
  if (!by_sockets(c)) return topology::find_hop_route(*c.fabric, c.devices, from, to, nic, route);
  find_socket_route(*c.fabric, c.devices[from], c.devices[to], route);
}

namespace {

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

Layout layout_of(const topology::Fabric& f, const std::vector<DeviceId>& devices) {
  Layout out;
  out.ranks = static_cast<int>(devices.size());
  bool hosts = f.cluster().devices_per_host > 1;
  for (DeviceId d : devices)
    out.group.push_back(hosts ? f.host_of(d).number : f.group_of(f.host_of(d)));
  return out;
}

namespace {

int rank_at(const Layout& l, int position) {
  return l.order.empty() ? position : l.order[position];
}

// `mean`: gets the round's loads, times `weight`.
Pattern::Round route_round(const Communicator& c, const Round& round, double weight,
                           LinkLoads& mean) {
  Pattern::Round out;
  const bool sockets = by_sockets(c);
  LinkLoads one(*c.fabric);
  topology::Route route;
  std::vector<double> summed(round.sums ? c.devices.size() : 0);
  std::vector<double> io(sockets ? c.devices.size() : 0);
  for (const Transfer& t : round.transfers) {
    int from = rank_at(c.layout, t.from);
    int to = rank_at(c.layout, t.to);
    find_way(c, from, to, -1, route);
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
    if (round.sums) summed[to] += t.share;
    if (!sockets) continue;
    for (int r : {from, to}) io[r] += t.share / 2;
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
  if (step_list_ways(c).mpi) {
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

Pattern make_pattern(const Communicator& c, Algorithm a, Operation o) {
  return route_rounds(c, a, o, make_rounds(a, o, c.layout));
}

Pattern broadcast_tree(const Communicator& c, const Rounds& rounds) {
  Pattern out = route_rounds(c, Algorithm::BinomialTree, Operation::Broadcast, rounds);
  out.moved = c.ranks();
  return out;
}

Begun begin(const topology::Fabric& f, std::vector<DeviceId> devices, Communicator::Library library,
            std::vector<std::vector<int>> rings) {
  Begun out;
  Communicator& c = out.c;
  c.fabric = &f;
  c.devices = std::move(devices);
  c.library = std::move(library);
  c.layout = layout_of(f, c.devices);
  const double share = 1.0 / static_cast<double>(rings.size());
  for (std::vector<int>& order : rings) c.rings.push_back({std::move(order), share, -1});
  const int n = c.ranks();
  if (n < 2) return out;
  topology::Route route;
  std::set<std::uint8_t> used;
  LinkLoads load(f);
  for (const Ring& ring : c.rings)
    for (int i = 0; i < n; ++i) {
      const int from = ring.order[i];
      const int to = ring.order[(i + 1) % n];
      find_way(c, from, to, -1, route);
      load.add(route, share);
      if (&ring == &c.rings.front())
        c.ring_hops.push_back({from, to, route.transport, route.latency});
      used.insert(route.transport);
    }
  c.transports.assign(used.begin(), used.end());
  out.load = load.take();
  return out;
}

Pattern along_rings(const Begun& b, Operation o) {
  Pattern out;
  out.operation = o;
  out.load = b.load;
  out.moved = b.c.ranks();
  return out;
}

Communicator finish(Begun b) {
  std::set<std::uint8_t> used(b.c.transports.begin(), b.c.transports.end());
  for (const Pattern& p : b.c.patterns)
    for (const Pattern::Round& r : p.rounds)
      for (const Hop& h : r.hops) used.insert(h.transport);
  b.c.transports.assign(used.begin(), used.end());
  return std::move(b.c);
}

Communicator make_communicator(const topology::Fabric& f, std::vector<DeviceId> devices,
                               Backend backend, Algorithm algorithm, bool sockets) {
  switch (backend) {
    case Backend::Nccl:
      return make_nccl_ring(f, std::move(devices));
    case Backend::Gloo:
      return make_gloo(f, std::move(devices), algorithm, sockets);
    case Backend::Tcp:
      return make_tcp(f, std::move(devices), algorithm);
    case Backend::Mpi:
      return make_mpi(f, std::move(devices), {});
  }
  return {};
}

}  // namespace ddpsim::collective
