// NCCL at the edges of what a host can be: links slower than any speed that its search tries, hosts
// of hundreds of GPUs, prices that no clock holds.
#include <numeric>

#include <gtest/gtest.h>
#include <pthread.h>

#include "sim/collective/backend/nccl.h"
#include "sim/nccl/search.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

using nccl::ChannelGraph;
using nccl::Group;
using topology::PathType;

std::vector<int> first(int n) {
  std::vector<int> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// NCCL_GRAPH_DUMP_FILE of such a host: one channel of 0.1 GB/s in the GPUs' order, SYS.
void expect_simple_order(const ChannelGraph& g, int gpus) {
  ASSERT_EQ(g.channels, 1);
  EXPECT_EQ(g.bw_intra, BytesPerSecond{0.1e9});
  EXPECT_EQ(g.type_intra, PathType::Sys);
  EXPECT_EQ(g.type_inter, PathType::Sys);
  ASSERT_EQ(g.order.size(), 1u);
  EXPECT_EQ(g.order.front(), first(gpus));
}

TEST(NcclSearch, FallsBackToTheSimpleOrderWhereLinksAreSlowerThanAnySpeed) {
  for (int hosts : {1, 2}) {
    Cluster c = test::cluster("pcie-box");
    c.hosts = hosts;
    c.inside->pcie->bandwidth = {800'000'000};
    topology::Fabric f(c);
    auto graphs = nccl::make_group(f, first_devices(4 * hosts), {}, 70).system.graphs;
    expect_simple_order(graphs[nccl::GraphId::Ring], 4);
    expect_simple_order(graphs[nccl::GraphId::Tree], 4);
    EXPECT_EQ(graphs[nccl::GraphId::Ring].pattern, nccl::Pattern::Ring);
    EXPECT_EQ(graphs[nccl::GraphId::Tree].pattern, nccl::Pattern::BalancedTree);
    EXPECT_EQ(graphs[nccl::GraphId::Ring].nics.size(), hosts > 1 ? 1u : 0u);
  }
  Cluster c = test::cluster("gpu-ethernet-10g");
  c.hosts = 2;
  c.link.bandwidth = {800'000'000};
  topology::Fabric f(c);
  auto graphs = nccl::make_group(f, first_devices(c.devices()), {}, 80).system.graphs;
  expect_simple_order(graphs[nccl::GraphId::Ring], c.devices_per_host);
}

// CollNet and NVLS are not fallen back to.
TEST(NcclSearch, CollnetHasNoFallback) {
  Cluster c = test::cluster("hgx-h100");
  c.hosts = 2;
  c.nccl.collnet = true;
  c.link.bandwidth = {80'000'000};
  topology::Fabric f(c);
  auto graphs = nccl::make_group(f, first_devices(16), {}, 90).system.graphs;
  EXPECT_EQ(graphs[nccl::GraphId::Ring].bw_inter, BytesPerSecond{0.1e9});
  EXPECT_EQ(graphs[nccl::GraphId::CollnetChain].channels, 0);
  EXPECT_EQ(graphs[nccl::GraphId::CollnetDirect].channels, 0);
}

Cluster drawn_host(int gpus, VertexKind middle, const std::string& transport) {
  Cluster c = test::cluster("hgx-h100");
  c.intra.reset();
  c.devices_per_host = gpus;
  c.nics_per_host = 1;
  Inside& in = c.inside.emplace();
  in.pattern = InsidePattern::Drawn;
  in.vertices.push_back({"middle", middle});
  for (int g = 0; g < gpus; ++g) {
    std::string name = "gpu" + std::to_string(g);
    in.vertices.push_back({name, VertexKind::Gpu});
    LinkSpec l;
    l.bandwidth = {36'000'000'000'000};  // room for as many channels as there may be
    l.transport = transport;
    in.links.push_back({name, "middle", l});
  }
  return c;
}

// On a thread with a stack of 2 MB.
void on_a_small_stack(void (*body)()) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 2 << 20);
  pthread_t thread;
  auto run = [](void* what) -> void* {
    reinterpret_cast<void (*)()>(what)();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &small, run, reinterpret_cast<void*>(body)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
}

void expect_a_choice(const Cluster& c) {
  ASSERT_FALSE(validate(c));
  topology::Fabric f(c);
  nccl::Group g = nccl::make_group(f, first_devices(c.devices()), {}, 90);
  EXPECT_GE(g.system.graphs[nccl::GraphId::Ring].channels, 1);
  EXPECT_TRUE(nccl::choose(g.system, g.settings, Operation::AllReduce, kMiB));
}

// A search by recursion is as deep as GPUs times channels.
TEST(NcclSearch, HostsOfHundredsOfGpus) {
  on_a_small_stack([] {
    for (auto [kind, transport] :
         {std::pair{VertexKind::Nvswitch, "nvlink"}, {VertexKind::PcieSwitch, "pcie"}})
      for (int hosts : {1, 2}) {
        Cluster c = drawn_host(500, kind, transport);
        c.hosts = hosts;
        expect_a_choice(c);
      }
  });
}

