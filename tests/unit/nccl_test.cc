// NCCL's cost model against a tuning table that NCCL printed, its search on shipped clusters, its
// choice under settings, and ddpsim's price of it.
#include "sim/nccl/fabric/nccl.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "calib/fit/link_fit.h"
#include "sim/collective/price.h"
#include "sim/nccl/double_tree.h"
#include "sim/nccl/fabric/terms.h"
#include "sim/nccl/search.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim::nccl {
namespace {

using nccl::Group;
using nccl::make_group;
using topology::Fabric;

struct World {
  Cluster cluster;
  Profile profile;
  std::optional<Fabric> fabric;
  nccl::Group group;
  World(const std::string& name, int hosts, int ranks, Settings settings = {})
      : cluster(test::cluster(name)) {
    cluster.hosts = hosts;
    std::string base =
        cluster.profile.ends_with(".datasheet") ? cluster.profile : cluster.profile + ".datasheet";
    profile = test::profile(base);
    fabric.emplace(cluster);
    group = nccl::make_group(*fabric, first_devices(ranks), settings, profile.compute.capability);
  }
  World(const World&) = delete;
};

// Printed by NCCL 2.29.2 on H100 SXM, one node, 2, 4 and 6 GPUs (facts of
// waynehacking8/nccl-collectives-bench, results/scaling_attributed): latency us, algorithm
// bandwidth GB/s, to one decimal. The graph is what our search finds on the shipped cluster.
struct Printed {
  int ranks;
  Operation op;
  Algorithm algorithm;
  Protocol protocol;
  double latency;
  double bandwidth;
};
constexpr auto AR = Operation::AllReduce;
constexpr auto AG = Operation::AllGather;
constexpr auto BC = Operation::Broadcast;
constexpr auto T = Algorithm::Tree;
constexpr auto R = Algorithm::Ring;
constexpr auto N = Algorithm::Nvls;
constexpr auto LL = Protocol::Ll;
constexpr auto L128 = Protocol::Ll128;
constexpr auto SI = Protocol::Simple;
constexpr Printed kPrinted[] = {
    {2, AR, T, LL, 8.0, 61.1},     {2, AR, T, L128, 16.5, 180.6}, {2, AR, T, SI, 16.4, 232.2},
    {2, AR, R, LL, 7.8, 141.0},    {2, AR, R, L128, 17.8, 331.2}, {2, AR, R, SI, 15.2, 360.0},
    {2, AR, N, SI, 25.0, 102.0},   {4, AR, T, LL, 10.4, 43.6},    {4, AR, T, L128, 21.5, 128.8},
    {4, AR, T, SI, 32.4, 165.6},   {4, AR, R, LL, 10.2, 94.0},    {4, AR, R, L128, 25.4, 220.8},
    {4, AR, R, SI, 28.8, 240.0},   {4, AR, N, SI, 25.0, 160.0},   {6, AR, T, LL, 12.8, 43.6},
    {6, AR, T, L128, 26.5, 128.8}, {6, AR, T, SI, 48.4, 165.6},   {6, AR, R, LL, 12.6, 84.6},
    {6, AR, R, L128, 33.0, 198.7}, {6, AR, R, SI, 42.4, 216.0},   {6, AR, N, SI, 25.0, 216.0},
    {2, AG, R, LL, 7.2, 282.0},    {2, AG, R, L128, 15.9, 662.4}, {2, AG, R, SI, 11.8, 720.0},
    {4, AG, R, LL, 8.4, 188.0},    {4, AG, R, L128, 19.7, 441.6}, {4, AG, R, SI, 18.6, 480.0},
    {6, AG, R, LL, 9.6, 169.2},    {6, AG, R, L128, 23.5, 397.4}, {6, AG, R, SI, 25.4, 432.0},
    {2, AG, N, SI, 25.0, 25.5},    {4, AG, N, SI, 25.0, 114.8},   {6, AG, N, SI, 25.0, 177.1},
    {2, BC, R, LL, 7.2, 141.0},    {2, BC, R, L128, 15.9, 331.2}, {2, BC, R, SI, 11.8, 360.0},
};

TEST(NcclTuning, IsTheTableThatNcclPrints) {
  for (int ranks : {2, 4, 6}) {
    World s("hgx-h100", 1, ranks);
    for (const Printed& p : kPrinted) {
      if (p.ranks != ranks) continue;
      Cell c = cost_table(s.group.system, p.op, {28})[p.algorithm][p.protocol];
      std::string what = std::string(name_of(p.op)) + " " + name_of(p.algorithm) + "/" +
                         name_of(p.protocol) + " on " + std::to_string(ranks);
      EXPECT_NEAR(c.latency.us, p.latency, 0.051) << what;
      EXPECT_NEAR(c.bandwidth.gb_per_s, p.bandwidth, 0.051) << what;
    }
  }
}

bool available(const System& s, Operation op, Algorithm a, Protocol p, int version = 28) {
  return cost_table(s, op, {version})[a][p].bandwidth > GBps{};
}

TEST(NcclSearch, FindsWhatNcclFindsOnKnownNodes) {
  struct Known {
    const char* cluster;
    int hosts, ranks;
    GraphId graph;
    int channels;
    double intra, inter;
    int version = 28;
    int cross_nic = 2;
  };
  constexpr auto Rings = GraphId::Ring;
  constexpr auto Trees = GraphId::Tree;
  constexpr auto Heads = GraphId::Nvls;
  // Sources: facts of the log above; NCCL's speeds of each
  // generation. GH200: a Grace's NIC is near its own GPU only, and NCCL counts 6 GB/s between Arm
  // CPUs, so a ring that comes back to its NIC takes that (2.23, NCCL_CROSS_NIC=0) until NVLink and
  // another GPU's C2C lead there (2.28); a published log of 2.26.2 with NCCL_CROSS_NIC=1 has 8
  // channels, two for each of the search (boeschf/nccl-benchmark-on-alps-2025,
  // results_nccl_debug_all2all). Between two GPUs under one Intel CPU PCIe has a sixth less. NVLS
  // begins at the NIC's speed between nodes; a channel has at most 32 heads since 2.25.
  for (const Known& k : {Known{"hgx-h100", 1, 8, Rings, 12, 30, 30},
                         Known{"hgx-h100", 1, 6, Heads, 6, 50, 60},
                         Known{"dgx-a100", 1, 8, Rings, 12, 20, 20},
                         Known{"dgx-a100", 2, 16, Rings, 8, 24, 24},
                         Known{"dgx-a100", 4, 32, Trees, 8, 30, 24},
                         Known{"dgx1-v100", 1, 8, Rings, 6, 20, 20},
                         Known{"gh200x4-slingshot", 1, 4, Rings, 12, 30, 30},
                         Known{"gh200x4-slingshot", 2, 8, Rings, 4, 24, 24},
                         Known{"gh200x4-slingshot", 2, 8, Trees, 4, 48, 24},
                         Known{"gh200x4-slingshot", 2, 8, Rings, 12, 6, 6, 23, 0},
                         Known{"gh200x4-slingshot", 2, 8, Trees, 12, 12, 6, 23, 0},
                         Known{"gh200x4-slingshot", 2, 8, Rings, 4, 24, 24, 26, 1},
                         Known{"gh200x4-slingshot", 2, 8, Rings, 4, 24, 24, 23, 2},
                         Known{"pcie-box", 1, 4, Rings, 1, 10, 10},
                         Known{"hgx-h100", 2, 16, Heads, 8, 40, 48},
                         Known{"gcp-a3mega", 2, 16, Heads, 8, 24, 24},
                         Known{"aws-p5", 2, 16, Rings, 8, 48, 48, 20},
                         Known{"aws-p5", 2, 16, Rings, 8, 45, 45, 19},
                         Known{"gb200-nvl72", 18, 72, Heads, 32, 20, 40},
                         Known{"dgx1-v100", 2, 16, Rings, 4, 12, 12}}) {
    World s(
        k.cluster, k.hosts, k.ranks,
        parse_settings({{"NCCL_CROSS_NIC", std::to_string(k.cross_nic)}}, {k.version}).settings);
    const ChannelGraph& g = s.group.system.graphs[k.graph];
    std::string what = std::string(k.cluster) + " x " + std::to_string(k.hosts) + ", graph " +
                       name_of(k.graph) + ", 2." + std::to_string(k.version);
    EXPECT_EQ(g.channels, k.channels) << what;
    EXPECT_NEAR(gb_per_s(g.bw_intra).gb_per_s, k.intra, 1e-9) << what;
    EXPECT_NEAR(gb_per_s(g.bw_inter).gb_per_s, k.inter, 1e-9) << what;
  }
}

// A balanced tree needs a second GPU near the NIC. Before SM90 NCCL looks for one farther away,
// from SM90 on it takes a plain tree instead.
TEST(NcclSearch, TreesAreBalancedWhereTwoGpusAreNearTheNic) {
  auto pattern = [](const char* cluster) {
    return World(cluster, 4, 4 * test::cluster(cluster).devices_per_host)
        .group.system.graphs[nccl::GraphId::Tree]
        .pattern;
  };
  EXPECT_EQ(pattern("dgx-h100"),
            nccl::Pattern::BalancedTree);  // two GPUs and two NICs on a PCIe switch
  EXPECT_EQ(pattern("aws-p4d"), nccl::Pattern::BalancedTree);
  EXPECT_EQ(pattern("dgx1-v100"), nccl::Pattern::BalancedTree);
  EXPECT_EQ(pattern("dgx-a100"), nccl::Pattern::BalancedTree);
  EXPECT_EQ(pattern("pcie-box"), nccl::Pattern::BalancedTree);
  EXPECT_EQ(pattern("hgx-h100"), nccl::Pattern::PlainTree);  // a NIC a GPU
  EXPECT_EQ(pattern("aws-p5"), nccl::Pattern::PlainTree);
  EXPECT_EQ(pattern("gh200x4-slingshot"), nccl::Pattern::PlainTree);
  EXPECT_EQ(pattern("gpu-ethernet-25g"), nccl::Pattern::PlainTree);  // a GPU a host
}

// Without NVLink between them two pairs are two domains: from 2.26 on at least two rings. NVLink
// first, where it leads through all.
TEST(NcclSearch, PrefersNvlinkAndTwoRingsForTwoDomains) {
  EXPECT_EQ(World("dgx1-v100", 2, 16).group.system.graphs[nccl::GraphId::Ring].type_intra,
            PathType::Nvl);
  Node node;
  node.gpus = 4;
  node.links.assign(16, GBps{80});
  node.pcie.assign(16, 0);
  node.gpu_path.assign(16, PathType::Sys);
  node.gpu_route.resize(16);
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b) {
      auto at = static_cast<std::size_t>(4 * a + b);
      if (a == b)
        node.gpu_path[at] = PathType::Loc;
      else if (a / 2 == b / 2)
        node.gpu_path[at] = PathType::Nvl, node.gpu_route[at] = {a};
      else
        node.gpu_route[at] = {4 + a / 2};
    }
  node.links[4] = node.links[5] = {10};  // between the CPUs
  auto ring = [&](int version) {
    return search(node, 1, {80, Cpu::Intel, {version}}, {}, false)[GraphId::Ring];
  };
  EXPECT_EQ(ring(25).channels, 1);
  EXPECT_NEAR(ring(25).bw_intra.bytes_per_s, 10e9, 1);
  EXPECT_EQ(ring(26).channels, 2);
  EXPECT_NEAR(ring(26).bw_intra.bytes_per_s, 5e9, 1);
}

