// Patterns between hosts: who is joined to whom, which way a message goes, equal paths, failures,
// cuts.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "sim/topology/survey.h"

namespace ddpsim::topology {
namespace {

using Names = std::vector<std::string>;
constexpr std::int64_t kGb = 1'000'000'000;

Cluster base(Pattern p, int hosts, int nics = 1) {
  Cluster c;
  c.name = "c";
  c.pattern = p;
  c.hosts = hosts;
  c.nics_per_host = nics;
  c.devices_per_host = nics;
  c.profile = "p";
  c.link = {{100 * kGb}, kMicrosecond, {}, {}, "ib"};
  c.trunk = {{200 * kGb}, kMicrosecond, {}, {}, "ib"};
  c.global = {{400 * kGb}, kMicrosecond * 2, {}, {}, "ib"};
  if (nics > 1) c.intra = LinkSpec{{1000 * kGb}, {}, {}, {}, "nvlink"};
  return c;
}
Cluster torus(std::vector<int> extents) {
  int hosts = 1;
  for (int e : extents) hosts *= e;
  Cluster c = base(Pattern::Torus, hosts);
  c.extents = std::move(extents);
  return c;
}
Cluster dragonfly(int groups, int routers, int hosts) {
  Cluster c = base(Pattern::Dragonfly, groups * routers * hosts);
  c.groups = groups;
  c.routers_per_group = routers;
  c.hosts_per_router = hosts;
  return c;
}
Cluster fat_tree(int hosts, int per_leaf, int spines) {
  Cluster c = base(Pattern::FatTree, hosts);
  c.hosts_per_leaf = per_leaf;
  c.spines = spines;
  return c;
}
Cluster rails(int hosts, int per_group, int nics, int spines) {
  Cluster c = base(Pattern::RailOptimised, hosts, nics);
  c.hosts_per_group = per_group;
  c.spines = spines;
  return c;
}
Names names(const Fabric& f, DeviceId from, DeviceId to) {
  Route r;
  f.find_route(from, to, r);
  Names out;
  for (LinkId l : r.links) out.push_back(f.link_name(l));
  return out;
}
std::vector<int> degrees(const Fabric& f) {
  std::vector<int> out(static_cast<std::size_t>(f.network().switches()), 0);
  for (const Trunk& t : f.network().trunks())
    ++out[static_cast<std::size_t>(t.from)], ++out[static_cast<std::size_t>(t.to)];
  return out;
}
// Every route leaves one switch where it entered it, begins and ends at its hosts, and crosses no
// link twice.
void check_walks(const Cluster& c) {
  Fabric f(c);
  Route r;
  for (DeviceId a : each<DeviceId>(f.devices()))
    for (DeviceId b : each<DeviceId>(f.devices())) {
      if (f.host_of(a) == f.host_of(b)) continue;
      ASSERT_TRUE(f.reachable(a, b));
      f.find_route(a, b, r);
      std::vector<LinkId> links;
      f.find_links(a, b, links);
      EXPECT_EQ(r.links, links);
      int at = f.network().switch_of(f.host_of(a), f.nic_of(a));
      for (LinkId l : r.links) {
        EXPECT_FALSE(f.failed(l));
        if (l < f.trunk_link(0)) continue;
        const Trunk& t = f.network().trunks()[(l - f.trunk_link(0)) / 2];
        EXPECT_EQ(l % 2 == 0 ? t.from : t.to, at);
        at = l % 2 == 0 ? t.to : t.from;
      }
      EXPECT_EQ(at, f.network().switch_of(f.host_of(b), f.nic_of(b)));
      EXPECT_EQ(std::set<LinkId>(r.links.begin(), r.links.end()).size(), r.links.size());
    }
}

// Found by the fuzzer: GPUs that are neighbours reach one another by their own NICs, and NCCL's
// rings use the others, too; there was a division by zero.
TEST(FailedLinks, ThatPartSomeNicsAreASentence) {
  Cluster c = base(Pattern::RailOptimised, 4, 4);
  c.hosts_per_group = 2;
  c.spines = 1;
  c.failed_links = {"group0.leaf1-spine0"};
  const std::vector<DeviceId> all = first_devices(16);
  Problem p = check_reachable(Fabric(c), all);
  EXPECT_EQ(p.path, "/failed_links");
  EXPECT_NE(p.message.find("NIC"), std::string::npos) << p.message;
  c.spines = 2;
  EXPECT_FALSE(check_reachable(Fabric(c), all));
  c.failed_links = {"host3.nic2"};
  EXPECT_FALSE(check_reachable(Fabric(c), all));
}

// Found by the fuzzer: 400 Gb/s times 2e9 ports is more than a bandwidth can say.
TEST(LeavesAndSpines, AnUplinkOfManyPortsIsTheLargestBandwidth) {
  Cluster c = base(Pattern::FatTree, 4);
  c.hosts_per_leaf = 1 << 20;
  c.spines = 1;
  c.link.bandwidth = {400'000 * kGb};
  Fabric f(c);
  std::int64_t widest = 0;
  for (const Link& l : f.links()) widest = std::max(widest, l.bandwidth.bits_per_s);
  EXPECT_EQ(widest, INT64_MAX);
}

TEST(Wiring, JoinsTheRightNumberOfNeighbours) {
  EXPECT_EQ(degrees(Fabric(base(Pattern::Ring, 6))), std::vector<int>(6, 2));
  EXPECT_EQ(degrees(Fabric(base(Pattern::Ring, 2))), std::vector<int>(2, 1));
  EXPECT_TRUE(Fabric(base(Pattern::Ring, 1)).network().trunks().empty());
  EXPECT_EQ(degrees(Fabric(torus({4, 4}))), std::vector<int>(16, 4));
  EXPECT_EQ(degrees(Fabric(torus({4, 3, 2}))),
            std::vector<int>(24, 5));  // two neighbours, two, one
  std::vector<int> d = degrees(Fabric(dragonfly(5, 2, 1)));
  EXPECT_EQ(d, std::vector<int>(10, 3));  // one router beside it, four groups over two routers
  EXPECT_EQ(Fabric(dragonfly(5, 2, 1)).network().trunks().size(), 5u * 1 + 10);
  Fabric r(rails(8, 4, 2, 2));
  EXPECT_EQ(r.network().switches(), 2 * 2 + 2);
  EXPECT_EQ(r.network().switch_of(3, 1), 1);
  EXPECT_EQ(r.network().switch_of(4, 1), 3);
}

TEST(Wiring, EveryRouteIsAWalk) {
  check_walks(base(Pattern::Ring, 7));
  check_walks(torus({4, 3, 2}));
  check_walks(torus({2, 2, 2}));
  check_walks(torus({1, 5}));
  check_walks(dragonfly(5, 2, 2));
  check_walks(dragonfly(3, 4, 1));
  check_walks(rails(6, 4, 2, 2));
  check_walks(fat_tree(9, 4, 3));
}

TEST(Ring, GoesTheShorterWayAndPlusOnATie) {
  Fabric f(base(Pattern::Ring, 6));
  EXPECT_EQ(names(f, 0, 2),
            (Names{"host0 up", "router0->router1", "router1->router2", "host2 down"}));
  EXPECT_EQ(names(f, 0, 5), (Names{"host0 up", "router0->router5", "host5 down"}));
  EXPECT_EQ(names(f, 4, 1), (Names{"host4 up", "router4->router5", "router5->router0",
                                   "router0->router1", "host1 down"}));
  EXPECT_EQ(diameter(f).links, 2 + 3);
}

TEST(Torus, GoesDimensionAfterDimension) {
  Fabric f(torus({4, 4}));
  EXPECT_EQ(names(f, 0, 4 + 1),
            (Names{"host0 up", "router0->router1", "router1->router5", "host5 down"}));
  EXPECT_EQ(names(f, 5, 0),
            (Names{"host5 up", "router5->router4", "router4->router0", "host0 down"}));
  EXPECT_EQ(names(f, 0, 15),
            (Names{"host0 up", "router0->router3", "router3->router15", "host15 down"}));
  EXPECT_EQ(names(f, 0, 2)[1], "router0->router1");
  EXPECT_EQ(diameter(f).links, 2 + 2 + 2);
  EXPECT_EQ(bisection_between_hosts(f), 8 * 100 * kGb);  // 8 trunks of 200; 8 NICs of 100 are less
}

TEST(Dragonfly, LeavesByTheRouterThatHasTheCable) {
  Fabric f(dragonfly(3, 2, 1));
  // Group 0's cable to group 1 is at router 0, to group 2 at router 1.
  EXPECT_EQ(names(f, 0, 1), (Names{"host0 up", "group0.router0->group0.router1", "host1 down"}));
  EXPECT_EQ(names(f, 0, 2), (Names{"host0 up", "group0.router0->group1.router0", "host2 down"}));
  EXPECT_EQ(names(f, 1, 3),
            (Names{"host1 up", "group0.router1->group0.router0", "group0.router0->group1.router0",
                   "group1.router0->group1.router1", "host3 down"}));
  EXPECT_EQ(diameter(f).links, 5);
}

TEST(Rails, StayOnTheirLeafInsideAGroup) {
  Fabric f(rails(8, 4, 2, 2));
  EXPECT_EQ(names(f, 1, 2 * 3 + 1), (Names{"host0.nic1 up", "host3.nic1 down"}));
  EXPECT_EQ(names(f, 1, 2 * 5 + 1), (Names{"host0.nic1 up", "group0.leaf1-spine0 up",
                                           "group1.leaf1-spine0 down", "host5.nic1 down"}));
  EXPECT_EQ(names(f, 2 + 1, 2 * 5 + 1)[1], "group0.leaf1-spine1 up");
  EXPECT_EQ(names(f, 0, 2 * 3 + 1),
            (Names{"host0.nic0 up", "group0.leaf0-spine0 up", "group0.leaf1-spine0 down",
                   "host3.nic1 down"}));  // another rail
  EXPECT_EQ(f.links()[f.trunk_link(0)].bandwidth.bits_per_s, 200 * kGb);
}

// ---- equal paths

TEST(Ecmp, HashIsTheOneThatIsStated) {
  // Pinned: a change moves every prediction with "ecmp": "hash".
  std::vector<std::uint32_t> by_source;
  std::vector<std::uint32_t> by_destination;
  for (std::uint32_t i = 0; i < 8; ++i)
    by_source.push_back(ecmp_choice(i, 1000, 8)), by_destination.push_back(ecmp_choice(7, i, 5));
  EXPECT_EQ(by_source, (std::vector<std::uint32_t>{5, 6, 5, 5, 2, 3, 4,
                                                   4}));  // computed outside of this program
  EXPECT_EQ(by_destination, (std::vector<std::uint32_t>{1, 3, 0, 1, 1, 0, 0, 3}));
  EXPECT_EQ(ecmp_choice(0, 0, 8), 0u);
  EXPECT_EQ(ecmp_choice(1, 2, 1), 0u);
  std::set<std::uint32_t> seen;
  for (std::uint32_t s = 0; s < 64; ++s) {
    EXPECT_LT(ecmp_choice(s, 1000, 8), 8u);
    EXPECT_EQ(ecmp_choice(s, 1000, 8), ecmp_choice(s, 1000, 8));
    seen.insert(ecmp_choice(s, 1000, 8));
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Ecmp, HashBalancesAllPairs) {
  Cluster c = fat_tree(64, 32, 8);
  c.ecmp = Ecmp::Hash;
  Fabric f(c);
  std::map<std::string, int> flows;
  for (DeviceId a : each<DeviceId>(32))
    for (DeviceId b : Places<DeviceId>{32, 32}) ++flows[names(f, a, b)[1]];
  EXPECT_EQ(flows.size(), 8u);
  for (const auto& [link, n] : flows)
    EXPECT_NEAR(n, 1024 / 8, 40) << link;  // 128 expected, standard deviation 11
  EXPECT_EQ(names(f, 3, 40), names(Fabric(c), 3, 40));
}

TEST(Ecmp, SourceGivesEveryFlowOfANicOneSpine) {
  Fabric f(fat_tree(16, 8, 4));
  for (DeviceId b : Places<DeviceId>{8, 8}) EXPECT_EQ(names(f, 3, b)[1], "leaf0-spine3 up");
}

TEST(Ecmp, HashUsesAllEqualPathsOfAGraph) {
  Cluster c = base(Pattern::Graph, 9);
  for (int h = 0; h < 9; ++h) c.nodes.push_back({"h" + std::to_string(h), true});
  for (const char* s : {"s", "t", "x", "y"}) c.nodes.push_back({s, false});
  c.links.push_back({"h0", "s", c.link});
  for (int h = 1; h < 9; ++h) c.links.push_back({"h" + std::to_string(h), "t", c.link});
  for (const char* m : {"x", "y"})
    c.links.push_back({"s", m, c.link}), c.links.push_back({m, "t", c.link});
  std::set<std::string> by_source;
  std::set<std::string> by_hash;
  for (Ecmp e : {Ecmp::Source, Ecmp::Hash}) {
    c.ecmp = e;
    Fabric f(c);
    for (DeviceId b : Places<DeviceId>{1, 8}) {
      ASSERT_TRUE(f.reachable(0, b));
      EXPECT_EQ(names(f, 0, b).size(), 4u);
      (e == Ecmp::Source ? by_source : by_hash).insert(names(f, 0, b)[1]);
    }
  }
  EXPECT_EQ(by_source, (std::set<std::string>{"s->x"}));
  EXPECT_EQ(by_hash, (std::set<std::string>{"s->x", "s->y"}));
}

// ---- failures

TEST(FailedLinks, AreGoneRound) {
  Cluster ring = base(Pattern::Ring, 6);
  ring.failed_links = {"router0->router1"};
  EXPECT_EQ(names(Fabric(ring), 0, 1).size(), 2u + 5u);
  EXPECT_EQ(names(Fabric(ring), 0, 5).size(), 2u + 1u);
  ring.failed_links = {"router1->router0"};  // the same cable
  EXPECT_EQ(names(Fabric(ring), 0, 1).size(), 2u + 5u);
  check_walks(ring);
  Cluster t = torus({4, 3, 2});
  t.failed_links = {"router0->router1", "router1->router5"};
  check_walks(t);
  Cluster tree = fat_tree(16, 8, 4);
  tree.failed_links = {"leaf0-spine3 up"};
  check_walks(tree);
  Fabric f(tree);
  EXPECT_EQ(names(f, 3, 8)[1], "leaf0-spine0 up");  // of the three left, number 3 mod 3
  EXPECT_EQ(names(f, 2, 8)[1], "leaf0-spine2 up");  // others keep theirs
  Cluster d = dragonfly(5, 2, 2);
  d.failed_links = {"group0.router0->group1.router0"};
  check_walks(d);
}

TEST(FailedLinks, ThatPartTheClusterAreASentence) {
  Cluster c = fat_tree(8, 4, 2);
  c.failed_links = {"leaf1-spine0", "leaf1-spine1"};
  Fabric f(c);
  EXPECT_TRUE(f.reachable(0, 3));
  EXPECT_FALSE(f.reachable(3, 4));
  EXPECT_EQ(f.path_type(3, 4), PathType::Dis);
  Problem p = check_reachable(f, {0, 1, 2, 3, 4});
  EXPECT_EQ(p.path, "/failed_links");
  EXPECT_EQ(p.message,
            "no path from host 3 to host 4: every way crosses a failed link; every host that has a "
            "rank needs a route to the others");
}

TEST(FailedLinks, OfAGraphAreGoneRoundToo) {
  Cluster c = base(Pattern::Graph, 2);
  c.nodes = {{"a", true}, {"b", true}, {"s", false}, {"t", false}};
  c.links = {{"a", "s", c.link}, {"s", "b", c.link}, {"a", "t", c.link}, {"t", "b", c.link}};
  EXPECT_EQ(names(Fabric(c), 0, 1), (Names{"a->s", "s->b"}));
  c.failed_links = {"b->s"};
  EXPECT_EQ(names(Fabric(c), 0, 1), (Names{"a->t", "t->b"}));
}

TEST(FailedLinks, WithUnknownNamesAreReported) {
  Cluster c = fat_tree(8, 4, 2);
  c.failed_links = {"leaf0-spine9"};
  c.degraded_links = {{"leaf0-spine0", {900 * kGb}, 0}};
  Fabric f(c);
  ASSERT_EQ(f.ignored_faults().size(), 2u);
  EXPECT_EQ(f.ignored_faults()[0].path, "/degraded_links/0/bandwidth");
  EXPECT_EQ(f.ignored_faults()[1].path, "/failed_links/0");
  EXPECT_EQ(f.ignored_faults()[1].why, "");
}

// ---- cuts

TEST(Bisection, IsTheSmallestCut) {
  EXPECT_EQ(bisection_between_hosts(Fabric(base(Pattern::Star, 8))), 4 * 100 * kGb);
  EXPECT_EQ(bisection_between_hosts(Fabric(base(Pattern::Star, 1))), 0);
  Cluster racks = base(Pattern::Racks, 8);
  racks.racks = 2;
  racks.uplink = {{150 * kGb}, {}, {}, {}, "ib"};
  EXPECT_EQ(bisection_between_hosts(Fabric(racks)), 150 * kGb);
  EXPECT_NEAR(oversubscription(Fabric(racks)), 400.0 / 150, 1e-12);
  Cluster tree = fat_tree(8, 4, 2);
  tree.oversubscription = 4;
  EXPECT_EQ(bisection_between_hosts(Fabric(tree)), 100 * kGb);
  tree.failed_links = {"leaf0-spine0"};
  EXPECT_EQ(bisection_between_hosts(Fabric(tree)), 50 * kGb);
  Cluster ring = base(Pattern::Ring, 16);
  EXPECT_EQ(bisection_between_hosts(Fabric(ring)), 2 * 200 * kGb);
}

TEST(SinglePoints, AreFoundAndParallelCablesAreNot) {
  auto has = [](const Cluster& c, const std::string& text) {
    for (const std::string& s : single_points_of_failure(Fabric(c)))
      if (s == text) return true;
    return false;
  };
  EXPECT_TRUE(has(base(Pattern::Star, 4), "the switch"));
  EXPECT_TRUE(has(base(Pattern::Star, 4), "the one cable of each of 4 hosts"));
  EXPECT_FALSE(has(base(Pattern::Star, 4, 2), "the one cable of each of 4 hosts"));
  EXPECT_TRUE(has(fat_tree(8, 4, 2), "each of 2 leaf switches"));
  EXPECT_TRUE(single_points_of_failure(Fabric(rails(8, 4, 2, 2))).empty());
  EXPECT_TRUE(has(fat_tree(8, 4, 1), "each of 2 trunks, the only way between their ends"));
}

}  // namespace
}  // namespace ddpsim::topology
