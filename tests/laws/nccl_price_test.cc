// NCCL's ring against its own loops: slices of chunks of buffers, one after another as a thread
// block takes them.
#include <algorithm>

#include <gtest/gtest.h>

#include "sim/collective/backend/nccl.h"
#include "sim/nccl/fabric/terms.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

using nccl::Algorithm;
using nccl::Protocol;

struct World {
  Cluster cluster;
  Profile profile;
  std::optional<topology::Fabric> fabric;
  nccl::Group group;
  World(const std::string& name, int hosts, int per_host) : cluster(test::cluster(name)) {
    cluster.hosts = hosts;
    std::string base =
        cluster.profile.ends_with(".datasheet") ? cluster.profile : cluster.profile + ".datasheet";
    profile = test::profile(base);
    fabric.emplace(cluster);
    std::vector<DeviceId> devices;
    for (int r = 0; r < hosts * per_host; ++r)
      devices.push_back(DeviceId::at(r / per_host * cluster.devices_per_host + r % per_host));
    group = nccl::make_group(*fabric, devices, {}, profile.compute.capability);
  }
  World(const World&) = delete;
};

nccl::OperationTime ring(const World& w, Operation op, std::int64_t buffer, std::int64_t bytes) {
  nccl::Settings set;
  set.buffer_bytes = buffer;
  nccl::Choice c =
      nccl::complete(w.group.system, set, op, Algorithm::Ring, Protocol::Simple, bytes);
  return nccl::time_of(w.group, w.profile, Level::Mid, op, c, {bytes});
}

// Without GPUDirect a rank's proxy thread copies what it sends and what it receives. One GPU a node
// does both; of eight the rings leave a node by one GPU and enter it by another, or by several.
TEST(NcclStaging, BelongsToAProxyThread) {
  World one("aws-p3dn", 2, 1);
  World eight("aws-p3dn", 2, 8);
  EXPECT_EQ(one.group.proxy_copies, 2);
  EXPECT_LE(eight.group.proxy_copies, 1);
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  auto bus = [&](const World& w) {
    const double n = w.group.ranks();
    return 2 * (n - 1) / n * static_cast<double>(kBytes) /
           static_cast<double>(
               ring(w, Operation::AllReduce, std::int64_t{4} << 20, kBytes).transfer.ps);
  };
  const double thread = one.cluster.link.staging.bytes_per_ps();
  EXPECT_NEAR(bus(one), thread / 2, 1e-3 * thread);
  EXPECT_GT(bus(eight), 0.99 * thread);
}

// A buffer of NCCL_BUFFSIZE: the default's price at 4 MiB, never less below it at large sizes but
// for the copy of the last chunk, which is shorter, and much more where a slice is shorter than a
// step's latency.
TEST(NcclBuffers, SmallerOnesAreNeverFasterForARing) {
  struct Case {
    const char* name;
    int hosts;
    int per_host;
  };
  for (const Case& c : {Case{"hgx-h100", 1, 8},
                        {"hgx-h100", 4, 8},
                        {"dgx-a100", 2, 8},
                        {"gh200x4-slingshot", 16, 4},
                        {"gh200x4-slingshot", 1, 4},
                        {"aws-p5", 2, 8},
                        {"dgx1-v100", 1, 8},
                        {"dgx-a100", 8, 1}}) {
    World w(c.name, c.hosts, c.per_host);
    for (Operation op : {Operation::AllReduce, Operation::AllGather, Operation::ReduceScatter})
      for (std::int64_t bytes : {256 * kMiB, std::int64_t{1} << 30, std::int64_t{8} << 30}) {
        Duration normal = ring(w, op, 0, bytes).total;
        EXPECT_EQ(ring(w, op, 4 * kMiB, bytes).total, normal);
        auto steps_and_bytes = [&](std::int64_t buffer) {
          const nccl::OperationTime p = ring(w, op, buffer, bytes);
          return p.total - p.fill;
        };
        Duration last = steps_and_bytes(16 * kMiB);
        for (std::int64_t buffer = 8 * kMiB; buffer >= 16 * kKiB; buffer /= 2) {
          Duration now = steps_and_bytes(buffer);
          EXPECT_GE(now, last) << c.name << " x " << c.hosts << ", " << bytes << " bytes, buffer "
                               << buffer;
          last = now;
        }
        EXPECT_GT(last.ps, 2 * normal.ps) << c.name << " x " << c.hosts;
      }
  }
}

// One GPU a host, so that all hops are alike: a rank's thread block sends two slices a step, each
// when it has the slice of the step before and is done with its own last one; the last step of a
// loop only receives. The slice that it received last it copies out of the buffer.
TEST(NcclBuffers, TheRingIsWhatItsSlicesTake) {
  World w("dgx-a100", 4, 1);
  const int n = 4;
  nccl::Settings set;
  for (std::int64_t buffer : {4 * kMiB, kMiB, 256 * kKiB, 64 * kKiB}) {
    set.buffer_bytes = buffer;
    for (int loops : {1, 2, 5}) {
      nccl::Choice c = nccl::complete(w.group.system, set, Operation::AllReduce, Algorithm::Ring,
                                      Protocol::Simple, std::int64_t{1} << 30);
      std::int64_t bytes = loops * n * c.channels * c.chunk;
      nccl::OperationTime p =
          nccl::time_of(w.group, w.profile, Level::Mid, Operation::AllReduce, c, {bytes});
      nccl::OperationTime tiny = nccl::time_of(w.group, w.profile, Level::Mid, Operation::AllReduce,
                                               c, {n * c.channels * 16});
      double latency = static_cast<double>(tiny.steps.ps) / (2 * (n - 1));
      double slice = static_cast<double>(p.transfer.ps) / (loops * 2 * (n - 1) * 2);
      double free = 0;               // when the thread block is
      std::array<double, 2> have{};  // when slices of the last step arrive
      for (int l = 0; l < loops; ++l)
        for (int step = 0; step <= 2 * (n - 1); ++step)
          for (std::size_t s = 0; s < 2; ++s) {
            if (step > 0) free = std::max(free, have[s]);
            if (step == 2 * (n - 1)) continue;
            free += slice;
            have[s] = free + latency;
          }
      EXPECT_NEAR(static_cast<double>(p.fill.ps),
                  picoseconds(static_cast<double>(c.chunk) / 2 / (nccl::block_rate(w.group) / 2)),
                  1e3);
      double priced = static_cast<double>((p.total - p.base - p.fill).ps);
      EXPECT_NEAR(priced, free, 1e-6 * free) << buffer << " bytes of buffer, " << loops << " loops";
    }
  }
}

}  // namespace
}  // namespace ddpsim
