// What NCCL's data passes besides links: threads that copy between sockets and memory, and the
// host's memory between GPUs without peer access.

#include <gtest/gtest.h>

#include "sim/nccl/fabric/group.h"
#include "sim/nccl/fabric/peers.h"
#include "sim/nccl/fabric/terms.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

using nccl::parse_settings;
using topology::PathType;
using Environment = std::map<std::string, std::string>;

constexpr Bytes kLarge{512 * kMiB};

struct SocketsJob {
  Cluster cluster;
  Profile profile;
  std::optional<topology::Fabric> fabric;
  nccl::Group group;
  SocketsJob(Cluster c, const Environment& environment = {}, int version = 28)
      : cluster(std::move(c)) {
    profile = test::profile(cluster.profile);
    fabric.emplace(cluster);
    std::vector<DeviceId> devices = first_devices(cluster.devices());
    nccl::ParsedSettings parsed = parse_settings(environment, {version});
    EXPECT_EQ(parsed.problem.message, "");
    group = nccl::make_group(*fabric, devices, parsed.settings, profile.compute.capability);
  }
  SocketsJob(const SocketsJob&) = delete;
  double bus_gb_per_s(nccl::Algorithm a = nccl::Algorithm::Ring, Bytes bytes = kLarge) const {
    auto choice = complete(group, Operation::AllReduce, a, nccl::Protocol::Simple, bytes.count);
    return time_of(group, profile, Level::Mid, Operation::AllReduce, choice, bytes)
               .bus_bytes_per_s /
           1e9;
  }
};

Cluster ethernet(const std::string& rate, int hosts = 4) {
  Cluster c = test::cluster("gpu-ethernet-" + rate);
  c.hosts = hosts;
  return c;
}
Cluster box(const std::string& name, bool peer_access) {
  Cluster c = test::cluster(name);
  c.hosts = 1;
  c.nccl.peer_access = peer_access;
  return c;
}

// One proxy thread copies all that a rank sends and receives, however fast the network is; those
// of a channel's connection copy side by side.
TEST(NcclSockets, CarryWhatTheirThreadsCopy) {
  double thread =
      test::profile("a100-sxm4-80gb.datasheet").transports.at("tcp").thread_bytes_per_s->mid / 1e9;
  EXPECT_NEAR(SocketsJob(ethernet("10g")).bus_gb_per_s() * 8, 9.3, 0.2);
  for (const char* fast : {"25g", "100g"})
    EXPECT_NEAR(SocketsJob(ethernet(fast)).bus_gb_per_s(), thread, 0.03 * thread) << fast;
  SocketsJob two(ethernet("100g"), {{"NCCL_SOCKET_NTHREADS", "1"}, {"NCCL_MAX_CTAS", "2"}});
  EXPECT_NEAR(two.bus_gb_per_s(), 2 * thread, 0.06 * thread);
  EXPECT_GT(
      SocketsJob(ethernet("100g"), {{"NCCL_SOCKET_NTHREADS", "4"}, {"NCCL_NSOCKS_PERTHREAD", "4"}})
          .bus_gb_per_s(),
      11);
  EXPECT_NEAR(SocketsJob(ethernet("10g"), {{"NCCL_SOCKET_NTHREADS", "4"}}).bus_gb_per_s(),
              SocketsJob(ethernet("10g")).bus_gb_per_s(), 1e-9)
      << "threads do not widen a slow network";
  // Trees pass the same thread; between two nodes each byte leaves once.
  double tree = SocketsJob(ethernet("100g", 2)).bus_gb_per_s(nccl::Algorithm::Tree);
  EXPECT_LT(tree, 1.05 * thread);
  EXPECT_GT(tree, 0.9 * thread);
  auto choice = complete(two.group, Operation::AllReduce, nccl::Algorithm::Ring,
                         nccl::Protocol::Simple, kLarge.count);
  EXPECT_EQ(
      time_of(two.group, two.profile, Level::Mid, Operation::AllReduce, choice, kLarge).limited_by,
      "threads of sockets");
}

