// RING and DP: two problems with exact answers that every simulator of this field is measured on.
//   RING: all-reduce of 1e8 bytes at 100 Gb/s, 1 us per step: 2(n-1)/n S/B + 2(n-1) alpha.
//   DP: 50 layers, forward 1 ms and backward 2 ms each, 12.5 MB of gradients a layer, 25 buckets of
//     25 MB, one at a time, overlapped with backward:
//       50 ms + 4 ms + 25 rings.
#include <gtest/gtest.h>

#include "sim/systems/ddp/plan.h"
#include "tests/laws/contended.h"

namespace ddpsim::test {
namespace {

constexpr Bandwidth kLink{100'000'000'000};

Contended ring(int n) {
  Contended s;
  s.profile = ideal_profile(kMicrosecond);
  s.cluster = star(n, kLink);
  Job job;
  job.devices = first_devices(n);
  job.collectives.push_back(
      {Bytes{100'000'000}, std::vector<Duration>(static_cast<std::size_t>(n)), true});
  s.jobs.push_back(job);
  return s;
}

TEST(Ring, HasItsClosedFormAtBothFidelities) {
  const std::pair<int, double> cases[] = {
      {8, 14.014}, {64, 15.876}, {256, 16.4475}, {1024, 18.030375}};
  for (auto [n, ms] : cases) {
    EXPECT_NEAR(static_cast<double>(simulate(ring(n), false).end[0].ps), ms * 1e9, 10) << n;
    if (n <= 256) {
      EXPECT_NEAR(static_cast<double>(simulate(ring(n), true).end[0].ps), ms * 1e9, 10.0 * n) << n;
    }
  }
}

double dp_period_ms(int n, predict::Fidelity fidelity) {
  Workload w = layered(50, 12'500'000, kMillisecond, kMillisecond * 2);
  Cluster c = star(n, kLink);
  Profile p = ideal_profile(kMicrosecond);
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = n;
  ddp_of(s.plan).bucket_cap_mb = 25e6 / (1024 * 1024);
  predict::Question q{w, fabric, p, s};
  return static_cast<double>(predict::steady_period(q, Level::Mid, {fidelity, true}).ps) / 1e9;
}

TEST(DataParallel, HasItsPipelineClosedFormAtBothFidelities) {
  EXPECT_NEAR(dp_period_ms(64, predict::Fidelity::Collective), 155.5875, 1e-4);
  EXPECT_NEAR(dp_period_ms(256, predict::Fidelity::Collective), 166.359375, 1e-4);
  EXPECT_NEAR(dp_period_ms(64, predict::Fidelity::Message), 155.5875, 1e-3);
}

// Loads that one ring puts on each link: 2(n-1)/n S per edge, whatever the number of hosts and
// NICs.
TEST(Ring, ConservesBytesOnEveryLink) {
  for (int hosts : {1, 2, 3, 8}) {
    Cluster c = star(hosts, kLink);
    c.devices_per_host = 8;
    c.nics_per_host = 8;
    c.intra = c.link;
    topology::Fabric fabric(c);
    std::vector<DeviceId> devices = first_devices(8 * hosts);
    auto comm = collective::make_communicator(fabric, devices, Backend::Nccl);
    double intra = 0;
    double nic = 0;
    for (const auto& l : comm.pattern(Operation::AllReduce).load)
      (l.link < 2u * static_cast<unsigned>(c.devices()) ? intra : nic) += l.per_byte;
    // Every rank has one outgoing edge per ring; one edge per host leaves it (if there are
    // several).
    double leaving = hosts > 1 ? hosts : 0;
    EXPECT_NEAR(intra, 2 * (8 * hosts - leaving), 1e-9) << hosts;
    EXPECT_NEAR(nic, 2 * leaving, 1e-9) << hosts;
    for (const auto& l : comm.pattern(Operation::AllReduce).load) {
      if (l.link < 2u * static_cast<unsigned>(c.devices())) continue;
      EXPECT_NEAR(l.per_byte, 1.0 / 8, 1e-12) << fabric.link_name(l.link);
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
