// All-to-all and send/recv on GPUs: bytes on links as theory has them, prices that grow, and the
// same message by message.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "sim/engine/execute.h"
#include "sim/nccl/fabric/p2p_price.h"
#include "sim/nccl/fabric/p2p_routes.h"
#include "sim/nccl/fabric/terms.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

using collective::LinkLoad;
using nccl::P2pOperation;
using nccl::P2pTime;

struct World {
  Cluster cluster;
  Profile profile;
  std::optional<topology::Fabric> fabric;
  nccl::Group group;
  World(const std::string& name, int hosts, int per_host, const std::vector<int>& host_order = {})
      : cluster(test::cluster(name)) {
    cluster.hosts = hosts;
    profile = test::profile(
        cluster.profile.ends_with(".datasheet") ? cluster.profile : cluster.profile + ".datasheet");
    fabric.emplace(cluster);
    std::vector<DeviceId> devices;
    for (int h = 0; h < hosts; ++h)
      for (int d = 0; d < per_host; ++d)
        devices.push_back(fabric->device_of(
            HostId::at(host_order.empty() ? h : host_order[static_cast<std::size_t>(h)]), d));
    group = nccl::make_group(*fabric, devices, {}, profile.compute.capability);
  }
  World(const World&) = delete;
  P2pTime price(const nccl::P2pOperation& o, std::int64_t bytes) const {
    return nccl::p2p_time(o, profile, Level::Mid, {bytes});
  }
};

struct Place {
  const char* cluster;
  int hosts;
  int per_host;
};
constexpr Place kPlaces[] = {
    {"hgx-h100", 1, 8},     {"hgx-h100", 1, 2},          {"dgx-h100", 4, 8},
    {"dgx-a100", 8, 8},     {"aws-p4d", 2, 8},           {"aws-p3dn", 3, 8},
    {"pcie-box-8", 1, 8},   {"pcie-box-8", 2, 8},        {"dgx1-v100", 2, 8},
    {"gb200-nvl72", 36, 4}, {"gh200x4-slingshot", 4, 4}, {"gpu-ethernet-10g", 7, 1}};
constexpr Operation kOperations2[] = {Operation::AllToAll, Operation::SendRecv};

std::string name(const Place& p, Operation op) {
  return std::string(p.cluster) + " " + std::to_string(p.hosts) + " x " +
         std::to_string(p.per_host) + " " + name_of(op);
}

double on(const std::vector<LinkLoad>& loads, topology::LinkId link) {
  for (const LinkLoad& l : loads)
    if (l.link == link) return l.per_byte;
  return 0;
}

// Per byte of the operation: every rank gives 1/n to each other; the NICs of a host send what its p
// ranks give to the n - p outside, and receive as much.
TEST(NcclP2pLoads, AreWhatTheoryHas) {
  for (const Place& place : kPlaces)
    for (Operation op : kOperations2) {
      World w(place.cluster, place.hosts, place.per_host);
      nccl::P2pOperation o = nccl::make_p2p(w.group, op);
      std::string what = name(place, op);
      double n = w.group.ranks();
      double p = static_cast<double>(w.group.nodes.front().size());  // of a node
      double nodes = w.group.system.nodes;
      bool all = op == Operation::AllToAll;
      for (int way : {0, 1}) {
        double nics = 0;
        for (HostId h : each<HostId>(place.hosts))
          for (int k = 0; k < w.cluster.nics_per_host; ++k) {
            double one =
                on(o.between, w.fabric->nic_link(h, k) + static_cast<topology::LinkId>(way));
            nics += one;
            if (all && w.cluster.devices_per_host == place.per_host) {
              EXPECT_NEAR(one,
                          nodes == 1 ? 0 : place.per_host * (n - p) / n / w.cluster.nics_per_host,
                          1e-9)
                  << what << " host " << h.number << " NIC " << k;
            }
          }
        EXPECT_NEAR(nics,
                    nodes == 1 ? 0
                    : all      ? n - p
                               : nodes,
                    1e-9)
            << what << (way == 0 ? " up" : " down");
      }
      // All NVLinks of a GPU to its switch, both ways: what it gives to (and takes from) its node.
      if (w.cluster.intra)
        for (DeviceId d : each<DeviceId>(place.hosts * w.cluster.devices_per_host))
          for (int way : {0, 1}) {
            bool takes_part = w.fabric->local_of(d) < place.per_host;
            double theory = all && takes_part ? (p - 1) / n : 0;
            if (all) {
              EXPECT_NEAR(
                  on(o.inside, w.fabric->intra_link(d) + static_cast<topology::LinkId>(way)),
                  theory, 1e-9)
                  << what << " GPU " << d.number;
            }
          }
      if (nodes == 1) {
        EXPECT_TRUE(o.between.empty()) << what;
      }
    }
}

