// The inside of a host: wiring of each pattern, ways and path types, NICs, racks of NVLink.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "sim/topology/survey.h"
#include "tests/support/support.h"

namespace ddpsim::topology {
namespace {

using Names = std::vector<std::string>;
using T = PathType;

constexpr Bandwidth gigabytes(std::int64_t n) {
  return {n * 8'000'000'000};
}
LinkSpec spec(std::int64_t gigabytes_per_s, const char* transport) {
  return {gigabytes(gigabytes_per_s), kNanosecond * 100, {}, {}, transport};
}

Cluster host(Inside inside, int devices, int nics, int hosts = 2) {
  Cluster c;
  c.name = "c";
  c.profile = "p";
  c.hosts = hosts;
  c.devices_per_host = devices;
  c.nics_per_host = nics;
  c.link = {{100'000'000'000}, kMicrosecond, {}, {}, "ib"};
  c.inside = std::move(inside);
  EXPECT_FALSE(validate(c)) << validate(c).message;
  return c;
}
Inside nvlink(InsidePattern p, std::int64_t rate = 25) {
  Inside in;
  in.pattern = p;
  in.link = spec(rate, "nvlink");
  return in;
}
Inside with_pcie(Inside in, int sockets, int switches) {
  in.pcie = spec(16, "pcie");
  in.cpu_link = spec(10, "upi");
  in.sockets = sockets;
  in.switches_per_socket = switches;
  return in;
}
Inside pcie_tree(int sockets, int switches) {
  Inside in;
  in.pattern = InsidePattern::PcieTree;
  return with_pcie(in, sockets, switches);
}
Names names(const Fabric& f, DeviceId from, DeviceId to) {
  Route r;
  f.find_route(from, to, r);
  Names out;
  for (LinkId l : r.links) out.push_back(f.link_name(l));
  return out;
}
std::string transport(const Fabric& f, DeviceId from, DeviceId to) {
  Route r;
  f.find_route(from, to, r);
  return f.transports()[r.transport];
}

TEST(Inside, HybridCubeMeshHasSixNvlinksAGpu) {
  Fabric f(host(nvlink(InsidePattern::HybridCubeMesh), 8, 4));
  std::vector<std::int64_t> links(8, 0);
  for (const auto& l : f.host_graph().links) {
    auto n = l.link.bandwidth.bits_per_s / gigabytes(25).bits_per_s;
    links[static_cast<std::size_t>(l.from)] += n;
    links[static_cast<std::size_t>(l.to)] += n;
  }
  EXPECT_EQ(links, std::vector<std::int64_t>(8, 6));
  EXPECT_EQ(f.host_graph().links.size(), 16u);
  for (int x = 0; x < 8; ++x)
    for (int y = 0; y < 8; ++y) {
      EXPECT_EQ(kHybridCubeMesh[x][y], kHybridCubeMesh[y][x]);
      if (x == y) continue;
      const DeviceId a = DeviceId::at(x);
      const DeviceId b = DeviceId::at(y);
      EXPECT_EQ(f.path_type(a, b), kHybridCubeMesh[x][y] > 0 ? T::Nvl : T::Nvb) << x << " " << y;
      EXPECT_EQ(names(f, a, b).size(), kHybridCubeMesh[x][y] > 0 ? 1u : 2u);
    }
  EXPECT_EQ(bisection_inside(f, 0),
            gigabytes(25 * 6).bits_per_s);  // 2 + 2 + 1 + 1 links between the quads
}

TEST(Inside, GoesByTheWiderGpuWhereTwoAreAsNear) {
  Fabric f(host(nvlink(InsidePattern::HybridCubeMesh), 8, 4));
  EXPECT_EQ(names(f, 0, 7),
            (Names{"host0.gpu0->gpu4 nvlink",
                   "host0.gpu4->gpu7 nvlink"}));  // two links each; by GPU 3: 2 and 1
}

TEST(Inside, NvswitchIsTwoLinksAway) {
  Fabric f(host(nvlink(InsidePattern::Nvswitch, 450), 8, 8));
  EXPECT_EQ(names(f, 9, 12), (Names{"host1.gpu1->nvswitch nvlink", "host1.nvswitch->gpu4 nvlink"}));
  EXPECT_EQ(f.path_type(9, 12), T::Nvl);
  EXPECT_EQ(f.path_type(9, 9), T::Loc);
  EXPECT_EQ(f.path_type(1, 9), T::Net);
  EXPECT_EQ(transport(f, 1, 2), "nvlink");
  EXPECT_EQ(names(f, 1, 9),
            (Names{"host0.nic1 up",
                   "host1.nic1 down"}));  // no PCIe keys: the way to the NIC costs nothing
}

TEST(Inside, MeansTheSameAsIntraWithoutPcie) {
  Cluster with_inside = host(nvlink(InsidePattern::Nvswitch, 450), 8, 4);
  Cluster with_intra = with_inside;
  with_intra.inside.reset();
  with_intra.intra = with_inside.inside->link;
  Fabric a(with_inside);
  Fabric b(with_intra);
  Route x;
  Route y;
  for (DeviceId from : each<DeviceId>(16))
    for (DeviceId to : each<DeviceId>(16)) {
      if (from == to) continue;
      a.find_route(from, to, x);
      b.find_route(from, to, y);
      EXPECT_EQ(x.links, y.links);
      EXPECT_EQ(x.latency, y.latency);
      EXPECT_EQ(a.path_type(from, to), b.path_type(from, to));
      EXPECT_EQ(a.nvlink_domain(from, to), b.nvlink_domain(from, to));
    }
}

TEST(Inside, AllToAllIsOneLinkAway) {
  Fabric f(host(nvlink(InsidePattern::AllToAll, 150), 4, 4));
  EXPECT_EQ(f.host_graph().links.size(), 6u);
  for (DeviceId a : each<DeviceId>(4))
    for (DeviceId b : each<DeviceId>(4))
      if (a != b) {
        EXPECT_EQ(names(f, a, b).size(), 1u);
      }
}

TEST(Inside, PcieTreeClimbsAsFarAsItMust) {
  Fabric f(host(pcie_tree(2, 2), 8, 2));
  EXPECT_EQ(f.path_type(0, 1), T::Pix);
  EXPECT_EQ(f.path_type(0, 2), T::Phb);
  EXPECT_EQ(f.path_type(0, 4), T::Sys);
  EXPECT_EQ(names(f, 0, 1), (Names{"host0.gpu0->pcie0 pcie", "host0.pcie0->gpu1 pcie"}));
  EXPECT_EQ(names(f, 0, 4),
            (Names{"host0.gpu0->pcie0 pcie", "host0.pcie0->cpu0 pcie", "host0.cpu0->cpu1 upi",
                   "host0.cpu1->pcie2 pcie", "host0.pcie2->gpu4 pcie"}));
  EXPECT_EQ(transport(f, 0, 4), "pcie");  // what NCCL pays for any way that is not NVLink
  EXPECT_FALSE(f.nvlink_domain(0, 1));
  Fabric straight(host(pcie_tree(2, 0), 4, 1));
  EXPECT_EQ(straight.path_type(0, 1), T::Phb);
  EXPECT_EQ(names(straight, 0, 1).size(), 2u);
}

TEST(Inside, PairsHaveABridgeAndElseATree) {
  Inside in = with_pcie(nvlink(InsidePattern::Pairs, 50), 1, 2);
  Fabric f(host(in, 4, 1));
  EXPECT_EQ(f.path_type(0, 1), T::Nvl);
  EXPECT_EQ(f.path_type(1, 2), T::Phb);
  EXPECT_TRUE(f.nvlink_domain(2, 3));
  EXPECT_FALSE(f.nvlink_domain(1, 2));
}

TEST(Inside, SeveralPcieSwitchesArePxb) {
  Inside in;
  in.pattern = InsidePattern::Drawn;
  in.vertices = {{"gpu0", VertexKind::Gpu},
                 {"gpu1", VertexKind::Gpu},
                 {"a", VertexKind::PcieSwitch},
                 {"b", VertexKind::PcieSwitch},
                 {"nic0", VertexKind::Nic}};
  in.links = {{"gpu0", "a", spec(16, "pcie")},
              {"a", "b", spec(16, "pcie")},
              {"b", "gpu1", spec(16, "pcie")},
              {"b", "nic0", spec(16, "pcie")}};
  Fabric f(host(in, 2, 1));
  EXPECT_EQ(f.path_type(0, 1), T::Pxb);
  EXPECT_EQ(f.nic_path_type(0, 0), T::Pxb);
  EXPECT_EQ(f.nic_path_type(1, 0), T::Pix);
}

// Two ways of two links: the one whose narrowest link is wider, not the one that begins wider.
TEST(Inside, AWayIsAsWideAsItsNarrowestLink) {
  for (const bool other_order : {false, true}) {
    Inside in;
    in.pattern = InsidePattern::Drawn;
    in.vertices = {{"gpu0", VertexKind::Gpu},
                   {"gpu1", VertexKind::Gpu},
                   {"even", VertexKind::PcieSwitch},
                   {"uneven", VertexKind::PcieSwitch},
                   {"nic0", VertexKind::Nic}};
    in.links = {{"gpu0", "even", spec(16, "pcie")},
                {"even", "gpu1", spec(16, "pcie")},
                {"gpu0", "uneven", spec(32, "pcie")},
                {"uneven", "gpu1", spec(8, "pcie")},
                {"even", "nic0", spec(16, "pcie")}};
    if (other_order) std::rotate(in.links.begin(), in.links.begin() + 2, in.links.begin() + 4);
    Fabric f(host(in, 2, 1));
    for (int from : {0, 1})
      for (const std::string& link : names(f, DeviceId::at(from), DeviceId::at(1 - from)))
        EXPECT_EQ(link.find("uneven"), std::string::npos) << link;
  }
}

TEST(Inside, RoutesAreSymmetric) {
  for (const char* name : {"dgx1-v100", "dgx-h100", "gh200x4-slingshot", "gb200-nvl72", "aws-p4d",
                           "aws-p5", "pcie-box", "pcie-box-8"}) {
    SCOPED_TRACE(name);
    Cluster c = test::cluster(name);
    c.hosts = 2;
    Fabric f(c);
    Route there;
    Route back;
    for (DeviceId a : each<DeviceId>(f.devices()))
      for (DeviceId b : each<DeviceId>(f.devices())) {
        if (a == b) continue;
        ASSERT_TRUE(f.reachable(a, b));
        f.find_route(a, b, there);
        std::vector<LinkId> links;
        f.find_links(a, b, links);
        EXPECT_EQ(there.links, links);
        f.find_route(b, a, back);
        std::reverse(back.links.begin(), back.links.end());
        for (LinkId& l : back.links) l ^= 1u;
        EXPECT_EQ(there.links, back.links);
        EXPECT_EQ(there.latency, back.latency);
        EXPECT_EQ(there.transport, back.transport);
        EXPECT_EQ(f.path_type(a, b), f.path_type(b, a));
      }
  }
}

TEST(Inside, EveryDirectedLinkHasItsOwnName) {
  Cluster c = test::cluster("dgx1-v100");
  c.hosts = 2;
  Fabric f(c);
  std::set<std::string> seen;
  for (LinkId l = 0; l < f.links().size(); ++l)
    EXPECT_TRUE(seen.insert(f.link_name(l)).second) << f.link_name(l);
}

TEST(Inside, RenamingTheVerticesChangesNothingButNames) {
  Inside drawn;
  drawn.pattern = InsidePattern::Drawn;
  HostGraph g = expand(with_pcie(nvlink(InsidePattern::HybridCubeMesh), 2, 2), 8, 4);
  for (const HostVertex& v : g.vertices) drawn.vertices.push_back({"x" + v.name, v.kind});
  for (const auto& l : g.links)
    drawn.links.push_back({"x" + g.vertices[static_cast<std::size_t>(l.from)].name,
                           "x" + g.vertices[static_cast<std::size_t>(l.to)].name, l.link});
  Fabric a(host(with_pcie(nvlink(InsidePattern::HybridCubeMesh), 2, 2), 8, 4));
  Fabric b(host(drawn, 8, 4));
  Route x;
  Route y;
  for (DeviceId from : each<DeviceId>(16))
    for (DeviceId to : each<DeviceId>(16)) {
      if (from == to) continue;
      a.find_route(from, to, x);
      b.find_route(from, to, y);
      EXPECT_EQ(x.links, y.links);
    }
  EXPECT_EQ(b.link_name(0), "host0.xgpu0->xgpu1 nvlink");
}

// ---- NICs

TEST(Nics, AreTheNearestThenTheLeastUsed) {
  Fabric f(host(with_pcie(nvlink(InsidePattern::Nvswitch, 450), 2, 2), 8, 8));
  for (int d = 0; d < 8; ++d) {
    EXPECT_EQ(f.nic_of(DeviceId::at(d)), d);
    EXPECT_EQ(f.nic_path_type(DeviceId::at(d), d), T::Pix);
  }
  Fabric four(host(with_pcie(nvlink(InsidePattern::Nvswitch, 450), 2, 2), 8, 4));
  EXPECT_EQ(four.nic_of(0), 0);
  EXPECT_EQ(four.nic_of(1), 0);
  EXPECT_EQ(four.nic_of(7), 3);
  EXPECT_EQ(names(four, 1, 8 + 2),
            (Names{"host0.gpu1->pcie0 pcie", "host0.pcie0->nic0 pcie", "host0.nic0 up",
                   "host1.nic1 down", "host1.nic1->pcie1 pcie", "host1.pcie1->gpu2 pcie"}));
}

TEST(Nics, OfOthersAreReachedByNvlinkAndTheirGpu) {
  Fabric f(host(with_pcie(nvlink(InsidePattern::Nvswitch, 450), 2, 2), 8, 8));
  EXPECT_EQ(f.nic_path_type(0, 1), T::Pix);
  EXPECT_EQ(f.nic_path_type(0, 7), T::Pxn);
  Route r;
  f.find_route_by_nics(0, 7, 8 + 1, 1, r);
  Names got;
  for (LinkId l : r.links) got.push_back(f.link_name(l));
  EXPECT_EQ(got, (Names{"host0.gpu0->nvswitch nvlink", "host0.nvswitch->gpu6 nvlink",
                        "host0.gpu6->pcie3 pcie", "host0.pcie3->nic7 pcie", "host0.nic7 up",
                        "host1.nic1 down", "host1.nic1->pcie0 pcie", "host1.pcie0->gpu1 pcie"}));
  EXPECT_EQ(f.transports()[r.transport], "ib");
  Fabric tree(host(pcie_tree(2, 2), 8, 2));
  EXPECT_EQ(tree.nic_path_type(0, 0), T::Pix);
  EXPECT_EQ(tree.nic_path_type(2, 0), T::Phb);  // no NVLink, no PXN
  EXPECT_EQ(tree.nic_path_type(0, 1), T::Sys);
}

TEST(Nics, OnTheCpuOfAnotherChipAreP2c) {
  Fabric f(test::cluster("gh200x4-slingshot"));
  for (int d = 0; d < 4; ++d) {
    EXPECT_EQ(f.nic_of(DeviceId::at(d)), d);
    EXPECT_EQ(f.nic_path_type(DeviceId::at(d), d), T::P2c);
    EXPECT_EQ(f.nic_path_type(DeviceId::at(d), (d + 1) % 4), T::Pxn);
  }
}

TEST(Nics, ChosenOnesAreUsedWithoutADrawingToo) {
  Fabric f(host(nvlink(InsidePattern::Nvswitch, 450), 8, 8));
  Route r;
  f.find_route_by_nics(0, 5, 8, 3, r);
  EXPECT_EQ(f.link_name(r.links.front()), "host0.nic5 up");
  EXPECT_EQ(f.link_name(r.links.back()), "host1.nic3 down");
  EXPECT_EQ(f.nic_path_type(0, 0), T::Pix);
  EXPECT_EQ(f.nic_path_type(0, 5), T::Pxn);
}

// ---- racks of NVLink

TEST(Nvl72, CrossesNvlinkBetweenHostsOfARack) {
  Cluster c = test::cluster("gb200-nvl72");
  c.hosts = 36;
  Fabric f(c);
  EXPECT_EQ(names(f, 0, 71),
            (Names{"host0.gpu0->nvswitch nvlink", "host17.nvswitch->gpu3 nvlink"}));
  EXPECT_EQ(f.path_type(0, 71), T::Nvl);
  EXPECT_TRUE(f.nvlink_domain(0, 71));
  EXPECT_FALSE(f.nvlink_domain(0, 72));
  EXPECT_EQ(f.path_type(0, 72), T::Net);
  EXPECT_EQ(names(f, 0, 72).size(), 6u);  // C2C, PCIe, NIC, NIC, PCIe, C2C
  EXPECT_EQ(transport(f, 0, 71), "nvlink");
  EXPECT_EQ(transport(f, 0, 72), "ib");
}

// ---- failures inside

TEST(FailedInside, OneHostGoesAnotherWay) {
  Cluster c = host(with_pcie(nvlink(InsidePattern::HybridCubeMesh), 2, 2), 8, 4);
  c.failed_links = {"host1.gpu0->gpu1 nvlink"};
  Fabric f(c);
  EXPECT_TRUE(f.ignored_faults().empty());
  EXPECT_EQ(f.path_type(0, 1), T::Nvl);
  EXPECT_EQ(f.path_type(8, 9), T::Nvb);
  EXPECT_EQ(names(f, 8, 9).size(), 2u);
}

TEST(FailedInside, AGpuThatIsCutOffIsASentence) {
  Cluster c = host(nvlink(InsidePattern::Nvswitch), 4, 1);
  c.failed_links = {"host1.gpu2->nvswitch nvlink"};
  Fabric f(c);
  EXPECT_FALSE(f.reachable(4, 6));
  EXPECT_EQ(f.path_type(4, 6), T::Dis);
  EXPECT_FALSE(check_reachable(f, {0, 1, 2, 3, 4, 5, 7}));
  Problem p = check_reachable(f, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(p.path, "/inside");
  EXPECT_NE(p.message.find("no way inside host 1 from GPU 1 to GPU 2"), std::string::npos)
      << p.message;
  ASSERT_FALSE(findings(f).empty());
  EXPECT_EQ(findings(f).front().severity, Severity::Error);
}

TEST(FailedInside, AFailedNicIsReplacedByTheNext) {
  Cluster c = host(nvlink(InsidePattern::Nvswitch), 4, 4);
  c.failed_links = {"host0.nic1"};
  Fabric f(c);
  EXPECT_EQ(f.nic_of(1), 2);
  EXPECT_EQ(f.nic_of(5), 1);
  EXPECT_EQ(names(f, 1, 5), (Names{"host0.nic2 up", "host1.nic1 down"}));
  c.failed_links = {"host0.nic0", "host0.nic1", "host0.nic2", "host0.nic3"};
  Fabric none(c);
  EXPECT_FALSE(none.reachable(0, 4));
  EXPECT_TRUE(none.reachable(0, 1));
}

TEST(DegradedLinks, CarryLessInBothDirections) {
  Cluster c = host(nvlink(InsidePattern::Nvswitch, 100), 4, 1);
  c.degraded_links = {{"host0.gpu1->nvswitch nvlink", {}, 0.25}, {"host1", gigabytes(1), 0}};
  Fabric f(c);
  Route r;
  f.find_route(0, 1, r);
  EXPECT_EQ(f.links()[r.links[0]].bandwidth, gigabytes(100));
  EXPECT_EQ(f.links()[r.links[1]].bandwidth, gigabytes(25));
  f.find_route(0, 4, r);
  EXPECT_EQ(f.links()[r.links[1]].bandwidth, gigabytes(1));
}

TEST(DegradedLinks, NarrowTheHalfThatTheyAreIn) {
  Cluster c = test::cluster("hgx-h100");
  const Fabric whole(c);
  ASSERT_FALSE(whole.drawn());
  const std::int64_t bits = bisection_inside(whole, 0);
  for (DeviceId gpu : {DeviceId{0}, DeviceId{7}}) {
    const topology::Link& link = whole.links()[whole.intra_link(gpu)];
    c.degraded_links = {{whole.link_name(whole.intra_link(gpu)), {}, 0.5}};
    const Fabric f(c);
    EXPECT_EQ(bisection_inside(f, 0), bits - link.bandwidth.bits_per_s / 2) << gpu.number;
  }
}

}  // namespace
}  // namespace ddpsim::topology