// NCCL's channels on two GPUs leave a host by one of them, whichever NIC they take: one proxy
// thread copies all of it. On eight GPUs with a NIC each they leave by different ones. The threads
// of a channel's connection are as many, however many NICs there are.
TEST(NcclSockets, AreOfARankOrOfAConnectionNotOfANic) {
  Cluster one_nic = ethernet("100g", 2);
  one_nic.devices_per_host = 2;
  one_nic.intra = LinkSpec{};
  one_nic.intra->bandwidth.bits_per_s = 2'400'000'000'000;
  one_nic.intra->transport = "nvlink";
  Cluster two_nics = one_nic;
  two_nics.nics_per_host = 2;
  const double thread =
      test::profile("a100-sxm4-80gb.datasheet").transports.at("tcp").thread_bytes_per_s->mid / 1e9;
  const Environment threads{{"NCCL_SOCKET_NTHREADS", "1"}, {"NCCL_MAX_CTAS", "2"}};
  for (nccl::Algorithm a : {nccl::Algorithm::Ring, nccl::Algorithm::Tree}) {
    const double by_one = SocketsJob(one_nic).bus_gb_per_s(a);
    EXPECT_NEAR(by_one, (a == nccl::Algorithm::Ring ? 1 : 1.5) * thread, 0.15 * thread);
    EXPECT_NEAR(SocketsJob(two_nics).bus_gb_per_s(a), by_one, 0.1 * by_one);
    for (const Cluster& c : {one_nic, two_nics})
      EXPECT_NEAR(SocketsJob(c, threads).bus_gb_per_s(a), 2 * by_one, 0.2 * by_one);
  }
  // Rings that leave by two ranks in turn.
  SocketsJob job(two_nics);
  const double by_one = job.bus_gb_per_s();
  EXPECT_EQ(job.group.busiest_of_rings, 1);
  job.group.busiest_of_rings = 0.5;
  EXPECT_NEAR(job.bus_gb_per_s(), 2 * by_one, 0.1 * by_one);
}

TEST(NcclSockets, HaveThreadsByVersionAndVendor) {
  auto threads = [](NicVendor vendor, int version, const Environment& environment = {}) {
    Cluster c = ethernet("100g");
    c.nccl.nic_vendor = vendor;
    return socket_threads(SocketsJob(c, environment, version).group);
  };
  EXPECT_EQ(threads(NicVendor::Other, 28), 0);
  EXPECT_EQ(threads(NicVendor::Other, 4), 1) << "before 2.5 a connection has a thread";
  EXPECT_EQ(threads(NicVendor::Aws, 28), 2);
  EXPECT_EQ(threads(NicVendor::Google, 28), 4);
  EXPECT_EQ(threads(NicVendor::Aws, 28, {{"NCCL_SOCKET_NTHREADS", "0"}}), 0);
}

// NCCL's own model does not know of it.
TEST(NcclSockets, DoNotChangeWhatNcclChooses) {
  SocketsJob one(ethernet("100g"));
  SocketsJob many(ethernet("100g"), {{"NCCL_SOCKET_NTHREADS", "8"}});
  for (std::int64_t bytes = 1; bytes < (std::int64_t{1} << 32); bytes *= 4) {
    auto a = choose(one.group, Operation::AllReduce, bytes);
    auto b = choose(many.group, Operation::AllReduce, bytes);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->algorithm, b->algorithm) << bytes;
    EXPECT_EQ(a->protocol, b->protocol) << bytes;
    EXPECT_EQ(a->estimate, b->estimate) << bytes;
  }
}

TEST(NcclPeers, ReachOneAnotherAsFarAsTheVersionSays) {
  using nccl::default_p2p_level;
  EXPECT_EQ(default_p2p_level({28}, HostCpu::Intel, 8), PathType::Pxb);
  EXPECT_EQ(default_p2p_level({28}, HostCpu::Amd, 2), PathType::Sys);
  EXPECT_EQ(default_p2p_level({28}, HostCpu::Amd, 4), PathType::Pxb);
  EXPECT_EQ(default_p2p_level({22}, HostCpu::Amd, 4), PathType::Sys);
  EXPECT_EQ(default_p2p_level({22}, HostCpu::Intel, 4), PathType::Pxb);
  EXPECT_EQ(default_p2p_level({8}, HostCpu::Intel, 4), PathType::Phb);
}