// A message to another place of another host goes over NVLink to the GPU at that place, and by its
// NIC (PXN); without NVLink by the sender's own.
TEST(NcclP2pLoads, GoByTheReceiversRail) {
  World w("dgx-a100", 2, 8);
  topology::Route route;
  nccl::find_p2p_route(w.group, 0, 8 + 5, route);
  auto crosses = [&](topology::LinkId l) {
    return std::find(route.links.begin(), route.links.end(), l) != route.links.end();
  };
  EXPECT_TRUE(crosses(w.fabric->intra_link(0)));
  EXPECT_TRUE(crosses(w.fabric->intra_link(5) + 1));
  EXPECT_TRUE(crosses(w.fabric->nic_link(0, 5)));
  EXPECT_TRUE(crosses(w.fabric->nic_link(1, 5) + 1));
  // That GPU is not of the communicator.
  World few("dgx-a100", 2, 4);
  few.group.devices = {0, 1, 8 + 4, 8 + 5};
  nccl::find_p2p_route(few.group, 0, 2, route);
  EXPECT_TRUE(crosses(w.fabric->nic_link(0, 0)));
  World boxes("pcie-box-8", 2, 8);
  nccl::find_p2p_route(boxes.group, 0, 8 + 5, route);
  EXPECT_TRUE(crosses(boxes.fabric->nic_link(0, 0)));
}

// ---- all pairs at once

using Hop = std::tuple<int, std::int64_t, std::int64_t>;  // transport, eager bytes, wire
std::vector<Hop> sorted(const std::vector<nccl::SlowestHop>& hops) {
  std::vector<Hop> out;
  for (const nccl::SlowestHop& h : hops) out.emplace_back(h.transport, h.eager.count, h.wire.ps);
  std::sort(out.begin(), out.end());
  return out;
}

// The sum of every pair's way, walked alone.
nccl::P2pPairs pair_by_pair(const nccl::Group& g) {
  nccl::P2pPairs out;
  std::vector<int> node_of(g.devices.size());
  for (std::size_t k = 0; k < g.nodes.size(); ++k)
    for (int r : g.nodes[k]) node_of[static_cast<std::size_t>(r)] = static_cast<int>(k);
  for (nccl::P2pRoutes* r : {&out.inside, &out.between})
    r->messages.resize(g.fabric->links().size());
  topology::Route route;
  for (int a = 0; a < g.ranks(); ++a)
    for (int b = 0; b < g.ranks(); ++b) {
      if (a == b) continue;
      nccl::P2pRoutes& to =
          node_of[static_cast<std::size_t>(a)] == node_of[static_cast<std::size_t>(b)]
              ? out.inside
              : out.between;
      nccl::find_p2p_route(g, a, b, route);
      nccl::SlowestHop hop{true, route.transport, route.latency};
      for (topology::LinkId l : route.links) {
        ++to.messages[l];
        Bytes eager = g.fabric->links()[l].eager;
        if (eager.count > 0 && (hop.eager.count == 0 || eager < hop.eager)) hop.eager = eager;
      }
      auto same = std::find_if(to.hops.begin(), to.hops.end(), [&](const auto& h) {
        return h.transport == hop.transport && h.eager == hop.eager;
      });
      if (same == to.hops.end())
        to.hops.push_back(hop);
      else
        same->wire = std::max(same->wire, hop.wire);
    }
  return out;
}

