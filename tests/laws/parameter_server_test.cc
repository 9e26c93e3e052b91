// Laws of parameter servers: they saturate at their links, a bound of staleness holds, and what is
// sent is conserved.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "sim/predict/link_use.h"
#include "sim/predict/predict.h"
#include "sim/systems/parameter_server/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

struct Served {
  Workload w;
  topology::Fabric fabric;
  Profile profile;
  Scenario scenario;
  Served(int workers, int servers, bool synchronous, std::int64_t bytes = 12'500'000)
      : w(layered(4, bytes, kMillisecond * 20, kMillisecond * 10)),
        fabric(star(workers + servers, {10'000'000'000})),
        profile(ideal_profile({})) {
    scenario.ranks = workers;
    scenario.plan.system = systems::kParameterServerSystem;
    parameter_server_of(scenario.plan).servers = servers;
    parameter_server_of(scenario.plan).synchronous = synchronous;
    parameter_server_of(scenario.plan).own_hosts = true;
  }
  predict::Question question() const { return {w, fabric, profile, scenario}; }
  predict::Prediction answer(predict::Fidelity f = predict::Fidelity::Collective) const {
    predict::Options options;
    options.fidelity = f;
    return predict::predict(question(), options);
  }
  double step() const { return static_cast<double>(answer().summary.step.ps); }
  // Of a worker's M bytes, those of the fullest server, over its link.
  double message() const {
    return 4.0 / static_cast<double>(parameter_server_of(scenario.plan).servers) * 10e9;
  }
};

// Of the same servers: more workers make steps longer, in the end by what each of them sends; all
// together they never do more than the servers' links carry. Of workers at their own pace some
// gather, and pull together while nobody pushes: between one direction at a time and both.
TEST(ParameterServerLaw, ServersSaturateAtTheirLinks) {
  for (int servers : {1, 2})
    for (bool synchronous : {true, false}) {
      double before = 0;
      double rate_before = 0;
      for (int workers : {1, 2, 4, 8, 16}) {
        const Served job(workers, servers, synchronous);
        const double step = job.step();
        const double rate = workers / step;
        EXPECT_GE(step, before * 0.999) << servers << " " << workers;
        EXPECT_GE(rate, rate_before * (synchronous ? 0.999 : 0.9)) << servers << " " << workers;
        EXPECT_LE(rate, 1.001 / job.message()) << "pushes and pulls go by different directions";
        // One after the other, and the last variable when there is nothing else to send.
        EXPECT_GE(rate, 0.999 / (2 * job.message() + 10e9 + 120e9 / workers));
        if (synchronous) {
          EXPECT_GE(step, 2 * workers * job.message() * 0.999) << "all pull first, and push then";
        }
        before = step;
        rate_before = rate;
      }
      const Served eight(8, servers, synchronous);
      const Served sixteen(16, servers, synchronous);
      const double more = (sixteen.step() - eight.step()) / 8 / eight.message();
      EXPECT_GE(more, synchronous ? 1.99 : 0.94)
          << "saturated: a worker more is what it sends more";
      EXPECT_LE(more, synchronous ? 2.01 : 2.01);
      EXPECT_GT(sixteen.answer().busiest_link.busy, synchronous ? 0.4 : 0.7);
    }
}

// As many servers as workers, each variable in as many parts: the step is what it was.
TEST(ParameterServerLaw, ServersThatGrowWithTheWorkersKeepTheStep) {
  const auto step = [](int n) {
    Served job(n, n, true);
    parameter_server_of(job.scenario.plan).variable_partitioner = VariablePartitioner::FixedShards;
    return job.step();
  };
  for (int n : {2, 4}) EXPECT_NEAR(step(n) / step(1), 1, 0.001) << n;
}

TEST(ParameterServerLaw, LinksCarryEachGradientAndEachWeightOnce) {
  for (int workers : {2, 5}) {
    const Served job(workers, 2, true);
    const predict::Prediction p = job.answer();
    double bytes = 0;
    for (const auto& use : predict::link_use(job.question(), p.summary.step))
      bytes += use.busy * static_cast<double>(p.summary.step.ps) *
               job.fabric.links()[use.link].bandwidth.bytes_per_ps();
    // A worker's cable and a server's, there and back.
    EXPECT_NEAR(bytes, 2.0 * 2 * workers * 4 * 12'500'000, 1e3);
  }
}

TEST(ParameterServerLaw, BothFidelitiesAgree) {
  for (int workers : {1, 3, 8}) {
    const Served job(workers, 2, true);
    EXPECT_NEAR(
        static_cast<double>(job.answer(predict::Fidelity::Message).summary.step.ps) / job.step(), 1,
        0.01);
  }
}

// Little is sent: a worker's pace is its own, unless it is bound to the slowest.
TEST(ParameterServerLaw, ABoundOfStalenessTiesWorkersToTheSlowest) {
  Served job(4, 1, false, 4000);
  job.scenario.slow_ranks = {{2, 2.0}};
  const double own = 1e12 / 120e9;
  const auto free = job.answer();
  ASSERT_TRUE(free.paces);
  for (int r : {0, 1, 3})
    EXPECT_NEAR(free.paces->steps_per_s[static_cast<std::size_t>(r)], own, 0.01 * own);
  EXPECT_NEAR(free.paces->steps_per_s[2], own / 2, 0.01 * own);
  double most = 0;
  for (std::int64_t bound : {0, 1, 4}) {
    parameter_server_of(job.scenario.plan).staleness = bound;
    const auto tied = job.answer();
    ASSERT_TRUE(tied.paces);
    EXPECT_GT(tied.summary.step, free.summary.step);
    EXPECT_GE(tied.paces->steps_per_s[0], own / 2 * 0.99);
    // A worker misses what others can do between its pull and its own update: s + 1 steps each.
    EXPECT_LE(tied.paces->staleness_most, 3.0 * (2 * static_cast<double>(bound) + 2));
    EXPECT_GE(tied.paces->staleness_most, most);
    most = tied.paces->staleness_most;
    double all = 0;
    for (double share : tied.paces->staleness_share) all += share;
    EXPECT_NEAR(all, 1, 1e-9);
  }
  parameter_server_of(job.scenario.plan).staleness = 0;
  job.scenario.slow_ranks.clear();
  EXPECT_NEAR(job.answer().paces->steps_per_s[0], own, 0.02 * own);
}

// Equal workers at their own pace: each one's update misses one of every other.
TEST(ParameterServerLaw, EqualWorkersMissOneUpdateOfEachOther) {
  for (int workers : {1, 2, 4, 8}) {
    const auto answer = Served(workers, 1, false, 4000).answer();
    ASSERT_TRUE(answer.paces);
    EXPECT_NEAR(answer.paces->staleness_mean, workers - 1, 0.05);
  }
}

}  // namespace
}  // namespace ddpsim::test
