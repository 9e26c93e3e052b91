// All-reduces made of NCCL's calls: their parts are what the pricers say, and sub-communicators
// that share a link share it.
#include <algorithm>

#include <gtest/gtest.h>

#include "sim/nccl/fabric/composed.h"
#include "tests/support/nccl.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

using nccl::Composed;

struct World {
  Cluster cluster;
  Profile profile;
  std::optional<topology::Fabric> fabric;
  nccl::Group group;
  World(const std::string& name, int hosts, int ranks = 0,
        const std::map<std::string, std::string>& environment = {})
      : cluster(test::cluster(name)) {
    cluster.hosts = hosts;
    profile = test::profile(
        cluster.profile.ends_with(".datasheet") ? cluster.profile : cluster.profile + ".datasheet");
    fabric.emplace(cluster);
    group = part(first_devices(ranks > 0 ? ranks : cluster.devices()), environment);
  }
  World(const World&) = delete;
  nccl::Group part(const std::vector<DeviceId>& devices,
                   const std::map<std::string, std::string>& environment = {}) const {
    return nccl::make_group(*fabric, devices, nccl::parse_settings(environment, {28}).settings,
                            profile.compute.capability);
  }
  std::vector<Composed> composed(std::int64_t bytes, Duration sum = {}) const {
    return nccl::composed_all_reduces(group, profile, Level::Mid, {bytes}, sum);
  }
  nccl::OperationTime alone(const nccl::Group& g, Operation op, std::int64_t bytes) const {
    return nccl::time_of(g, profile, Level::Mid, op, *nccl::choose(g.system, g.settings, op, bytes),
                         {bytes});
  }
};

std::vector<DeviceId> of_host(const World& w, HostId host) {
  std::vector<DeviceId> out;
  for (DeviceId d : w.fabric->devices_of(host)) out.push_back(d);
  return out;
}
std::vector<DeviceId> at_place(const World& w, int place) {
  std::vector<DeviceId> out;
  for (HostId h : each<HostId>(w.cluster.hosts)) out.push_back(w.fabric->device_of(h, place));
  return out;
}

// A NIC for each GPU: no two sub-communicators have a link in common, and each takes what it takes
// alone.
TEST(NcclComposed, TakesWhatItsCallsTakeWhereTheyShareNothing) {
  World w("dgx-h100", 4);
  for (std::int64_t bytes :
       {std::int64_t{64} << 10, std::int64_t{8} << 20, std::int64_t{1} << 30}) {
    std::vector<Composed> all = w.composed(bytes, {7});
    ASSERT_EQ(all.size(), 2u);
    const Composed& two = all[0];
    ASSERT_EQ(two.stages.size(), 3u);
    EXPECT_EQ(two.stages[0].time,
              w.alone(w.part(of_host(w, 1)), Operation::ReduceScatter, bytes).total)
        << bytes;
    EXPECT_EQ(two.stages[1].time,
              w.alone(w.part(at_place(w, 3)), Operation::AllReduce, bytes / 8).total)
        << bytes;
    EXPECT_EQ(two.stages[2].time, w.alone(w.part(of_host(w, 2)), Operation::AllGather, bytes).total)
        << bytes;
    EXPECT_EQ(two.total, two.stages[0].time + two.stages[1].time + two.stages[2].time);
    EXPECT_EQ(two.stages[0].groups, 4);
    EXPECT_EQ(two.stages[1].groups, 8);
    nccl::P2pOperation exchange = nccl::make_p2p(w.group, Operation::AllToAll);
    Duration each = nccl::p2p_time(exchange, w.profile, Level::Mid, {bytes}).price.total;
    EXPECT_EQ(all[1].total, each + each + Duration{7});
  }
}