// Networks for `hosts` hosts, NICs as the cluster has them.
std::vector<Cluster> networks(Cluster c, int hosts, std::mt19937& random) {
  std::vector<Cluster> out;
  c.hosts = hosts;
  c.trunk = c.global = c.uplink = c.link;
  c.trunk.latency = Duration{700'000};
  c.global.latency = Duration{1'300'000};
  c.global.eager = Bytes{4096};
  auto add = [&](Pattern p, auto change) {
    for (Ecmp e : {Ecmp::Source, Ecmp::Hash}) {
      Cluster one = c;
      one.pattern = p;
      one.ecmp = e;
      change(one);
      out.push_back(one);
    }
  };
  add(Pattern::Star, [](Cluster&) {});
  add(Pattern::Racks, [](Cluster& o) { o.racks = 2; });
  add(Pattern::FatTree, [](Cluster& o) { o.hosts_per_leaf = 3, o.spines = 3; });
  add(Pattern::RailOptimised, [](Cluster& o) { o.hosts_per_group = 3, o.spines = 2; });
  add(Pattern::Ring, [](Cluster&) {});
  if (hosts == 12) add(Pattern::Torus, [](Cluster& o) { o.extents = {3, 4}; });
  if (hosts == 12)
    add(Pattern::Dragonfly,
        [](Cluster& o) { o.groups = 3, o.routers_per_group = 2, o.hosts_per_router = 2; });
  add(Pattern::Nvl72, [](Cluster& o) { o.hosts_per_rack = 4; });
  // A tree of hosts and switches and some cables more, of two kinds.
  LinkSpec other = c.trunk;
  other.eager = Bytes{16384};
  if (c.intra || !c.inside)
    add(Pattern::Graph, [&](Cluster& o) {
      o.nics_per_host = 1;
      for (int v = 0; v < hosts + 4; ++v) {
        o.nodes.push_back({"v" + std::to_string(v), v >= 4});
        if (v > 0)
          o.links.push_back({"v" + std::to_string(random() % static_cast<unsigned>(std::min(v, 4))),
                             "v" + std::to_string(v), v % 3 == 0 ? other : c.link});
      }
      for (int i = 0; i < 6; ++i) {
        unsigned a = random() % 4;
        o.links.push_back({"v" + std::to_string(a),
                           "v" + std::to_string((a + 1 + random() % 3) % 4),
                           i % 2 == 0 ? other : c.trunk});
      }
    });
  return out;
}

// Failed NICs, trunks and links inside hosts, hosts with some of their GPUs, ranks in any order.
TEST(NcclP2pLoads, AreTheSumOfEveryPairsWay) {
  std::mt19937 random(20240607);
  std::map<Pattern, int> seen;
  int faulty = 0;
  for (const char* name :
       {"dgx-h100", "dgx1-v100", "pcie-box-8", "aws-p4d", "gpu-ethernet-10g", "gb200-nvl72"})
    for (int hosts : {5, 12})
      for (Cluster& c : networks(test::cluster(name), hosts, random))
        for (int faults : {0, 0, 1, 4}) {
          c.failed_links.clear();
          topology::Fabric whole(c);
          for (int i = 0; i < faults; ++i)
            c.failed_links.push_back(
                whole.link_name(static_cast<topology::LinkId>(random() % whole.links().size())));
          topology::Fabric fabric(c);
          nccl::Group g;
          g.fabric = &fabric;
          bool some = random() % 2 == 0;
          for (DeviceId d : each<DeviceId>(fabric.devices()))
            if (!some || random() % 3 > 0) g.devices.push_back(d);
          if (random() % 2 == 0) std::shuffle(g.devices.begin(), g.devices.end(), random);
          bool reachable = std::all_of(g.devices.begin(), g.devices.end(), [&](DeviceId a) {
            return std::all_of(g.devices.begin(), g.devices.end(),
                               [&](DeviceId b) { return a == b || fabric.reachable(a, b); });
          });
          if (g.devices.size() < 2 || !reachable) continue;
          ++seen[c.pattern];
          faulty += faults > static_cast<int>(fabric.ignored_faults().size()) ? 1 : 0;
          g.nodes = collective::ranks_by_host(fabric, g.devices, c.pattern == Pattern::Nvl72);
          nccl::P2pPairs one = pair_by_pair(g);
          nccl::P2pPairs all = nccl::routes_of_all_pairs(g);
          std::string what = std::string(name) + " " + name_of(c.pattern) +
                             (c.ecmp == Ecmp::Hash ? " hash " : " ") + std::to_string(hosts) +
                             ", " + std::to_string(faults) + " faults";
          EXPECT_EQ(all.inside.messages, one.inside.messages) << what;
          EXPECT_EQ(all.between.messages, one.between.messages) << what;
          EXPECT_EQ(sorted(all.inside.hops), sorted(one.inside.hops)) << what;
          EXPECT_EQ(sorted(all.between.hops), sorted(one.between.hops)) << what;
        }
  for (Pattern p :
       {Pattern::Star, Pattern::Racks, Pattern::FatTree, Pattern::RailOptimised, Pattern::Ring,
        Pattern::Torus, Pattern::Dragonfly, Pattern::Nvl72, Pattern::Graph})
    EXPECT_GE(seen[p], 8) << name_of(p);
  EXPECT_GE(faulty, 100);
}

// As long as protocol, parts and chunks stay what they are.
TEST(NcclP2pPrice, NeverFallsWithBytes) {
  auto same = [](const nccl::P2pMessage& a, const nccl::P2pMessage& b) {
    return a.protocol == b.protocol && a.parts == b.parts && a.chunk == b.chunk;
  };
  for (const Place& place : kPlaces)
    for (Operation op : kOperations2) {
      World w(place.cluster, place.hosts, place.per_host);
      nccl::P2pOperation o = nccl::make_p2p(w.group, op);
      std::optional<P2pTime> last;
      int compared = 0;
      for (std::int64_t bytes = 64; bytes <= (std::int64_t{8} << 30);
           bytes += std::max<std::int64_t>(1, bytes / 7)) {
        P2pTime now = w.price(o, bytes);
        EXPECT_GT(now.price.total.ps, 0);
        EXPECT_FALSE(now.price.limited_by.empty());
        if (last && same(last->inside, now.inside) && same(last->between, now.between)) {
          ++compared;
          EXPECT_GE(now.price.total, last->price.total) << name(place, op) << " " << bytes;
        }
        last = now;
      }
      EXPECT_GT(compared, 100) << name(place, op);
    }
}

TEST(NcclP2pPrice, DoesNotDependOnWhichHosts) {
  for (Operation op : kOperations2)
    for (std::int64_t bytes :
         {std::int64_t{4} << 10, std::int64_t{1} << 20, std::int64_t{256} << 20}) {
      World one("dgx-h100", 4, 8);
      World other("dgx-h100", 4, 8, {2, 0, 3, 1});
      Duration here = one.price(nccl::make_p2p(one.group, op), bytes).price.total;
      EXPECT_EQ(here, other.price(nccl::make_p2p(other.group, op), bytes).price.total);
    }
}

TEST(NcclP2pPrice, IsBandwidthAtLargeSizes) {
  for (const Place& place : {Place{"hgx-h100", 1, 8}, {"gpu-ethernet-10g", 8, 1}})
    for (Operation op : kOperations2) {
      World w(place.cluster, place.hosts, place.per_host);
      nccl::OperationTime p = w.price(nccl::make_p2p(w.group, op), std::int64_t{8} << 30).price;
      const LinkSpec& link =
          w.cluster.intra && place.hosts == 1 ? *w.cluster.intra : w.cluster.link;
      double rate = link.bandwidth.bytes_per_ps() * 1e12 *
                    w.profile.transports.at(link.transport).efficiency.mid;
      EXPECT_NEAR(p.bus_bytes_per_s / rate, 1, 0.01) << name(place, op);
    }
}

// One rank's schedule, written down again: rounds of peers in groups of eight, base thread block by
// the round's bits reversed, parts on those that follow.
struct Oracle {
  const World& w;
  const nccl::P2pOperation& o;
  P2pTime priced;
  engine::TaskGraph graph;
  std::vector<engine::ResourceId> links;
  std::vector<engine::ResourceId> flags;               // of each rank: what it sends by LL
  std::vector<engine::ResourceId> sending, receiving;  // of each rank: by sockets; empty = none

  Oracle(const World& world, const nccl::P2pOperation& op, std::int64_t bytes)
      : w(world), o(op), priced(w.price(op, bytes)) {
    for (const topology::Link& l : w.fabric->links()) {
      const TransportSection& t = w.profile.transports.at(w.fabric->transports()[l.transport]);
      links.push_back(graph.add_resource({l.bandwidth.bytes_per_ps() * t.efficiency.mid}));
    }
    for (int r = 0; r < w.group.ranks(); ++r)
      flags.push_back(graph.add_resource({bytes_per_ps(bytes_per_us(
          nccl::ll_bus_limit(w.group.system, w.group.system.nodes, w.group.settings.version)))}));
    double sockets = bytes_per_ps(p2p_socket_rate(o, w.profile, Level::Mid, priced.between));
    for (int r = 0; r < w.group.ranks() && sockets > 0; ++r) {
      sending.push_back(graph.add_resource({sockets}));
      receiving.push_back(graph.add_resource({sockets}));
    }
  }
  struct Message {
    int from, to, round, block, part;
    bool inside;
  };
  std::vector<Message> messages() const {
    int n = w.group.ranks();
    int node = static_cast<int>(w.group.nodes.front().size());
    std::vector<Message> out;
    if (o.operation == Operation::SendRecv) {
      for (int r = 0; r < n; ++r) {
        bool inside = r / node == (r + 1) % n / node;
        for (int part = 0; part < (inside ? priced.inside : priced.between).parts; ++part)
          out.push_back({r, (r + 1) % n, 0, part, part, inside});
      }
      return out;
    }
    int group_size = node == n ? n : std::gcd(8, node);
    int groups = n / group_size;
    int power = 1;
    while (power < groups) power *= 2;
    int bits = 0;
    while (1 << bits < o.p2p.blocks) ++bits;
    std::vector<int> deltas;
    for (int turn = 0; turn < power; ++turn)
      if (int d = turn * (turn + 1) / 2 % power; d < groups) deltas.push_back(d);
    for (int r = 0; r < n; ++r)
      for (std::size_t g = 0; g < deltas.size(); ++g)
        for (int local = 0; local < group_size; ++local) {
          int to = (r / group_size + deltas[g]) % groups * group_size +
                   (r % group_size + local) % group_size;
          if (to == r) continue;
          int round = static_cast<int>(g) * group_size + local;
          int number = node == n ? round : static_cast<int>(g);
          int base = 0;
          for (int b = 0; b < bits; ++b) base |= (number >> b & 1) << (bits - 1 - b);
          bool inside = r / node == to / node;
          int parts = inside ? priced.inside.parts : priced.between.parts;
          for (int part = 0; part < parts; ++part)
            out.push_back({r, to, round, (base + part) % o.p2p.blocks, part, inside});
        }
    return out;
  }

  Duration run() {
    std::vector<Message> all = messages();
    // Rank, thread block -> rounds / 8 -> messages.
    std::map<std::pair<int, int>, std::map<int, std::vector<const Message*>>> batches;
    for (const Message& m : all) batches[{m.from, m.block}][m.round / 8].push_back(&m);
    double block = bytes_per_ps(bytes_per_us(nccl::block_rate(w.group)));
    // Batch k of all ranks begins when batch k - 1 of that block has ended everywhere.
    std::map<int, std::vector<engine::TaskId>> gates;
    for (auto& [place, turns] : batches) {
      auto& gate = gates[place.second];
      std::size_t k = 0;
      for (auto& [turn, messages] : turns) {
        while (gate.size() <= k + 1) gate.push_back(graph.add_fixed({0}));
        double share = block / static_cast<double>(messages.size());
        for (const Message* m : messages) add(*m, share, gate[k], gate[k + 1]);
        ++k;
      }
    }
    engine::Timeline t = engine::execute(graph);
    EXPECT_TRUE(t.complete());
    return priced.price.base + (t.makespan - TimePoint{0});
  }

  void add(const Message& m, double share, engine::TaskId begin, engine::TaskId end) {
    const nccl::P2pMessage& kind = m.inside ? priced.inside : priced.between;
    bool ll = kind.protocol == nccl::Protocol::Ll;
    topology::Route route;
    nccl::find_p2p_route(w.group, m.from, m.to, route);
    std::vector<engine::Demand> demands;
    for (topology::LinkId l : route.links) demands.push_back({links[l], ll ? 2.0 : 1.0});
    if (ll) demands.push_back({flags[static_cast<std::size_t>(m.from)], 1.0});
    if (!m.inside && !sending.empty()) {
      demands.push_back({sending[static_cast<std::size_t>(m.from)], 1.0});
      demands.push_back({receiving[static_cast<std::size_t>(m.to)], 1.0});
    }
    engine::FlowId wire = graph.add_flow(demands, 1, m.inside ? share : 0);
    engine::FlowId copy = graph.add_flow({}, 1, share);
    nccl::SlowestHop hop{true, route.transport, route.latency};
    Duration latency{static_cast<std::int64_t>(
        picoseconds(nccl::step_time(w.group, w.profile, hop, nccl::Algorithm::Ring, kind.protocol,
                                    std::min(kind.chunk, kind.part))))};
    std::int64_t bytes = nccl::p2p_message_bytes(o, size);
    std::int64_t first = std::min(bytes, m.part * kind.part);
    std::int64_t left = std::min(bytes, first + kind.part) - first;
    std::array<engine::TaskId, 3> last{begin, begin, begin};
    for (bool fresh = true; left > 0; fresh = false) {
      auto now = static_cast<double>(std::min(left, kind.chunk));
      left -= kind.chunk;
      engine::TaskId before = begin;
      for (std::size_t stage = m.inside ? 1 : 0; stage < (ll ? 2u : 3u); ++stage) {
        engine::TaskId task = graph.add_task(stage == 1 && fresh ? latency : Duration{}, now,
                                             stage == 1 ? wire : copy);
        if (before != last[stage]) graph.add_edge(before, task);
        graph.add_edge(last[stage], task);
        last[stage] = before = task;
      }
      if (left <= 0) graph.add_edge(before, end);
    }
  }
  Bytes size;
};

TEST(NcclP2pPrice, IsTheSameMessageByMessage) {
  constexpr Place places[] = {
      {"hgx-h100", 1, 2},          {"hgx-h100", 1, 4},          {"hgx-h100", 1, 8},
      {"gpu-ethernet-10g", 2, 1},  {"gpu-ethernet-10g", 5, 1},  {"gpu-ethernet-100g", 8, 1},
      {"gpu-ethernet-25g", 16, 1}, {"dgx-a100", 2, 8},          {"dgx-a100", 4, 8},
      {"hgx-h100", 8, 8},          {"gpu-ethernet-10g", 64, 1}, {"dgx-a100", 16, 4}};
  for (const Place& place : places)
    for (Operation op : kOperations2) {
      World w(place.cluster, place.hosts, place.per_host);
      nccl::P2pOperation o = nccl::make_p2p(w.group, op);
      for (std::int64_t bytes : {std::int64_t{8} << 10, std::int64_t{1} << 20,
                                 std::int64_t{16} << 20, std::int64_t{96} << 20}) {
        if (w.group.ranks() >= 64 && bytes > std::int64_t{16} << 20) continue;
        Oracle oracle(w, o, bytes);
        oracle.size = {bytes};
        // The messages here wait for no buffer.
        if (oracle.priced.price.limited_by == "buffers") continue;
        auto priced = static_cast<double>(oracle.priced.price.total.ps);
        // Of the last place one thread block's first batch is of its own host, so that its second
        // fills the pause between the others'.
        double bound = place.per_host == 4 && place.hosts == 16 ? 0.015 : 0.01;
        double simulated = static_cast<double>(oracle.run().ps);
        EXPECT_NEAR(simulated / priced, 1, bound)
            << name(place, op) << " " << bytes << ", limited by " << oracle.priced.price.limited_by;
      }
    }
}

}  // namespace
}  // namespace ddpsim
