// A step by collectives beside the same step message by message, on random clusters of sockets.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/predict/predict.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

struct Case {
  Cluster cluster;
  Scenario scenario;
  bool ring = false;
  std::string what;
};

Case random_case(Random& rng) {
  Case c;
  Cluster& k = c.cluster;
  k = test::cluster("gpu-ethernet-100g");
  k.hosts = 2 + rng.below(3);
  k.devices_per_host = 1 << rng.below(4);
  k.nics_per_host = 1 << rng.below(3);
  while (k.devices_per_host % k.nics_per_host != 0) k.nics_per_host /= 2;
  k.link.bandwidth.bits_per_s = (10 + rng.below(190)) * std::int64_t{1'000'000'000};
  k.link.latency = Duration{(500 + rng.below(5000)) * std::int64_t{1000}};
  k.intra = LinkSpec{};
  k.inside.reset();
  k.intra->bandwidth.bits_per_s = (400 + rng.below(3200)) * std::int64_t{1'000'000'000};
  k.intra->latency = Duration{100'000};
  k.intra->transport = "nvlink";
  k.nccl.nic_vendor =
      std::vector{NicVendor::Other, NicVendor::Aws, NicVendor::Google}[rng.below(3)];
  Scenario& s = c.scenario;
  s.ranks = k.devices();
  ddp_of(s.plan).bucket_cap_mb = std::vector{5, 25, 100}[rng.below(3)];
  if (rng.below(4) == 0) s.plan.accumulation_steps = 2;
  const char* algorithm = std::vector{"ring", "tree", ""}[rng.below(3)];
  c.ring = algorithm == std::string("ring");
  if (*algorithm) s.plan.environment["NCCL_ALGO"] = std::string("allreduce:") + algorithm;
  if (rng.below(3) == 0)
    s.plan.environment["NCCL_SOCKET_NTHREADS"] = std::to_string(1 + rng.below(4));
  c.what =
      fmt::format("{} x {} GPUs, {} NICs of {} Gb/s, {}, cap {}, {}", k.hosts, k.devices_per_host,
                  k.nics_per_host, k.link.bandwidth.bits_per_s / 1'000'000'000, algorithm,
                  *ddp_of(s.plan).bucket_cap_mb, static_cast<int>(k.nccl.nic_vendor));
  return c;
}

// Several NICs of a host are several in both, and a thread that copies is its rank's, or its
// connection's. On three hosts and more a rank is inside one tree and at the end of the other:
// pieces that its thread, or a link, passes twice delay one another, which the closed form has in
// part only (MODEL 7.3); there the messages take longer.
TEST(Fidelities, AgreeOverSocketsOfSeveralNics) {
  const int cases = std::getenv("DDPSIM_NIGHTLY") ? 400 : 60;
  const Workload w = test::workload("resnet18");
  Random rng(53);
  std::vector<double> off;
  for (int i = 0; i < cases; ++i) {
    const Case c = random_case(rng);
    const topology::Fabric fabric(c.cluster);
    const Profile p = test::profile("h100-sxm.datasheet");
    const predict::Question q{w, fabric, p, c.scenario};
    ASSERT_FALSE(predict::check(q)) << c.what << predict::check(q).message;
    predict::Options options;
    options.interval = options.names = options.warmup = false;
    const double by_collective = static_cast<double>(predict::predict(q, options).summary.step.ps);
    options.fidelity = predict::Fidelity::Message;
    const double by_message = static_cast<double>(predict::predict(q, options).summary.step.ps);
    off.push_back(std::abs(by_collective / by_message - 1));
    const bool delays = c.cluster.hosts > 2 && !c.ring;
    EXPECT_LT(by_collective / by_message, 1.02) << c.what;
    EXPECT_GT(by_collective / by_message, delays ? 0.8 : 0.98) << c.what;
  }
  std::sort(off.begin(), off.end());
  EXPECT_LT(off[off.size() / 2], 0.005);
  EXPECT_LT(off[off.size() * 95 / 100], 0.05);
}

}  // namespace
}  // namespace ddpsim::test
