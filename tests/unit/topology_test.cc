// Routes and capacities of every pattern, by the names of the links.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/topology/fabric.h"

namespace ddpsim::topology {
namespace {

using Names = std::vector<std::string>;
constexpr Bandwidth kGb100{100'000'000'000};

Cluster base(Pattern p, int hosts) {
  Cluster c;
  c.name = "c";
  c.pattern = p;
  c.hosts = hosts;
  c.profile = "p";
  c.link = {kGb100, kMicrosecond, {}, {}, "ib"};
  return c;
}
Cluster with_gpus(Cluster c, int devices, int nics) {
  c.devices_per_host = devices;
  c.nics_per_host = nics;
  c.intra = LinkSpec{{400'000'000'000}, kNanosecond * 100, {}, {}, "nvlink"};
  return c;
}
Route route(const Fabric& f, DeviceId from, DeviceId to) {
  Route r;
  f.find_route(from, to, r);
  return r;
}
Names names(const Fabric& f, DeviceId from, DeviceId to) {
  Names out;
  for (LinkId l : route(f, from, to).links) out.push_back(f.link_name(l));
  return out;
}
std::int64_t gigabits(const Fabric& f, const std::string& name) {
  for (LinkId l = 0; l < f.links().size(); ++l)
    if (f.link_name(l) == name) return f.links()[l].bandwidth.bits_per_s / 1'000'000'000;
  ADD_FAILURE() << "no link " << name;
  return 0;
}

TEST(Star, CrossesTheSendersAndTheReceiversLink) {
  Fabric f(base(Pattern::Star, 3));
  EXPECT_EQ(names(f, 0, 2), (Names{"host0 up", "host2 down"}));
  EXPECT_EQ(names(f, 2, 0), (Names{"host2 up", "host0 down"}));
  EXPECT_EQ(route(f, 0, 2).latency, kMicrosecond * 2);
  EXPECT_EQ(f.links().size(), 6u);
}

TEST(Star, GivesEveryLinkItsOwnName) {
  Fabric f(with_gpus(base(Pattern::Star, 2), 4, 2));
  Names all;
  for (LinkId l = 0; l < f.links().size(); ++l) all.push_back(f.link_name(l));
  ASSERT_EQ(all.size(), 2u * (8 + 4));
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]);
}

TEST(Hosts, KeepTrafficBetweenTheirDevicesInside) {
  Fabric f(with_gpus(base(Pattern::Star, 2), 4, 2));
  EXPECT_EQ(names(f, 1, 3), (Names{"host0.dev1 nvlink up", "host0.dev3 nvlink down"}));
  EXPECT_EQ(names(f, 7, 4), (Names{"host1.dev3 nvlink up", "host1.dev0 nvlink down"}));
  Route r = route(f, 1, 3);
  EXPECT_EQ(f.transports()[r.transport], "nvlink");
  EXPECT_EQ(r.latency.ps, 200'000);
}

TEST(Hosts, SendThroughTheNicNextToTheDevice) {
  Fabric f(with_gpus(base(Pattern::Star, 2), 4, 2));
  EXPECT_EQ(f.nic_of(0), 0);
  EXPECT_EQ(f.nic_of(1), 0);
  EXPECT_EQ(f.nic_of(2), 1);
  EXPECT_EQ(f.nic_of(7), 1);
  EXPECT_EQ(names(f, 1, 7), (Names{"host0.nic0 up", "host1.nic1 down"}));
  EXPECT_EQ(f.transports()[route(f, 1, 7).transport], "ib");
}

TEST(Hosts, ShareOneNicWhenTheyHaveOne) {
  Fabric f(with_gpus(base(Pattern::Star, 2), 4, 1));
  EXPECT_EQ(names(f, 3, 4), (Names{"host0 up", "host1 down"}));
}

TEST(Racks, CrossTheCoreOnlyBetweenRacks) {
  Cluster c = base(Pattern::Racks, 5);
  c.racks = 2;
  c.uplink = {{40'000'000'000}, kMicrosecond * 3, {}, {}, "ib"};
  Fabric f(c);
  EXPECT_EQ(names(f, 0, 2), (Names{"host0 up", "host2 down"}));
  EXPECT_EQ(names(f, 0, 3),
            (Names{"host0 up", "rack0 uplink up", "rack1 uplink down", "host3 down"}));
  EXPECT_EQ(route(f, 0, 3).latency, kMicrosecond * 8);
  EXPECT_EQ(gigabits(f, "rack1 uplink down"), 40);
}

Cluster fat_tree(double oversubscription, int nics = 1) {
  Cluster c = base(Pattern::FatTree, 8);
  c.hosts_per_leaf = 4;
  c.spines = 2;
  c.nics_per_host = nics;
  c.oversubscription = oversubscription;
  return c;
}

TEST(FatTree, StaysBelowALeaf) {
  EXPECT_EQ(names(Fabric(fat_tree(1)), 4, 7), (Names{"host4 up", "host7 down"}));
}

TEST(FatTree, TakesTheSpineOfTheSendersNic) {
  Fabric f(fat_tree(1));
  EXPECT_EQ(names(f, 0, 6),
            (Names{"host0 up", "leaf0-spine0 up", "leaf1-spine0 down", "host6 down"}));
  EXPECT_EQ(names(f, 1, 6),
            (Names{"host1 up", "leaf0-spine1 up", "leaf1-spine1 down", "host6 down"}));
  EXPECT_EQ(names(f, 6, 1),
            (Names{"host6 up", "leaf1-spine0 up", "leaf0-spine0 down", "host1 down"}));
  EXPECT_EQ(route(f, 0, 6).latency, kMicrosecond * 4);
}

TEST(FatTree, SplitsTheLeafsCapacityOverItsSpines) {
  EXPECT_EQ(gigabits(Fabric(fat_tree(1)), "leaf0-spine0 up"), 200);
  EXPECT_EQ(gigabits(Fabric(fat_tree(2)), "leaf1-spine1 down"), 100);
  EXPECT_EQ(gigabits(Fabric(fat_tree(2, 2)), "leaf0-spine1 up"), 200);
}

TEST(FatTree, CountsAHalfFilledLeaf) {
  Cluster c = fat_tree(1);
  c.hosts = 9;
  Fabric f(c);
  EXPECT_EQ(f.links().size(), 2u * (9 + 3 * 2));
  EXPECT_EQ(names(f, 8, 0),
            (Names{"host8 up", "leaf2-spine0 up", "leaf0-spine0 down", "host0 down"}));
}

TEST(SlowLinks, SlowBothDirectionsOfOneHost) {
  Cluster c = base(Pattern::Star, 3);
  c.slow_links = {{1, {10'000'000'000}}};
  Fabric f(c);
  EXPECT_EQ(gigabits(f, "host0 up"), 100);
  EXPECT_EQ(gigabits(f, "host1 up"), 10);
  EXPECT_EQ(gigabits(f, "host1 down"), 10);
  EXPECT_EQ(gigabits(f, "host2 down"), 100);
}

TEST(SlowLinks, SlowEveryNicOfTheHost) {
  Cluster c = with_gpus(base(Pattern::Star, 2), 2, 2);
  c.slow_links = {{0, {10'000'000'000}}};
  Fabric f(c);
  EXPECT_EQ(gigabits(f, "host0.nic1 up"), 10);
  EXPECT_EQ(gigabits(f, "host1.nic1 up"), 100);
}

TEST(TokenBuckets, BelongToTheHostsLinksAndNotToTheTrunks) {
  Cluster c = fat_tree(1);
  c.link.burst = {64 * kKiB};
  c.link.peak = {400'000'000'000};
  Fabric f(c);
  auto links = route(f, 0, 6).links;
  EXPECT_EQ(f.links()[links[0]].burst.count, 64 * kKiB);
  EXPECT_EQ(f.links()[links[3]].peak.bits_per_s, 400'000'000'000);
  EXPECT_EQ(f.links()[links[1]].burst.count, 0);
  EXPECT_EQ(f.links()[links[1]].peak.bits_per_s, 0);
}

// ---- graphs

Cluster graph(const Names& hosts, const Names& switches,
              const std::vector<std::pair<std::string, std::string>>& links) {
  Cluster c = base(Pattern::Graph, static_cast<int>(hosts.size()));
  for (const auto& n : hosts) c.nodes.push_back({n, true});
  for (const auto& n : switches) c.nodes.push_back({n, false});
  for (const auto& [from, to] : links) c.links.push_back({from, to, c.link});
  return c;
}

TEST(Graph, TakesThePathWithTheFewestLinks) {
  Fabric f(graph({"a", "b"}, {"s", "t", "u"},
                 {{"a", "s"}, {"s", "t"}, {"t", "b"}, {"a", "u"}, {"u", "b"}}));
  EXPECT_EQ(names(f, 0, 1), (Names{"a->u", "u->b"}));
  EXPECT_EQ(names(f, 1, 0), (Names{"b->u", "u->a"}));
  EXPECT_EQ(route(f, 0, 1).latency, kMicrosecond * 2);
}

TEST(Graph, BreaksTiesByTheOrderOfItsLinks) {
  EXPECT_EQ(
      names(Fabric(graph({"a", "b"}, {"s", "t"}, {{"a", "t"}, {"a", "s"}, {"s", "b"}, {"t", "b"}})),
            0, 1),
      (Names{"a->t", "t->b"}));
  EXPECT_EQ(
      names(Fabric(graph({"a", "b"}, {"s", "t"}, {{"a", "s"}, {"a", "t"}, {"s", "b"}, {"t", "b"}})),
            0, 1),
      (Names{"a->s", "s->b"}));
  EXPECT_EQ(names(Fabric(graph({"a", "b"}, {}, {{"a", "b"}, {"a", "b"}})), 0, 1).size(), 1u);
}

TEST(Graph, KeepsTheDirectionsOfALinkApart) {
  Fabric f(graph({"a", "b"}, {"s"}, {{"s", "a"}, {"b", "s"}}));
  EXPECT_EQ(names(f, 0, 1), (Names{"a->s", "s->b"}));
  EXPECT_EQ(route(f, 0, 1).links, (std::vector<LinkId>{1, 3}));
  EXPECT_EQ(route(f, 1, 0).links, (std::vector<LinkId>{2, 0}));
}

TEST(Graph, KnowsWhoCannotBeReached) {
  Fabric f(graph({"a", "b", "c"}, {"s", "t"}, {{"a", "s"}, {"b", "s"}, {"c", "t"}}));
  EXPECT_TRUE(f.reachable(0, 1));
  EXPECT_FALSE(f.reachable(0, 2));
  EXPECT_FALSE(f.reachable(2, 1));
  EXPECT_FALSE(check_reachable(f, {0, 1}));
  Problem p = check_reachable(f, {0, 1, 2});
  EXPECT_EQ(p.path, "/links");
  EXPECT_EQ(
      p.message,
      "no path from host 1 to host 2; every host that has a rank needs a route to the others");
}

TEST(Graph, ReachesDevicesOfOneHostWithoutItsLinks) {
  Cluster c = graph({"a", "b"}, {}, {});
  c.devices_per_host = 2;
  c.intra = LinkSpec{{400'000'000'000}, {}, {}, {}, "nvlink"};
  Fabric f(c);
  EXPECT_TRUE(f.reachable(0, 1));
  EXPECT_FALSE(f.reachable(1, 2));
  EXPECT_EQ(names(f, 0, 1), (Names{"host0.dev0 nvlink up", "host0.dev1 nvlink down"}));
}

}  // namespace
}  // namespace ddpsim::topology