// Each joined to each by NVLink: 124,750 cables, and a way by any other GPU for each two.
TEST(NcclSearch, AHostOfHundredsOfGpusEachJoinedToEach) {
  Cluster c = drawn_host(500, VertexKind::Nvswitch, "nvlink");
  LinkSpec l = c.inside->links.front().link;
  l.bandwidth = {100'000'000'000};
  c.inside->links.clear();
  c.inside->vertices.erase(c.inside->vertices.begin());
  for (std::size_t a = 0; a < 500; ++a)
    for (std::size_t b = a + 1; b < 500; ++b)
      c.inside->links.push_back({c.inside->vertices[a].name, c.inside->vertices[b].name, l});
  expect_a_choice(c);
}

TEST(NcclSearch, NodesBeyondNcclsOwnLimitAreRefused) {
  Cluster c = test::cluster("hgx-h100");
  c.devices_per_host = 1024;
  topology::Fabric f(c);
  EXPECT_FALSE(nccl::check_nodes(f, first_devices(576)));
  Problem p = nccl::check_nodes(f, first_devices(577));
  EXPECT_EQ(p.path, "/devices_per_host");
  EXPECT_NE(p.message.find("577 GPUs of one host"), std::string::npos) << p.message;
  EXPECT_NE(p.message.find("at most 576"), std::string::npos) << p.message;
}

// NVLS goes through the NVSwitch, also where PCIe is wider and messages between GPUs take it: 25
// us, of which PCIe would have none.
TEST(NcclPrices, NvlsTakesItsNvlinksLatency) {
  Cluster c = test::cluster("dgx-h100");
  Profile p = test::profile("h100-sxm.datasheet");
  auto steps = [&] {
    topology::Fabric f(c);
    nccl::Group g = nccl::make_group(f, first_devices(8), {}, 90);
    auto nvls = nccl::Algorithm::Nvls;
    auto simple = nccl::Protocol::Simple;
    nccl::Choice choice = nccl::complete(g.system, {}, Operation::AllReduce, nvls, simple, 1024);
    return nccl::time_of(g, p, Level::Mid, Operation::AllReduce, choice, {1024}).steps;
  };
  Duration usual = steps();
  c.inside->link.bandwidth = {8 * 45'000'000'000};
  EXPECT_EQ(steps(), usual);
  EXPECT_EQ(usual, kMicrosecond * 13 + Duration{800'000}) << "NCCL's 25 us, less its first chunks";
}

// The switch's latency is in an all-reduce once, whether its two stages are of one host or have the
// network between them.
TEST(NcclPrices, NvlsTakesItsSwitchsLatencyOnce) {
  auto grows = [&](int hosts) {
    Cluster c = test::cluster("dgx-h100");
    c.hosts = hosts;
    c.nccl.collnet = hosts > 1;  // without it, NCCL has no NVLS between hosts
    topology::Fabric f(c);
    nccl::Group g = nccl::make_group(f, first_devices(8 * hosts), {}, 90);
    nccl::Choice choice = nccl::complete(g.system, {}, Operation::AllReduce, nccl::Algorithm::Nvls,
                                         nccl::Protocol::Simple, 1024);
    Profile p = test::profile("h100-sxm.datasheet");
    auto steps = [&] {
      return nccl::time_of(g, p, Level::Mid, Operation::AllReduce, choice, {1024}).steps;
    };
    const Duration usual = steps();
    p.transports.at("nvlink").latency += kMicrosecond * 10;
    return steps() - usual;
  };
  EXPECT_GT(grows(1), kMicrosecond);
  EXPECT_NEAR(static_cast<double>(grows(2).ps), static_cast<double>(grows(1).ps), 10);
}

// 9 million TB: more than 106 days, and no overflow on the way.
TEST(NcclPrices, WhatTakesTooLongForAClockTakesForever) {
  Cluster c = test::cluster("hgx-h100");
  c.hosts = 2;
  Profile p = test::profile("h100-sxm.datasheet");
  topology::Fabric f(c);
  nccl::Group g = nccl::make_group(f, first_devices(16), {}, 90);
  std::int64_t bytes = 9'000'000'000'000'000'000;
  for (Operation op : {Operation::AllReduce, Operation::AllGather, Operation::Broadcast})
    for (const nccl::Candidate& k : nccl::candidates(g.system, g.settings, op, bytes)) {
      if (!k.estimate) continue;
      nccl::Choice choice =
          nccl::complete(g.system, g.settings, op, k.algorithm, k.protocol, bytes);
      EXPECT_EQ(nccl::time_of(g, p, Level::Mid, op, choice, {bytes}).total.ps, kForever);
    }
}

}  // namespace
}  // namespace ddpsim
