// What RCCL does in NCCL's place on eight MI300X.
#include <map>

#include <gtest/gtest.h>

#include "sim/nccl/fabric/group.h"
#include "sim/nccl/rccl.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

struct Mi300x {
  Cluster cluster = test::cluster("mi300x-8");
  std::optional<topology::Fabric> fabric;
  nccl::Group group;
  explicit Mi300x(bool rccl, int ranks = 8, int hosts = 1) {
    cluster.nccl.rccl = rccl;
    cluster.hosts = hosts;
    fabric.emplace(cluster);
    std::vector<DeviceId> devices = first_devices(ranks);
    group =
        nccl::make_group(*fabric, devices, {}, test::profile(cluster.profile).compute.capability);
  }
  Mi300x(const Mi300x&) = delete;
  bool offers(nccl::Algorithm a, nccl::Protocol p) const {
    return group.tables[Operation::AllReduce][a][p].bandwidth > GBps{};
  }
};

TEST(Rccl, IsWhatTheShippedClustersOfMi300xRun) {
  EXPECT_TRUE(test::cluster("mi300x-8").nccl.rccl);
  EXPECT_TRUE(test::cluster("azure-nd-mi300x-v5").nccl.rccl);
  EXPECT_FALSE(test::cluster("hgx-h100").nccl.rccl);
  for (const nccl::RcclRow& r : nccl::kRcclDifferences) {
    EXPECT_NE(r.nccl_and_rccl.find(" | "), std::string_view::npos) << r.nccl_and_rccl;
    EXPECT_TRUE(r.source.starts_with("src/")) << r.nccl_and_rccl;
  }
}

// rome_models.cc: 28 rings of seven links of 48 GB/s, run by twice as many thread blocks; each link
// each way in four of them.
TEST(Rccl, RingsUseEveryLinkEquallyOften) {
  Mi300x s(true);
  const nccl::ChannelGraph& ring = s.group.system.graphs[nccl::GraphId::Ring];
  ASSERT_EQ(ring.channels, 28);
  EXPECT_DOUBLE_EQ(ring.bw_intra.bytes_per_s, 12e9);
  EXPECT_EQ(communicator_channels(s.group.system, nccl::Algorithm::Ring), 56);
  std::map<std::pair<int, int>, int> crossed;
  for (const std::vector<int>& order : ring.order) {
    ASSERT_EQ(order.size(), 8u);
    for (std::size_t i = 0; i < order.size(); ++i)
      ++crossed[{order[i], order[(i + 1) % order.size()]}];
  }
  EXPECT_EQ(crossed.size(), 56u);
  for (const auto& [link, rings] : crossed)
    EXPECT_EQ(rings, 4) << link.first << " to " << link.second;
  double most = 0;
  double least = 1e9;
  for (const topology::LinkLoad& l : s.group.every_ring) {
    most = std::max(most, l.per_byte);
    least = std::min(least, l.per_byte);
  }
  EXPECT_NEAR(most, 2 * 7.0 / 8 / 7, 1e-9);
  EXPECT_NEAR(least, most, 1e-9);
}

TEST(Rccl, OffersNoLl128AndNoSimpleTreeOnOneNode) {
  Mi300x one(true);
  EXPECT_FALSE(one.offers(nccl::Algorithm::Ring, nccl::Protocol::Ll128));
  EXPECT_FALSE(one.offers(nccl::Algorithm::Tree, nccl::Protocol::Ll128));
  EXPECT_FALSE(one.offers(nccl::Algorithm::Tree, nccl::Protocol::Simple));
  EXPECT_TRUE(one.offers(nccl::Algorithm::Tree, nccl::Protocol::Ll));
  EXPECT_TRUE(one.offers(nccl::Algorithm::Ring, nccl::Protocol::Simple));
  EXPECT_TRUE(Mi300x(true, 16, 2).offers(nccl::Algorithm::Tree, nccl::Protocol::Simple));
  EXPECT_TRUE(Mi300x(false).offers(nccl::Algorithm::Ring, nccl::Protocol::Ll128));
}

// Of four GPUs, and of several nodes, the search stands in.
TEST(Rccl, SearchesWhereItsTableHasNoRings) {
  for (bool rccl : {true, false}) {
    Mi300x four(rccl, 4);
    EXPECT_NE(four.group.system.graphs[nccl::GraphId::Ring].channels, 28);
    EXPECT_GE(four.group.system.graphs[nccl::GraphId::Ring].channels, 1);
  }
  EXPECT_NE(Mi300x(false).group.system.graphs[nccl::GraphId::Ring].channels, 28);
}

}  // namespace
}  // namespace ddpsim