// Of several nodes NVLS's heads are the GPUs next to NICs.
TEST(NcclSearch, NvlsHasAHeadForEachNic) {
  for (int nics : {1, 2, 4, 8}) {
    Cluster c = test::cluster("hgx-h100");
    c.hosts = 2;
    c.nics_per_host = nics;
    Fabric f(c);
    nccl::Group g = nccl::make_group(f, first_devices(16), {}, 90);
    EXPECT_EQ(g.system.graphs[nccl::GraphId::Nvls].channels, nics);
    EXPECT_EQ(g.system.heads(), nics == 1 ? 1 : nics);
    for (int k = 0; k < nics; ++k)
      EXPECT_EQ(
          f.nic_of(DeviceId::at(
              g.system.graphs[nccl::GraphId::Nvls].order[static_cast<std::size_t>(k)].front())),
          k);
    EXPECT_EQ(available(g.system, AR, Algorithm::NvlsTree, SI), nics > 1) << nics;
  }
}

// Hosts of which nothing is drawn have their GPUs in pairs, counted from the host's first: three
// GPUs a host are alike on every host.
TEST(NcclSearch, PairsAreOfOneHost) {
  Cluster c = test::cluster("dgx-a100");
  c.hosts = 4;
  c.devices_per_host = c.nics_per_host = 3;
  Fabric f(c);
  auto tree = [&](int from) {
    std::vector<DeviceId> devices = first_devices(6);
    for (DeviceId& d : devices) d.number += from;
    return nccl::make_group(f, devices, {}, 80).system.graphs[nccl::GraphId::Tree];
  };
  EXPECT_EQ(tree(0).order, tree(3).order);
  EXPECT_EQ(tree(0).nics, tree(3).nics);
}