// Without peer access a message goes by the CPU, and a PCIe link gives what it gives to the host's
// memory; NCCL's own numbers of links stay.
TEST(NcclPeers, WithoutAccessGoThroughTheHostsMemory) {
  for (const char* name : {"pcie-box", "rtx-2080-ti-10g"}) {
    Cluster direct = box(name, true);
    direct.inside->sockets = 1;
    Cluster none = direct;
    none.nccl.peer_access = false;
    SocketsJob all(direct, {{"NCCL_P2P_LEVEL", "SYS"}});
    const TransportSection& pcie = all.profile.transports.at("pcie");
    double raw = 15.75;
    double share = direct.inside->switches_per_socket > 0 ? 2 : 1;  // GPUs that share an uplink
    EXPECT_NEAR(all.bus_gb_per_s(), raw * pcie.efficiency.mid, 0.3) << name;
    EXPECT_TRUE(all.group.to_memory.empty());
    EXPECT_NEAR(SocketsJob(none).bus_gb_per_s(), raw * pcie.host_memory->mid / share, 0.2) << name;
    EXPECT_NEAR(SocketsJob(direct, {{"NCCL_P2P_DISABLE", "1"}}).bus_gb_per_s(),
                SocketsJob(none).bus_gb_per_s(), 1e-9)
        << name;
    EXPECT_NEAR(
        SocketsJob(direct, {{"NCCL_P2P_DISABLE", "0"}, {"NCCL_P2P_LEVEL", "5"}}).bus_gb_per_s(),
        all.bus_gb_per_s(), 1e-9)
        << name;
    for (nccl::Algorithm a : {nccl::Algorithm::Ring, nccl::Algorithm::Tree})
      EXPECT_LT(SocketsJob(none).bus_gb_per_s(a), all.bus_gb_per_s(a)) << name;
  }
  SocketsJob box_of_pairs(box("pcie-box", false));
  topology::Route route;
  find_hop_route(box_of_pairs.group, 0, 1, -1, route);
  EXPECT_EQ(route.links.size(), 4u) << "two GPUs of one PCIe switch: up to the CPU and down";
  EXPECT_EQ(path_type_inside(box_of_pairs.group, 0, 1), PathType::Phb);
  SocketsJob by_default(box("pcie-box", true));
  find_hop_route(by_default.group, 0, 1, -1, route);
  EXPECT_EQ(route.links.size(), 2u);
  EXPECT_FALSE(by_default.group.to_memory.empty()) << "2.28: other switches' GPUs by memory";
  EXPECT_TRUE(SocketsJob(box("pcie-box", true), {}, 4).group.to_memory.empty()) << "2.4: none";
}

// NVLink is peer access whatever the machine gives over PCIe.
TEST(NcclPeers, OverNvlinkNeedNothing) {
  Cluster c = test::cluster("dgx1-v100");
  double usual = SocketsJob(c).bus_gb_per_s();
  c.nccl.peer_access = false;
  EXPECT_EQ(SocketsJob(c).bus_gb_per_s(), usual);
  EXPECT_LT(SocketsJob(c, {{"NCCL_P2P_DISABLE", "1"}}).bus_gb_per_s(), usual / 10);
}

TEST(NcclPeers, SaysWhatIsNotModelled) {
  auto problem = [](const Cluster& c, const Environment& environment) {
    topology::Fabric f(c);
    std::vector<DeviceId> devices = first_devices(c.devices());
    return check_peers(f, devices, parse_settings(environment, {28}).settings).message;
  };
  EXPECT_NE(problem(box("pcie-box", false), {{"NCCL_SHM_DISABLE", "1"}}).find("network interface"),
            std::string::npos);
  EXPECT_NE(problem(test::cluster("hgx-h100"), {{"NCCL_P2P_DISABLE", "1"}}).find("draw PCIe"),
            std::string::npos);
  EXPECT_NE(problem(test::cluster("gb200-nvl72"), {{"NCCL_P2P_DISABLE", "1"}}), "");
  EXPECT_EQ(problem(test::cluster("hgx-h100"), {{"NCCL_SHM_DISABLE", "1"}}), "");
  EXPECT_EQ(problem(box("pcie-box", false), {}), "");
}

TEST(NcclSettings, OfTransportsAreRefusedWhenMalformed) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"NCCL_SOCKET_NTHREADS", "17"},
                                                        {"NCCL_SOCKET_NTHREADS", "-2"},
                                                        {"NCCL_NSOCKS_PERTHREAD", "0"},
                                                        {"NCCL_NSOCKS_PERTHREAD", "many"},
                                                        {"NCCL_P2P_DISABLE", "yes"},
                                                        {"NCCL_P2P_LEVEL", "FAR"},
                                                        {"NCCL_P2P_LEVEL", "6"},
                                                        {"NCCL_P2P_LEVEL", "pxb"},
                                                        {"NCCL_SHM_DISABLE", "2"}}) {
    nccl::ParsedSettings p = parse_settings({{name, value}}, {28});
    EXPECT_EQ(p.problem.path, name) << value;
    EXPECT_NE(p.problem.message, "") << name << "=" << value;
  }
  EXPECT_NE(parse_settings({{"NCCL_SOCKET_NTHREADS", "16"}, {"NCCL_NSOCKS_PERTHREAD", "5"}}, {28})
                .problem.message,
            "");
}

}  // namespace
}  // namespace ddpsim