// Eight GPUs behind one NIC (or four): the sub-communicators across hosts have an eighth (a half)
// of it each.
TEST(NcclComposed, SubCommunicatorsShareNics) {
  struct Case {
    const char* name;
    int sharing;
  };
  for (const Case& c : {Case{"aws-p3dn", 8}, {"aws-p4d", 2}, {"dgx-h100", 1}, {"dgx1-v100", 2}}) {
    World w(c.name, 4, 0, {{"NCCL_ALGO", "ring"}, {"NCCL_PROTO", "simple"}});
    std::int64_t bytes = std::int64_t{8} << 30;
    Composed two = w.composed(bytes)[0];
    ASSERT_EQ(two.stages.size(), 3u) << c.name << two.why_not;
    nccl::Group one = w.part(at_place(w, 0), {{"NCCL_ALGO", "ring"}, {"NCCL_PROTO", "simple"}});
    Duration alone = w.alone(one, Operation::AllReduce, bytes / 8).transfer;
    // Without GPUDirect one rank's thread copies less than the NIC carries, and eight's more.
    const double nic = w.cluster.link.bandwidth.bytes_per_ps() *
                       w.profile.transports.at(w.cluster.link.transport).efficiency.mid;
    const double copied = w.cluster.link.staging.bytes_per_ps() / 2;
    EXPECT_NEAR(static_cast<double>(two.stages[1].transfer.ps) / static_cast<double>(alone.ps),
                c.sharing * (copied > 0 ? copied / nic : 1), 1e-6)
        << c.name;
    EXPECT_EQ(two.stages[1].limited_by, w.fabric->link_name(w.fabric->nic_link(0, 0))) << c.name;
    // 2(k-1)/k of what each NIC's GPUs hold leaves by it.
    double theory = 2.0 * 3 / 4 * static_cast<double>(bytes) / 8 * c.sharing / nic;
    EXPECT_NEAR(static_cast<double>(two.stages[1].transfer.ps) / theory, 1, 1e-6) << c.name;
  }
}

TEST(NcclComposed, NeverFallsUnderOneAlgorithm) {
  for (const char* name : {"dgx-h100", "aws-p4d"}) {
    World w(name, 4, 0,
            {{"NCCL_ALGO", "ring"},
             {"NCCL_PROTO", "simple"},
             {"NCCL_MIN_CTAS", "8"},
             {"NCCL_MAX_CTAS", "8"}});
    Duration last;
    for (std::int64_t bytes = 1024; bytes <= std::int64_t{4} << 30; bytes *= 2) {
      Duration now = w.composed(bytes)[0].total;
      EXPECT_GE(now, last) << name << " " << bytes;
      last = now;
    }
  }
}

TEST(NcclComposed, IsOfSeveralHostsWithSeveralRanks) {
  EXPECT_TRUE(World("hgx-h100", 1).composed(kMiB).empty());
  EXPECT_TRUE(World("gpu-ethernet-10g", 4).composed(kMiB).empty());
  std::vector<Composed> uneven = World("dgx-h100", 2, 12).composed(kMiB);
  ASSERT_EQ(uneven.size(), 2u);
  EXPECT_NE(uneven[0].why_not.find("different numbers"), std::string::npos);
  EXPECT_TRUE(uneven[0].stages.empty());
  EXPECT_GT(uneven[1].total.ps, 0);
  std::vector<Composed> none = World("dgx-h100", 2, 0, {{"NCCL_ALGO", "tree"}}).composed(kMiB);
  EXPECT_NE(none[0].why_not.find("reduce_scatter"), std::string::npos) << none[0].why_not;
  // NVLink domains of 72 GPUs in 18 hosts: by host, and by domain.
  std::vector<Composed> racks = World("gb200-nvl72", 36).composed(64 * kMiB);
  ASSERT_EQ(racks.size(), 3u);
  EXPECT_EQ(racks[0].stages[1].ranks, 36);
  EXPECT_EQ(racks[1].stages[1].ranks, 2);
  EXPECT_EQ(World("gb200-nvl72", 18).composed(kMiB).size(), 2u);
}

}  // namespace
}  // namespace ddpsim