// Only rings exchange their NICs from node to node, whatever an imported graph says of its trees.
TEST(NcclSearch, TreesOfACrossingGraphStayAsTheyAre) {
  World s("dgx-h100", 2, 16);
  Graphs found = s.group.system.graphs;
  found[nccl::GraphId::Tree].crossnic = 2;
  nccl::Group g = nccl::make_group(*s.fabric, first_devices(16), {}, 90, &found);
  for (const auto& c : g.trees)
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(c.order[1][i], c.order[0][i] + 8);
}

// Rings that exchange their NICs: where one leaves a node, the next one's first GPU is beside the
// NIC of the same number.
TEST(NcclSearch, CrossingRingsKeepTheirRails) {
  World s("gh200x4-slingshot", 4, 16, parse_settings({}, {26}).settings);
  ASSERT_EQ(s.group.system.graphs[nccl::GraphId::Ring].crossnic, 2);
  auto nic = [&](int rank) { return s.fabric->nic_of(DeviceId::at(rank)); };
  std::set<int> left;
  ASSERT_EQ(s.group.rings.size(), 4u);
  for (const auto& ring : s.group.rings) {
    EXPECT_EQ(ring.nic, -1);
    for (std::size_t i = 3; i < 16; i += 4) {
      EXPECT_EQ(nic(ring.order[i]), nic(ring.order[(i + 1) % 16]));
      if (i == 3) left.insert(nic(ring.order[i]));
    }
  }
  EXPECT_EQ(left.size(), 4u);
  // Where they need not, they do not.
  EXPECT_EQ(World("gh200x4-slingshot", 4, 16).group.system.graphs[nccl::GraphId::Ring].crossnic, 0);
  EXPECT_EQ(World("hgx-h100", 4, 32).group.system.graphs[nccl::GraphId::Ring].crossnic, 0);
}

// NVIDIA's own words (nccl-tests issue 212): on 8 H100 an all-reduce goes through the switch by
// default, about 480 GB/s of bus bandwidth where a ring has 370.
TEST(NcclSearch, EightHopperGpusUseTheSwitch) {
  World s("hgx-h100", 1, 8);
  EXPECT_EQ(s.group.system.graphs[nccl::GraphId::Nvls].bw_intra, BytesPerSecond{40e9});
  EXPECT_EQ(s.group.system.graphs[nccl::GraphId::Nvls].bw_inter, BytesPerSecond{60e9});
  auto c = choose(s.group.system, s.group.settings, AR, std::int64_t{8} << 30);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->algorithm, N);
}

TEST(NcclSearch, KeepsASpeedUnlessTheNextIsMoreThanHalf) {
  World s("gpu-ethernet-25g", 4, 4);
  const ChannelGraph& g = s.group.system.graphs[nccl::GraphId::Ring];
  EXPECT_EQ(g.channels, 1) << "not 13 channels of 0.24 GB/s, although they carry a little more";
  EXPECT_NEAR(g.bw_inter.bytes_per_s, 3e9, 1);
}

TEST(NcclSearch, ARackOfNvlinkIsOneNode) {
  World rack("gb200-nvl72", 18, 72);
  EXPECT_EQ(rack.group.system.nodes, 1);
  EXPECT_TRUE(available(rack.group.system, AR, N, SI)) << "beyond the slowest speed of NCCL's list";
  World two("gb200-nvl72", 36, 144);
  EXPECT_EQ(two.group.system.nodes, 2);
}

TEST(NcclSearch, AHostWithFewerRanksLimitsAll) {
  World full("hgx-h100", 2, 16);
  World odd("hgx-h100", 2, 9);
  std::int64_t bytes = std::int64_t{1} << 30;
  auto time = [&](World& s) {
    return nccl::time_of(s.group, s.profile, Level::Mid, AR,
                         complete(s.group.system, s.group.settings, AR, R, SI, bytes), {bytes})
        .total;
  };
  EXPECT_GT(time(odd).ps, 4 * time(full).ps) << "one NIC of the second host, not eight";
  EXPECT_FALSE(available(odd.group.system, AR, Algorithm::NvlsTree, SI))
      << "a node of one GPU has no NVLS";
  EXPECT_EQ(odd.group.system.graphs[nccl::GraphId::Tree].pattern, nccl::Pattern::PlainTree)
      << "nor a balanced tree: the plainest of all nodes counts (src/init.cc, maxTreePattern)";
}

TEST(NcclSearch, RingsGoThroughEveryGpuOnceAndFitTheirLinks) {
  for (const char* name : {"dgx1-v100", "gh200x4-slingshot", "hgx-h100", "pcie-box-8"}) {
    World s(name, 1, test::cluster(name).devices_per_host);
    const ChannelGraph& g = s.group.system.graphs[nccl::GraphId::Ring];
    ASSERT_GT(g.channels, 0) << name;
    std::map<topology::LinkId, double> used;
    topology::Route route;
    for (const auto& order : g.order) {
      EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(),
                static_cast<std::size_t>(s.cluster.devices_per_host))
          << name;
      for (std::size_t i = 0; i < order.size(); ++i) {
        s.fabric->find_route(DeviceId::at(order[i]), DeviceId::at(order[(i + 1) % order.size()]),
                             route);
        for (topology::LinkId l : route.links) used[l] += g.bw_intra.bytes_per_s;
      }
    }
    for (const auto& [l, bytes] : used)
      EXPECT_LE(bytes, s.fabric->links()[l].bandwidth.bytes_per_ps() * 1e12 * 1.0001)
          << name << " " << s.fabric->link_name(l);
  }
}

