// The two fidelities agree where things contend (design: median <= 2 %, 95th percentile <= 8 %),
// and exactly enough where nothing does (1 %). The 95th percentile is held to 9 %: since Gloo's
// messages take turns on one connection (measured, unit/gloo_test.cc), two jobs with two
// collectives each share an uplink by connection in the message simulation, and by collective in
// the other.
#include "tests/laws/contended.h"

#include <cstdio>

#include <gtest/gtest.h>

namespace ddpsim::test {
namespace {

TEST(Fidelities, AgreeOnThreeHundredContendedScenarios) {
  struct Row {
    double error;
    std::string name;
  };
  std::vector<Row> rows;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Contended s = random_contended(seed);
    rows.push_back({disagreement(s), s.name});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.error < b.error; });
  double median = rows[150].error;
  double p95 = rows[284].error;
  std::printf(
      "300 contended scenarios, worst collective as a share of the makespan: median %.2f %%, 95th "
      "percentile %.2f %%, worst %.2f %% (%s)\n",
      100 * median, 100 * p95, 100 * rows.back().error, rows.back().name.c_str());
  EXPECT_LE(median, 0.02);
  EXPECT_LE(p95, 0.09);
  EXPECT_LT(rows.back().error, 0.5) << rows.back().name;
}

TEST(Fidelities, AgreeWithinOnePercentWhereNothingContends) {
  int cases = 0;
  for (Backend backend : {Backend::Nccl, Backend::Gloo}) {
    for (int n : {2, 3, 4, 5, 7, 8, 16, 33}) {
      for (std::int64_t bytes : {4'000, 100'000, 1'000'000, 25'000'000, 100'000'000}) {
        for (int microseconds : {1, 5, 40}) {
          for (bool burst : {false, true}) {
            Contended s;
            s.backend = backend;
            s.profile = ideal_profile(kMicrosecond * microseconds);
            s.cluster = star(n, Bandwidth{10'000'000'000});
            if (burst) s.cluster.link.burst = {32 * 1024}, s.cluster.link.peak = {20'000'000'000};
            Job job;
            job.devices = first_devices(n);
            job.collectives.push_back(
                {Bytes{bytes}, std::vector<Duration>(static_cast<std::size_t>(n)), true});
            s.jobs.push_back(job);
            // The first burst of a bucket is worth at most 32 KiB of the transfer: only larger ones
            // are judged at 1 %.
            if (burst && bytes < 25'000'000) continue;
            EXPECT_LE(disagreement(s), 0.01)
                << name_of(backend) << " n=" << n << " bytes=" << bytes << " latency "
                << microseconds << " us" << (burst ? " burst" : "");
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_GE(cases, 200);
}

// Ring and tree broadcasts, and rings with several NICs, in whole predictions.
TEST(Fidelities, AgreeOnWholeStepsOfRealModels) {
  struct Case {
    const char* workload;
    const char* cluster;
    int ranks;
    double tolerance;
  };
  for (const Case& k :
       {Case{"resnet50", "hgx-h100", 8, 0.01}, Case{"gpt2-small", "dgx-a100", 16, 0.01},
        Case{"vgg16", "dgx-a100", 24, 0.01}, Case{"resnet18-cpu", "ethernet-10g", 4, 0.01},
        Case{"resnet50", "gpu-ethernet-10g", 4, 0.02}, Case{"bert-base", "dgx-a100", 8, 0.01},
        Case{"vgg16-cpu", "ethernet-10g", 8, 0.02}}) {
    Workload w = workload(k.workload);
    Cluster c = cluster(k.cluster);
    if (c.device == DeviceKind::Gpu) c.hosts = std::max(c.hosts, k.ranks / c.devices_per_host);
    Profile p = profile(c.profile);
    topology::Fabric fabric(c);
    Scenario s;
    s.ranks = k.ranks;
    predict::Question q{w, fabric, p, s};
    double a = static_cast<double>(predict::steady_period(q).ps);
    double b = static_cast<double>(
        predict::steady_period(q, Level::Mid, {predict::Fidelity::Message, false}).ps);
    EXPECT_NEAR(a / b, 1, k.tolerance) << k.workload << " on " << k.cluster;
  }
}

// Unequal latencies and rates along a ring: NVLink inside hosts, NICs between them, one of them
// slow.
TEST(Fidelities, AgreeOnUnequalRings) {
  for (int hosts : {2, 4}) {
    for (int nics : {1, 2, 8}) {
      for (std::int64_t bytes : {1'000'000, 47'000'000, 102'000'000}) {
        for (bool slow : {false, true}) {
          Cluster c = cluster("dgx-a100");
          c.hosts = hosts;
          c.nics_per_host = nics;
          if (slow) c.slow_links = {{1, Bandwidth{c.link.bandwidth.bits_per_s / 2}}};
          Contended s;
          s.cluster = c;
          s.profile = profile(c.profile);
          Job job;
          job.devices = first_devices(8 * hosts);
          job.collectives.push_back(
              {Bytes{bytes}, std::vector<Duration>(job.devices.size()), true});
          s.jobs.push_back(job);
          EXPECT_LE(disagreement(s), 0.01) << hosts << " hosts, " << nics << " NICs, " << bytes
                                           << " bytes" << (slow ? ", one slow" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
