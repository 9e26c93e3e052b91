// What NCCL decides of point-to-point operations: beside lines that NCCL printed ("N p2p channels,
// M p2p channels per peer"), and its rules.

#include <gtest/gtest.h>

#include "sim/nccl/fabric/p2p_price.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

nccl::P2p p2p_on(const std::string& name, int hosts, int per_host, nccl::Settings settings = {}) {
  Cluster c = test::cluster(name);
  c.hosts = hosts;
  topology::Fabric fabric(c);
  std::vector<DeviceId> devices;
  for (int h = 0; h < hosts; ++h)
    for (int d = 0; d < per_host; ++d) devices.push_back(DeviceId::at(h * c.devices_per_host + d));
  Profile p =
      test::profile(c.profile.ends_with(".datasheet") ? c.profile : c.profile + ".datasheet");
  nccl::Group g = nccl::make_group(fabric, devices, settings, p.compute.capability);
  return nccl::make_p2p(g, Operation::SendRecv).p2p;
}

// 8 H100: "24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer". Two
// hosts of one V100 on EFA: "2 coll channels, 2 p2p channels, 2 p2p channels per peer". Two hosts
// of several GPUs: 2 per peer ("P2P Chunksize set to 131072").
TEST(NcclP2p, IsWhatNcclPrints) {
  nccl::P2p h100 = p2p_on("hgx-h100", 1, 8);
  EXPECT_EQ(h100.blocks, 32);
  EXPECT_EQ(h100.per_peer, 32);
  EXPECT_EQ(h100.chunk, 512 * kKiB);
  nccl::P2p v100 = p2p_on("aws-p3dn", 2, 1);
  EXPECT_EQ(v100.blocks, 2);
  EXPECT_EQ(v100.per_peer, 2);
  nccl::P2p hosts = p2p_on("dgx-h100", 2, 8);
  EXPECT_EQ(hosts.per_peer, 2);
  EXPECT_EQ(hosts.chunk, 128 * kKiB);
  EXPECT_EQ(p2p_on("dgx-h100", 16, 8).per_peer, 1);  // above four messages a thread block
  EXPECT_EQ(p2p_on("pcie-box", 1, 4).per_peer, 2);
  EXPECT_EQ(p2p_on("pcie-box", 1, 4).chunk, 128 * kKiB);
  nccl::Settings few;
  few.max_channels = 4;
  few.buffer_bytes = 256 * kKiB;
  EXPECT_EQ(p2p_on("hgx-h100", 1, 8, few).blocks, 4);
  EXPECT_EQ(p2p_on("hgx-h100", 1, 8, few).chunk, 32 * kKiB);
}

TEST(NcclP2p, CutsMessages) {
  nccl::System one;
  one.ranks = 8;
  nccl::P2p p{32, 32, 512 * kKiB};
  auto message = [&](std::int64_t bytes, int minor = 28) {
    return nccl::p2p_message(one, p, {minor}, false, bytes);
  };
  EXPECT_EQ(message(512 * kKiB).protocol, nccl::Protocol::Ll);  // 16 KiB for each of 32
  EXPECT_EQ(message(512 * kKiB + 1).protocol, nccl::Protocol::Simple);
  EXPECT_EQ(message(16 * kKiB, 21).protocol, nccl::Protocol::Ll);
  EXPECT_EQ(message(16 * kKiB + 1, 21).protocol, nccl::Protocol::Simple);
  EXPECT_EQ(message(kMiB).parts, 4);  // 8 ranks on 32 thread blocks
  EXPECT_EQ(message(64 * kMiB).parts, 4);
  EXPECT_EQ(message(64 * kMiB + 1).parts, 8);  // a part is at most 32 chunks
  EXPECT_EQ(message(std::int64_t{1} << 30).parts, 32);
  EXPECT_EQ(message(kMiB).part, 256 * kKiB);
  nccl::System two = one;
  two.nodes = 2;
  nccl::P2p net{16, 2, 128 * kKiB};
  auto far = [&](std::int64_t bytes) { return nccl::p2p_message(two, net, {28}, true, bytes); };
  EXPECT_EQ(far(8).protocol, nccl::Protocol::Simple);  // no LL buffers
  EXPECT_EQ(far(64 * kKiB).chunk, 32 * kKiB);
  EXPECT_EQ(far(512 * kKiB).chunk, 64 * kKiB);
  EXPECT_EQ(far(kMiB).chunk, 128 * kKiB);
  EXPECT_EQ(far(kMiB).parts, 2);
  EXPECT_EQ(nccl::p2p_depth(true, 1), 8);
  EXPECT_EQ(nccl::p2p_depth(true, 8), 2);
  EXPECT_EQ(nccl::p2p_depth(false, 8), 8);
}

// Every peer once, by as many thread blocks as its message has parts; at most eight messages a
// batch.
TEST(NcclP2p, SchedulesEveryPeerOnce) {
  for (int node : {1, 2, 4, 6, 8, 16})
    for (int nodes : {1, 2, 3, 5, 9})
      for (int blocks : {2, 8, 32}) {
        int inside = 0;
        int between = 0;
        int parts_in = std::min(2, blocks);
        for (const auto& batches : nccl::p2p_batches(
                 {blocks, 2, 128 * kKiB}, std::vector<int>(static_cast<std::size_t>(nodes), node),
                 parts_in, 1))
          for (const nccl::P2pBatch& b : batches) {
            EXPECT_LE(b.all(), 8);
            EXPECT_GT(b.all(), 0);
            inside += b.inside;
            between += b.between;
          }
        EXPECT_EQ(inside, (node - 1) * parts_in) << nodes << " x " << node << ", " << blocks;
        EXPECT_EQ(between, (nodes - 1) * node) << nodes << " x " << node << ", " << blocks;
      }
}

}  // namespace
}  // namespace ddpsim