TEST(NcclTuning, OffersOnlyWhatNcclOffers) {
  World one("hgx-h100", 1, 8);
  EXPECT_TRUE(available(one.group.system, AR, N, SI));
  EXPECT_FALSE(available(one.group.system, AR, Algorithm::NvlsTree, SI)) << "off on one node";
  EXPECT_FALSE(available(one.group.system, AR, N, LL)) << "Simple only";
  EXPECT_FALSE(available(one.group.system, BC, T, SI)) << "broadcast has rings only";
  EXPECT_FALSE(available(one.group.system, AR, Algorithm::Pat, SI));
  EXPECT_FALSE(available(one.group.system, AG, Algorithm::Pat, SI)) << "one GPU a node only";
  World a100("dgx-a100", 1, 8);
  EXPECT_FALSE(available(a100.group.system, AR, N, SI)) << "no multicast before Hopper";
  EXPECT_TRUE(available(a100.group.system, AR, R, L128));
  World pcie("pcie-box", 1, 4);
  EXPECT_FALSE(available(pcie.group.system, AR, R, L128)) << "PCIe splits 128-byte stores";
  World lone("gpu-ethernet-100g", 4, 4);
  EXPECT_TRUE(available(lone.group.system, AG, Algorithm::Pat, SI));
  EXPECT_FALSE(available(lone.group.system, AG, Algorithm::Pat, SI, 22)) << "PAT came with 2.23";
  World sockets("gpu-ethernet-100g", 2, 2);
  EXPECT_FALSE(available(sockets.group.system, AR, R, L128))
      << "sockets are reached through the host's memory";
  EXPECT_EQ(sockets.group.system.graphs[nccl::GraphId::Tree].pattern, nccl::Pattern::PlainTree)
      << "a node of one GPU: a plain tree";
  World rack("gb200-nvl72", 18, 72);
  EXPECT_TRUE(available(rack.group.system, AR, N, SI));
  EXPECT_FALSE(available(rack.group.system, AG, N, SI))
      << "at most 32 GPUs of a node since 2.25 (src/enqueue.cc)";
  EXPECT_TRUE(available(rack.group.system, AG, N, SI, 24));
  World ib("dgx-a100", 2, 16);
  EXPECT_TRUE(available(ib.group.system, AR, R, L128));
  EXPECT_EQ(ib.group.system.graphs[nccl::GraphId::Tree].pattern, nccl::Pattern::BalancedTree);
  World p4d("aws-p4d", 2, 16);
  EXPECT_FALSE(available(p4d.group.system, AR, R, LL)) << "EFA of p4d takes Simple only";
  EXPECT_TRUE(available(p4d.group.system, AR, R, SI));
}

// Who has a version asks for a difference by its name; the number itself is nobody's.
template <class V>
concept Ordered = requires(V a, V b) {
  a < b;
};
template <class V>
concept Numbered = requires(V a) {
  a.minor;
}
|| requires(V a) {
  static_cast<int>(a);
};
static_assert(!Ordered<Version> && !Numbered<Version>);

TEST(NcclVersion, HasWhatCameWithItOrBefore) {
  for (const Difference& d : kDifferences) {
    Version before =
        d.since.patch > 0 ? Version(d.since.minor, d.since.patch - 1) : Version(d.since.minor - 1);
    EXPECT_FALSE(before.has(d.change)) << d.before_and_now;
    EXPECT_TRUE(Version(d.since.minor, d.since.patch).has(d.change)) << d.before_and_now;
    EXPECT_NE(d.before_and_now.find(" | "), std::string_view::npos) << d.before_and_now;
    EXPECT_TRUE(d.source.starts_with("src/")) << d.before_and_now;
  }
  EXPECT_TRUE(Version(19).is_known() && Version(30).is_known());
  EXPECT_FALSE(Version(18).is_known() || Version(31).is_known());
  EXPECT_EQ(to_string(Version(23)), "2.23");
}

TEST(NcclTuning, VersionsDiffer) {
  World s("hgx-h100", 1, 8);
  auto cell = [&](int v, Algorithm a, Protocol p) {
    return cost_table(s.group.system, AR, {v})[a][p];
  };
  EXPECT_GT(cell(19, T, SI).latency, cell(23, T, SI).latency)
      << "2.19 raised the tree's NVLink latency to 28 us, 2.23 took it back";
  EXPECT_LT(cell(20, R, LL).bandwidth, cell(21, R, LL).bandwidth) << "2.21 raised Hopper's LL";
  EXPECT_EQ(cell(10, R, SI).bandwidth, cell(19, R, SI).bandwidth) << "older ones count as 2.19";
  // src/graph/tuning.cc of 2.19.3 to 2.28.3: NVLS has 5/6 of the least of both speeds before 2.28,
  // and what is gathered no factor from 2.23 on; a Simple tree begins at once before 2.23; a plain
  // tree has 15 % less in all; a ring's LL a quarter before 2.21.
  for (int v : {19, 23, 27})
    EXPECT_NEAR(cell(v, N, SI).bandwidth.gb_per_s, 8 * 40 * 5.0 / 6, 1e-9) << v;
  auto gather = [&](int v) {
    return cost_table(s.group.system, AG, {v})[N][SI].bandwidth.gb_per_s;
  };
  EXPECT_NEAR(gather(22), 8 * 40 * 5.0 / 6, 1e-9);
  EXPECT_NEAR(gather(23), 8 * 40, 1e-9);
  EXPECT_NEAR(gather(27), 8 * 40 * 7.0 / 8, 1e-9);
  EXPECT_EQ(cell(22, T, SI).latency, Microseconds{14 * 28});
  EXPECT_NEAR(cell(28, T, SI).latency.us, 8.4 + 14 * 4, 1e-9);
  EXPECT_NEAR(cell(20, R, LL).bandwidth.gb_per_s, std::min(12 * 30 * 0.25, 87.7) * 8 / 14, 1e-9);
  System plain = s.group.system;
  plain.graphs[nccl::GraphId::Tree].pattern = Pattern::PlainTree;
  for (int v : {19, 25, 28})
    EXPECT_NEAR(cost_table(plain, AR, {v})[T][SI].bandwidth / cell(v, T, SI).bandwidth, 0.85, 1e-9)
        << v;
  // LL128 only on the generations that it had been tried on, before 2.27.
  System ada = s.group.system;
  ada.compute_capability = 89;
  EXPECT_FALSE(available(ada, AR, R, L128, 26));
  EXPECT_TRUE(available(ada, AR, R, L128, 27));
  World two("aws-p5", 2, 16);
  auto chunk = [&](int v) {
    return complete(two.group.system, parse_settings({}, {v}).settings, AR, Algorithm::NvlsTree, SI,
                    std::int64_t{4} << 30)
        .chunk;
  };
  EXPECT_EQ(chunk(20), 512 * kKiB);
  EXPECT_EQ(chunk(21), 128 * kKiB) << "NVLS's own buffers";
}

