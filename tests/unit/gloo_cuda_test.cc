// Gloo with CUDA tensors. Order, bytes and who waits for whom are held against
// tests/oracle/gloo_cuda_lowered.py; here are closed forms and what is shared.
#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "sim/collective/backend/sockets.h"
#include "sim/collective/communicator.h"
#include "sim/collective/price.h"
#include "sim/play/alone.h"
#include "sim/predict/host_memory.h"
#include "sim/predict/predict.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::predict::gloo_cuda {
namespace {

constexpr std::int64_t kMebi = 1 << 20;
constexpr double kThread = 2e9;  // bytes a second

// Nothing takes time but the threads' bytes.
Profile threads_alone(Profile p) {
  TransportSection gloo;
  gloo.efficiency = {1, 1, 1};
  gloo.thread_bytes_per_s = Range{kThread, kThread, kThread};
  p.transports["gloo"] = gloo;
  p.reduction_bytes_per_s = 1e15;
  p.reduction_basis = Evidence::Datasheet;
  return p;
}

struct SocketJob {
  Cluster cluster;
  Profile profile;
  topology::Fabric fabric;
  collective::Communicator comm;
  SocketJob(int hosts, int ranks, const char* name = "dgx-h100",
            Algorithm algorithm = Algorithm::Ring)
      : cluster(of(name, hosts)),
        profile(threads_alone(test::profile(cluster.profile))),
        fabric(cluster),
        comm(collective::make_communicator(fabric, devices(ranks), Backend::Gloo, algorithm,
                                           true)) {}
  static Cluster of(const char* name, int hosts) {
    Cluster c = test::cluster(name);
    c.hosts = hosts;
    return c;
  }
  static std::vector<DeviceId> devices(int ranks) { return first_devices(ranks); }
  double seconds(std::int64_t bytes, Fidelity f) const {
    return static_cast<double>(all_reduce_alone(comm, profile, {bytes}, f).ps) / 1e12;
  }
};

// Of a ring each rank sends and receives 2 (n - 1)/n S, whatever joins the GPUs.
TEST(GlooCuda, AHostsRingTakesWhatItsThreadsTake) {
  for (int ranks : {2, 4, 8})
    for (std::int64_t bytes : {8 * kMebi, 64 * kMebi})
      for (const char* cluster : {"dgx-h100", "a100-pcie-8"}) {
        const SocketJob job(1, ranks, cluster);
        const double n = ranks;
        const double whole = 2 * (n - 1) / n * static_cast<double>(bytes) / kThread;
        EXPECT_NEAR(job.seconds(bytes, Fidelity::Collective), whole, 0.001 * whole) << ranks;
        EXPECT_NEAR(job.seconds(bytes, Fidelity::Message), whole, 0.01 * whole) << ranks;
      }
}

// Of a ring over hosts one message enters a host at a time, by its first NIC.
TEST(GlooCuda, BetweenHostsOneInterfaceCarriesTheRing) {
  SocketJob job(2, 16);
  job.cluster.link.bandwidth = {8'000'000'000};  // 1 GB/s: less than a thread
  const topology::Fabric fabric(job.cluster);
  const collective::Communicator comm = collective::make_communicator(
      fabric, SocketJob::devices(16), Backend::Gloo, Algorithm::Ring, true);
  const std::int64_t bytes = 64 * kMebi;
  const double whole = 2 * 15.0 / 16 * static_cast<double>(bytes) / 1e9;
  for (Fidelity f : {Fidelity::Collective, Fidelity::Message}) {
    const Duration t = all_reduce_alone(comm, job.profile, {bytes}, f);
    EXPECT_NEAR(static_cast<double>(t.ps) / 1e12, whole, 0.02 * whole) << name_of(f);
  }
  topology::Route route;
  collective::find_socket_route(fabric, 3, 12, route);
  ASSERT_EQ(route.links.size(), 2u);
  EXPECT_EQ(fabric.link_name(route.links[0]), "host0.nic0 up");
  EXPECT_EQ(fabric.link_name(route.links[1]), "host1.nic0 down");
  collective::find_socket_route(fabric, 3, 4, route);
  EXPECT_TRUE(route.links.empty());
}

// The root's thread only sends: to log2(n) ranks at once, half of what it could also receive.
TEST(GlooCuda, ABroadcastIsBoundByTheRootsThread) {
  const SocketJob job(1, 8);
  const std::int64_t bytes = 64 * kMebi;
  const collective::Price p =
      collective::broadcast(job.comm, job.profile, Level::Mid, Bytes{bytes});
  const double least = 3 * 0.5 * static_cast<double>(bytes) / kThread;
  EXPECT_GE(static_cast<double>(p.alone.ps) / 1e12, least * (1 - 1e-9));
  EXPECT_LE(static_cast<double>(p.alone.ps) / 1e12, 2.5 * least);
}

Scenario scenario(int ranks, double cap, Backend backend = Backend::Gloo) {
  Scenario s;
  s.ranks = ranks;
  s.plan.backend = backend;
  ddp_of(s.plan).bucket_cap_mb = cap;
  s.plan.pytorch = PytorchVersion{2, 7};
  return s;
}

struct Asked {
  Workload w = test::workload("resnet50");
  Cluster cluster = SocketJob::of("dgx-h100", 1);
  topology::Fabric fabric{cluster};
  Profile profile = test::profile(cluster.profile);
  Scenario s;
  explicit Asked(Scenario scenario) : s(std::move(scenario)) { s.stragglers = false; }
  Question question() const { return {w, fabric, profile, s}; }
};

std::map<std::string, Span> spans_of(const Prediction& p) {
  std::map<std::string, Span> out;
  for (const Span& s : p.run.spans) out[s.op] = s;
  return out;
}

TEST(GlooCuda, WhatIsCopiedIsWhatIsReducedAndEachStepWaitsForTheOneBefore) {
  const Asked asked(scenario(8, 5));
  ASSERT_FALSE(check(asked.question()));
  const auto spans = spans_of(predict(asked.question()));
  const systems::HostMemory memory = host_memory(asked.question(), Level::Mid);
  std::int64_t reduced = 0, there = 0, back = 0;
  int buckets = 0;
  for (const auto& [name, s] : spans) {
    if (name.starts_with("copy_to_host/")) there += s.bytes;
    if (name.starts_with("copy_back/")) back += s.bytes;
    if (is_collective(s.kind)) reduced += s.bytes;
    if (!name.starts_with("allreduce/bucket.")) continue;
    ++buckets;
    const Span& to_host = spans.at("copy_to_host/" + name);
    const Span& to_device = spans.at("copy_back/" + name);
    EXPECT_EQ(to_host.end - to_host.begin, memory.copy(s.bytes)) << name;
    EXPECT_EQ(to_device.end - to_device.begin, memory.copy(s.bytes)) << name;
    EXPECT_GE(s.begin, to_host.end) << name;
    EXPECT_GE(to_device.begin, s.end) << name;
    EXPECT_GE(spans.at("wait/" + name.substr(10)).end, s.end) << name;
  }
  EXPECT_GT(buckets, 8);
  EXPECT_EQ(there, reduced);
  EXPECT_EQ(back, reduced);
  // The host comes to the optimizer's launch behind all reductions, the device behind all copies.
  EXPECT_GE(spans.at("optimizer").begin, spans.at("copy_back/allreduce/bucket.0").end);
}

// Two workers: never three reductions at once, and two where there is work for two.
TEST(GlooCuda, TwoCollectivesAreUnderWayAndNoMore) {
  for (int threads : {1, 2, 3}) {
    Scenario s = scenario(8, 5);
    s.plan.gloo_threads = threads;
    const Asked asked(std::move(s));
    std::vector<std::pair<std::int64_t, int>> edges;
    for (const Span& span : predict(asked.question()).run.spans)
      if (is_collective(span.kind) && span.bytes > 0) {
        edges.emplace_back(span.begin.ps, 1);
        edges.emplace_back(span.end.ps, -1);
      }
    std::sort(edges.begin(), edges.end());
    int now = 0, most = 0;
    for (const auto& [at, change] : edges) most = std::max(most, now += change);
    EXPECT_EQ(most, threads);
  }
}

TEST(GlooCuda, IsSlowerThanNcclAndSaysWhatCopiesTake) {
  const Asked gloo(scenario(8, 25));
  const Asked nccl(scenario(8, 25, Backend::Nccl));
  const Prediction a = predict(gloo.question());
  const Prediction b = predict(nccl.question());
  EXPECT_GT(a.summary.step, b.summary.step);
  // 102 MB each way; those that overlap one another count once.
  const Duration each = host_memory(gloo.question(), Level::Mid).copy(102'228'128);
  EXPECT_GT(a.summary.copies, each);
  EXPECT_LT(a.summary.copies.ps, 2 * each.ps + 20'000'000'000);
  EXPECT_LE(a.summary.exposed_copies, a.summary.copies);
  EXPECT_EQ(b.summary.copies.ps, 0);
  const bool said = std::any_of(a.extrapolated.begin(), a.extrapolated.end(), [](const auto& s) {
    return s.find("what Gloo takes on the hosts' CPUs") != std::string::npos;
  });
  EXPECT_TRUE(said);
}

// More bandwidth for copies, threads or sums never makes a step longer.
TEST(GlooCuda, FasterHostsAreNotSlower) {
  Asked asked(scenario(8, 10));
  const Duration before = steady_period(asked.question());
  asked.profile.transports["gloo"] = collective::socket_section(asked.profile);
  EXPECT_EQ(steady_period(asked.question()), before) << "the typical, said aloud";
  for (double faster : {2.0, 4.0, 8.0}) {
    Range& r = *asked.profile.transports["gloo"].thread_bytes_per_s;
    r = {2.2e9 * faster, 2.2e9 * faster, 2.2e9 * faster};
    asked.profile.reduction_bytes_per_s = 4e9 * faster;
    EXPECT_LE(steady_period(asked.question()), before);
  }
}

}  // namespace
}  // namespace ddpsim::predict::gloo_cuda