// Two GPUs and two NICs on a PCIe switch: a ring leaves by the GPU beside the one that it came by,
// or one GPU's PCIe link carries two NICs.
TEST(NcclSearch, RingsComeBackToTheirNic) {
  World two("dgx-h100", 2, 16);
  const ChannelGraph& ring = two.group.system.graphs[nccl::GraphId::Ring];
  std::set<int> last;
  for (const auto& order : ring.order) {
    EXPECT_EQ(order.front() / 2, order.back() / 2);
    last.insert(order.back());
  }
  EXPECT_EQ(last.size(), 8u);
  World h100("dgx-h100", 4, 32);
  auto bus = [&](const World& s, Operation op) {
    return nccl::time_of(
               s.group, s.profile, Level::Mid, op,
               complete(s.group.system, s.group.settings, op, R, SI, std::int64_t{1} << 30),
               {std::int64_t{1} << 30})
        .bus_bytes_per_s;
  };
  EXPECT_GT(bus(h100, AG), 330e9);
}

TEST(NcclChoice, SmallOperationsUseFewChannels) {
  World s("hgx-h100", 1, 8);
  EXPECT_EQ(choose(s.group.system, s.group.settings, AR, 1024)->channels, 1);
  auto large = choose(s.group.system, s.group.settings, AR, std::int64_t{1} << 30);
  EXPECT_EQ(complete(s.group.system, s.group.settings, AR, R, SI, std::int64_t{1} << 30).channels,
            24);
  EXPECT_EQ(complete(s.group.system, s.group.settings, AR, R, SI, std::int64_t{1} << 30).chunk,
            2 * kMiB);
  EXPECT_GE(large->channels, 16);
  EXPECT_EQ(complete(s.group.system, s.group.settings, BC, R, SI, std::int64_t{1} << 30).chunk,
            512 * kKiB)
      << "one step; four are of the rings that reduce or gather";
}

// src/enqueue.cc up to 2.19.4, with a depth of GPUs - 1 + log2(nodes) = 9: below 72 chunks a
// channel 128 KiB, below 36 64 KiB, below 9 32 KiB.
TEST(NcclChoice, EarlierTreesTakeChunksByTheirDepth) {
  World s("hgx-h100", 4, 32);
  auto chunk = [&](int version, std::int64_t bytes) {
    Settings set = s.group.settings;
    set.version = {version};
    Choice c = complete(s.group.system, set, AR, T, SI, bytes);
    EXPECT_EQ(c.slice, c.chunk);
    return c.chunk / kKiB;
  };
  std::int64_t channel =
      complete(s.group.system, s.group.settings, AR, T, SI, std::int64_t{1} << 32).channels * kKiB;
  EXPECT_EQ(chunk(19, channel * 512 * 72), 512);
  EXPECT_EQ(chunk(19, channel * 512 * 71), 256);
  EXPECT_EQ(chunk(19, channel * 128 * 40), 128);
  EXPECT_EQ(chunk(19, channel * 128 * 30), 64);
  EXPECT_EQ(chunk(19, channel * 64 * 8), 32);
  EXPECT_EQ(chunk(20, channel * 64 * 8), 512);
}

// src/enqueue.cc, calcCollChunking: pieces by what stands one behind another.
TEST(NcclChoice, CollnetTakesItsOwnChunks) {
  World two("hgx-h100", 2, 16);
  auto chunk = [&](Algorithm a, std::int64_t bytes) {
    return complete(two.group.system, two.group.settings, AR, a, SI, bytes).chunk / kKiB;
  };
  std::int64_t large = complete(two.group.system, two.group.settings, AR, Algorithm::CollnetDirect,
                                SI, std::int64_t{1} << 40)
                           .channels *
                       8 * kKiB;
  EXPECT_EQ(chunk(Algorithm::CollnetDirect, large * 512 * 128), 512)
      << "64 pieces for each of two stages";
  EXPECT_EQ(chunk(Algorithm::CollnetDirect, large * 128 * 20), 128);
  EXPECT_EQ(chunk(Algorithm::CollnetDirect, large * 64 * 17), 64);
  EXPECT_EQ(chunk(Algorithm::CollnetDirect, large * 32 * 20), 32);
  EXPECT_EQ(chunk(Algorithm::CollnetChain, large * 256 * 64), 256)
      << "64 pieces for each of eight ranks";
  EXPECT_EQ(chunk(Algorithm::CollnetChain, large * 128 * 10), 128);
  EXPECT_EQ(chunk(Algorithm::CollnetChain, large * 64 * 7), 64);
}

// A communicator's tables are made once. Other settings of what may be chosen need no others.
TEST(NcclChoice, OfACommunicatorIsThatOfItsSystem) {
  World w("aws-p4d", 4, 32, parse_settings({}, {23}).settings);
  OwnedGroup kept(w.group);
  OwnedGroup copy = kept;
  Settings tree = parse_settings({{"NCCL_ALGO", "allreduce:tree"}}, {23}).settings;
  set_choice(*copy, tree);
  for (Operation op : kAll<Operation>)
    for (std::int64_t bytes = 1; bytes <= std::int64_t{1} << 32; bytes *= 4)
      for (const OwnedGroup* g : {&kept, &copy}) {
        const Settings& set = g == &kept ? w.group.settings : tree;
        auto fresh = choose(w.group.system, set, op, bytes);
        auto cached = choose(**g, op, bytes);
        ASSERT_TRUE(fresh && cached);
        EXPECT_EQ(cached->algorithm, fresh->algorithm);
        EXPECT_EQ(cached->protocol, fresh->protocol);
        EXPECT_EQ(cached->channels, fresh->channels);
        EXPECT_EQ(cached->chunk, fresh->chunk);
        EXPECT_EQ(cached->estimate, fresh->estimate);
        EXPECT_EQ(cached->estimate, candidates(**g, op, bytes).front().estimate);
      }
}

TEST(NcclChoice, HonoursTheEnvironment) {
  auto with = [](std::map<std::string, std::string> environment) {
    ParsedSettings p = parse_settings(environment, {28});
    EXPECT_EQ(p.problem.message, "") << p.problem.path;
    return p.settings;
  };
  World s("hgx-h100", 1, 8);
  auto way = [&](const Settings& set, Operation op = AR, std::int64_t bytes = 64 * kMiB) {
    auto c = choose(s.group.system, set, op, bytes);
    return c ? std::string(name_of(c->algorithm)) + "/" + name_of(c->protocol)
             : std::string("nothing");
  };
  EXPECT_EQ(way(with({{"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", "LL128"}})), "tree/ll128");
  EXPECT_EQ(way(with({{"NCCL_PROTO", "^LL,Simple"}})), "ring/ll128");
  EXPECT_EQ(way(with({{"NCCL_ALGO", "allreduce:tree;allgather:ring"}, {"NCCL_PROTO", "simple"}})),
            "tree/simple");
  EXPECT_EQ(
      way(with({{"NCCL_ALGO", "allreduce:tree;allgather:ring"}, {"NCCL_PROTO", "simple"}}), AG),
      "ring/simple");
  EXPECT_EQ(way(with({{"NCCL_ALGO", "ring;allreduce:tree"}, {"NCCL_PROTO", "simple"}})),
            "tree/simple")
      << "a list for one function replaces the one before it";
  EXPECT_EQ(way(with({{"NCCL_ALGO", "ring;allreduce:tree"}, {"NCCL_PROTO", "simple"}}), AG),
            "ring/simple");
  EXPECT_EQ(way(with({{"NCCL_ALGO", "pat"}})), "nothing") << "since 2.24 there is no fallback";
  Settings old = with({{"NCCL_ALGO", "pat"}});
  old.version = {20};
  EXPECT_EQ(way(old).substr(0, 4), "ring") << "before, rings";
  EXPECT_EQ(complete(s.group.system, with({{"NCCL_MAX_CTAS", "4"}}), AR, R, SI, 64 * kMiB).channels,
            4);
  EXPECT_EQ(
      complete(s.group.system, with({{"NCCL_BUFFSIZE", "1048576"}}), AR, R, SI, 64 * kMiB).chunk,
      512 * kKiB);
  for (auto [name, value] : std::map<std::string, std::string>{{"NCCL_ALGO", "rong"},
                                                               {"NCCL_PROTO", "ll129"},
                                                               {"NCCL_MAX_CTAS", "0"},
                                                               {"NCCL_BUFFSIZE", "4M"},
                                                               {"NCCL_ALGO ", "ring"}})
    EXPECT_NE(parse_settings({{name, value}}, {28}).problem.message, "") << name << "=" << value;
  EXPECT_NE(parse_settings({{"NCCL_MIN_CTAS", "8"}, {"NCCL_MAX_CTAS", "4"}}, {28}).problem.message,
            "");
}

TEST(NcclTree, EveryNodeHasOneParentAndIsInnerInAtMostOneTree) {
  for (int n = 1; n <= 64; ++n) {
    std::vector<int> inner(static_cast<std::size_t>(n), 0);
    for (int tree : {0, 1}) {
      std::vector<int> parents = nccl::double_tree_parents(n, tree);
      ASSERT_EQ(parents.size(), static_cast<std::size_t>(n));
      int roots = 0;
      int edges = 0;
      for (int i = 0; i < n; ++i) {
        roots += parents[static_cast<std::size_t>(i)] < 0;
        int at = i;
        for (int k = 0; k < n && parents[static_cast<std::size_t>(at)] >= 0; ++k)
          at = parents[static_cast<std::size_t>(at)];
        EXPECT_LT(parents[static_cast<std::size_t>(at)], 0)
            << n << " nodes, tree " << tree << ", node " << i << " does not hang under the root";
        auto children = std::count(parents.begin(), parents.end(), i);
        EXPECT_LE(children, 2) << n << " nodes, tree " << tree << ", node " << i;
        edges += static_cast<int>(children);
        inner[static_cast<std::size_t>(i)] += children == 2;
      }
      EXPECT_EQ(roots, 1) << n;
      EXPECT_EQ(edges, n - 1) << n;
    }
    for (int i = 0; i < n; ++i)
      EXPECT_LE(inner[static_cast<std::size_t>(i)], 1) << n << " nodes, node " << i;
  }
}

// For one algorithm, protocol and number of channels, more bytes never take less time.
TEST(NcclPrice, GrowsWithBytes) {
  for (auto [name, hosts] : std::map<std::string, int>{{"hgx-h100", 1},
                                                       {"hgx-h100", 4},
                                                       {"dgx-a100", 2},
                                                       {"gh200x4-slingshot", 16},
                                                       {"aws-p5", 2},
                                                       {"dgx1-v100", 1},
                                                       {"pcie-box-8", 1}}) {
    World s(name, hosts, hosts * test::cluster(name).devices_per_host);
    for (Operation o : kAll<Operation>)
      for (const Candidate& c : candidates(s.group.system, s.group.settings, o, kMiB)) {
        if (!c.estimate) continue;
        Choice fixed = complete(s.group.system, s.group.settings, o, c.algorithm, c.protocol, kMiB);
        Duration last;
        for (std::int64_t bytes = 8; bytes <= (std::int64_t{8} << 30); bytes = bytes * 3 / 2 + 1) {
          Duration now = nccl::time_of(s.group, s.profile, Level::Mid, o, fixed, {bytes}).total;
          EXPECT_GE(now, last) << name << " " << name_of(o) << " " << name_of(c.algorithm) << "/"
                               << name_of(c.protocol) << " at " << bytes;
          last = now;
        }
      }
  }
}

// Other hosts, the same price; and the level of efficiency is the only thing between low and high.
TEST(NcclPrice, DoesNotDependOnWhichHosts) {
  Cluster c = test::cluster("dgx-a100");
  c.hosts = 8;
  Profile p = test::profile("a100-sxm4-80gb.datasheet");
  Fabric f(c);
  std::vector<DeviceId> last;
  for (DeviceId d : Places<DeviceId>{32, 32}) last.push_back(d);
  nccl::Group a = nccl::make_group(f, first_devices(32), {}, 80);
  nccl::Group b = nccl::make_group(f, last, {}, 80);
  for (std::int64_t bytes : {std::int64_t{1024}, kMiB, 256 * kMiB}) {
    Choice choice = *choose(a.system, a.settings, AR, bytes);
    EXPECT_EQ(nccl::time_of(a, p, Level::Mid, AR, choice, {bytes}).total,
              nccl::time_of(b, p, Level::Mid, AR, choice, {bytes}).total);
    EXPECT_GE(nccl::time_of(a, p, Level::Low, AR, choice, {bytes}).total,
              nccl::time_of(a, p, Level::High, AR, choice, {bytes}).total);
  }
}

// At large sizes the price is bytes over the slowest link, by theory: ring 2(n-1)/n over a GPU's
// links, or over the host's NICs; NVLS (1 + 1/n), and what each loop's first and last copies take,
// nearly 2 %.
TEST(NcclPrice, IsBandwidthAtLargeSizes) {
  std::int64_t bytes = std::int64_t{64} << 30;
  auto seconds = [&](World& s, Algorithm a) {
    Choice c = complete(s.group.system, s.group.settings, AR, a, SI, bytes);
    return static_cast<double>(
               nccl::time_of(s.group, s.profile, Level::Mid, AR, c, {bytes}).total.ps) /
           1e12;
  };
  World one("hgx-h100", 1, 8);
  double nvlink = 450e9 * one.profile.transports.at("nvlink").efficiency.mid;
  auto size = static_cast<double>(bytes);
  EXPECT_NEAR(seconds(one, R), size * 2 * 7 / 8 / nvlink, 0.005 * seconds(one, R));
  EXPECT_NEAR(seconds(one, N), size * (1 + 1.0 / 8) / (nvlink * 0.85), 0.02 * seconds(one, N));
  World two("dgx-a100", 2, 16);
  double nics = 8 * 25e9 * two.profile.transports.at("ib").efficiency.mid;
  EXPECT_NEAR(seconds(two, R), size * 2 * 15 / 16 / nics, 0.005 * seconds(two, R));
}

// Between nodes a tree is as fast as its NICs: half of the bytes on each edge of each of two trees,
// both ways. NVLSTree is as fast as NVLS inside.
TEST(NcclPrice, NicsAndLinksLimitTrees) {
  std::int64_t bytes = std::int64_t{64} << 30;
  auto size = static_cast<double>(bytes);
  World s("gh200x4-slingshot", 2, 8);
  Choice tree = complete(s.group.system, s.group.settings, AR, T, SI, bytes);
  double nics = 4 * 25e9 * s.profile.transports.at("libfabric").efficiency.mid;
  EXPECT_NEAR(static_cast<double>(
                  nccl::time_of(s.group, s.profile, Level::Mid, AR, tree, {bytes}).total.ps) /
                  1e12,
              size / nics, 0.005 * size / nics);
  World p5("hgx-h100", 2, 16);
  Choice nvls = complete(p5.group.system, p5.group.settings, AR, Algorithm::NvlsTree, SI, bytes);
  double inside =
      size * (1 + 1.0 / 8) / (450e9 * p5.profile.transports.at("nvlink").efficiency.mid * 0.85);
  EXPECT_NEAR(static_cast<double>(
                  nccl::time_of(p5.group, p5.profile, Level::Mid, AR, nvls, {bytes}).total.ps) /
                  1e12,
              inside, 0.02 * inside);
}

// NCCL's limit of LL128 is of a channel of the search, and two thread blocks work on it: sixteen of
// them move eight times as much on an A100.
TEST(NcclPrice, ThreadBlocksLimitLl128) {
  World s("dgx-a100", 2, 16);
  std::int64_t bytes = 256 * kMiB;
  Choice c = complete(s.group.system, s.group.settings, AR, R, L128, bytes);
  ASSERT_EQ(c.channels, 16);
  nccl::OperationTime p = nccl::time_of(s.group, s.profile, Level::Mid, AR, c, {bytes});
  EXPECT_EQ(p.limited_by, "thread blocks");
  double seconds = static_cast<double>(bytes) * 2 * 15 / 16 / (8 * 20e9);
  EXPECT_NEAR(static_cast<double>(p.transfer.ps) / 1e12, seconds, 1e-6 * seconds);
}

// Steps that take twice as long on one generation of GPUs say nothing of another's.
TEST(NcclFit, OneGenerationsStepsAreNotAnothers) {
  World old("dgx1-v100", 1, 8);
  World young("hgx-h100", 1, 8);
  std::vector<calib::CollectiveTable> tables;
  for (World* w : {&old, &young}) {
    calib::CollectiveTable t;
    t.machine = w->cluster.name;
    t.group = nccl::OwnedGroup(w->group);
    t.profile = w->profile;
    t.profile.host.launch = {};
    for (std::int64_t bytes = 1024; bytes < 16 * kMiB; bytes *= 2) {
      calib::CollectiveRow r;
      r.bytes = bytes;
      r.choice = *choose(*t.group, AR, bytes);
      Profile slow = t.profile;
      slow.transports.at("nvlink").step_factor *= w == &old ? 2 : 1;
      r.measured = nccl::time_of(*t.group, slow, Level::Mid, AR, r.choice, {bytes}).total;
      t.rows.push_back(r);
    }
    tables.push_back(std::move(t));
  }
  EXPECT_NEAR(calib::fit_links(tables, "", 7).at("nvlink").step_factor, 2, 1e-9);
  EXPECT_NEAR(calib::fit_links(tables, "", 9).at("nvlink").step_factor, 1, 1e-9);
  EXPECT_EQ(calib::fit_links(tables, "dgx1-v100", 7).at("nvlink").step_tables, 0);
  EXPECT_NEAR(calib::fit_links(tables, "dgx1-v100", 7).at("nvlink").step_factor, 1, 1e-9);
}

// What a network takes beyond NCCL's numbers is added to each step over it, whatever runs; and a
// fit finds it.
TEST(NcclFit, ANetworkIsSlowerForAllAlgorithmsAlike) {
  World s("hgx-h100", 2, 16);
  Profile slow = s.profile;
  TransportSection& ib = slow.transports.at("ib");
  ib.latency = ib.latency + Duration{5'000'000};
  ib.ll_latency = *ib.ll_latency + Duration{5'000'000};
  auto steps = [&](Algorithm a, Protocol p, const Profile& of) {
    Choice c = complete(s.group.system, s.group.settings, AR, a, p, kMiB);
    return nccl::time_of(s.group, of, Level::Mid, AR, c, {kMiB}).steps.ps;
  };
  // Two nodes: up and down a tree of one level, or two steps of a ring.
  for (auto [a, p] : {std::pair{T, LL}, std::pair{T, L128}, std::pair{R, L128},
                      std::pair{Algorithm::NvlsTree, SI}})
    EXPECT_NEAR(static_cast<double>(steps(a, p, slow) - steps(a, p, s.profile)), 10e6, 1e3)
        << nccl::name_of(a) << "/" << nccl::name_of(p);
  // NVLSTree takes what NCCL says of it, 25 us inside, without its first chunks' 11.2, and 20.9 us
  // between, twice.
  EXPECT_NEAR(static_cast<double>(steps(Algorithm::NvlsTree, SI, s.profile)), 55.6e6, 1e3);

  calib::CollectiveTable t;
  t.machine = "slower";
  t.group = nccl::OwnedGroup(s.group);
  t.profile = s.profile;
  t.profile.host.launch = {};
  for (std::int64_t bytes = 1024; bytes < 16 * kMiB; bytes *= 2) {
    calib::CollectiveRow r;
    r.bytes = bytes;
    r.choice = *choose(*t.group, AR, bytes);
    r.measured = nccl::time_of(*t.group, slow, Level::Mid, AR, r.choice, {bytes}).total;
    t.rows.push_back(r);
  }
  std::vector<calib::CollectiveTable> tables;
  tables.push_back(std::move(t));
  calib::LinkFits fits = calib::fit_links(tables, "", 9);
  EXPECT_NEAR(fits.at("ib").slower_us, 5, 1e-9);
  EXPECT_EQ(calib::steps_text("ib", fits.at("ib")), "+5.0 us");
  EXPECT_NEAR(fits.at("nvlink").step_factor, 1, 1e-9);
}

// NICs read GPUs' memory without thread blocks: a tree loses nothing to them on PCIe either.
TEST(NcclPrice, PcieBesideNvlinkIsTheNetworks) {
  World s("hgx-b200", 2, 16);
  World box("pcie-box", 1, 4);
  int pcie = 0;
  for (topology::LinkId l = 0; l < s.fabric->links().size(); ++l)
    if (s.fabric->links()[l].kind == topology::LinkKind::Pcie) {
      EXPECT_TRUE(nccl::of_network(s.group, l));
      ++pcie;
    } else {
      EXPECT_EQ(nccl::of_network(s.group, l), s.fabric->links()[l].kind == topology::LinkKind::Net);
    }
  EXPECT_GT(pcie, 0);
  for (topology::LinkId l = 0; l < box.fabric->links().size(); ++l)
    if (box.fabric->links()[l].kind == topology::LinkKind::Pcie) {
      EXPECT_FALSE(nccl::of_network(box.group, l));
    }
}

TEST(NcclPrice, FewThreadBlocksLimitNvls) {
  World s("hgx-h100", 1, 8);
  std::int64_t bytes = std::int64_t{1} << 30;
  Settings few = parse_settings({{"NCCL_MAX_CTAS", "1"}}, {28}).settings;
  auto time = [&](const Settings& set) {
    return nccl::time_of(s.group, s.profile, Level::Mid, AR,
                         complete(s.group.system, set, AR, N, SI, bytes), {bytes})
        .total;
  };
  EXPECT_GT(time(few).ps, 4 * time({}).ps);
}

// Nodes and GPUs that differ: each gets its own graphs, whatever was asked before; an answer for
// several nodes is that for any number of them.
TEST(NcclSearch, WhatIsKnownIsOfTheSameQuestionAlone) {
  nccl::NewestSearches newest;
  int kept = 0;
  nccl::Searches known = newest.view();
  known.keep = [&](const nccl::SearchQuestion& q, const nccl::Graphs& found) {
    ++kept;
    newest.keep(q, found);
  };
  for (auto [name, hosts, ranks] :
       {std::tuple{"hgx-h100", 1, 8}, std::tuple{"hgx-h100", 1, 4}, std::tuple{"hgx-h100", 2, 16},
        std::tuple{"hgx-h100", 3, 24}, std::tuple{"dgx-a100", 1, 8}, std::tuple{"dgx1-v100", 1, 8},
        std::tuple{"dgx1-v100", 1, 8}, std::tuple{"dgx1-v100", 1, 6}}) {
    World s(name, hosts, ranks);
    nccl::Group again = nccl::make_group(*s.fabric, first_devices(ranks), {},
                                         s.profile.compute.capability, nullptr, &known);
    for (nccl::GraphId id : kAll<nccl::GraphId>) {
      const nccl::ChannelGraph& a = s.group.system.graphs[id];
      const nccl::ChannelGraph& b = again.system.graphs[id];
      EXPECT_EQ(a.channels, b.channels) << name << " x" << hosts;
      EXPECT_EQ(a.bw_intra, b.bw_intra) << name << " x" << hosts;
      EXPECT_EQ(a.bw_inter, b.bw_inter) << name << " x" << hosts;
      EXPECT_EQ(a.order, b.order) << name << " x" << hosts;
      EXPECT_EQ(a.nics, b.nics) << name << " x" << hosts;
    }
  }
  EXPECT_EQ(kept, 6) << "of eight questions";
}

// Eight H100 under 2.20.3 (calib/published/aws_p5_1node_8xH100_batch) took 19.0 us for a loop by
// chunks of 32 KiB and 32.8 by 64; four (h100_nvswitch_g4_NVLS) what NVLink takes.
TEST(NcclPrice, NvlsCopiesEachHeadsChunkByItself) {
  auto loop_us = [](int gpus, std::int64_t bytes, std::int64_t chunk) {
    Settings set;
    set.version = Version(20);
    World s("hgx-h100", 1, gpus, set);
    auto time = [&](std::int64_t size) {
      nccl::Choice c = complete(s.group.system, set, AR, N, SI, size);
      EXPECT_EQ(c.chunk, chunk) << gpus << " GPUs, " << size;
      EXPECT_EQ(c.channels, 16);
      return static_cast<double>(
          nccl::time_of(s.group, s.profile, Level::Mid, AR, c, {size}).total.ps);
    };
    double loops = static_cast<double>(bytes) / (16.0 * gpus * static_cast<double>(chunk));
    return (time(2 * bytes) - time(bytes)) / 1e6 / loops;
  };
  constexpr std::int64_t kMiB = 1 << 20;
  EXPECT_NEAR(loop_us(8, 16 * kMiB, 32 << 10), 19.0, 0.8);
  EXPECT_NEAR(loop_us(8, 128 * kMiB, 64 << 10), 32.8, 1);
  EXPECT_NEAR(loop_us(4, 64 * kMiB, 64 << 10), 16.8, 0.3) << "NVLink's, a quarter more than once";
}

TEST(NcclPrice, LaunchesOfOneProcessHideBehindTheLastOperation) {
  World s("hgx-h100", 1, 8);
  nccl::OperationTime price;
  price.total = {10'000'000};
  s.profile.host.launch = {5'000'000};
  nccl::Choice choice;
  choice.channels = 4;
  auto shown = [&](int gpus) {
    return nccl::nccl_tests_time(s.group, s.profile, price, choice, gpus).ps;
  };
  EXPECT_EQ(shown(1), 10'000'000);
  EXPECT_EQ(shown(8), 41'920'000) << "0.06 us for each channel of each GPU";
  choice.channels = 24;
  EXPECT_EQ(shown(8), 51'520'000);
  // Up to 2.21 NCCL writes the work of each channel by itself.
  s.group.settings.version = Version(21);
  EXPECT_EQ(shown(8), 69'760'000);
  EXPECT_EQ(nccl::most_of_a_host(s.group), 8);
}

}  // namespace
}  // namespace ddpsim::nccl
