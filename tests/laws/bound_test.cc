// No bucketing's simulated step is shorter than the lower bound.
#include "sim/tune/bound.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "sim/systems/ddp/plan.h"
#include "sim/tune/tune.h"
#include "tests/laws/random_job.h"

namespace ddpsim::test {
namespace {

// The nearest that a simulated step comes to the bound, over it.
double nearest(std::uint64_t seed, predict::Fidelity fidelity) {
  RandomJob j = random_job(seed);
  topology::Fabric fabric(j.cluster);
  predict::Options options;
  options.fidelity = fidelity;
  predict::Question q{j.workload, fabric, j.profile, j.scenario};
  if (auto p = predict::check(q)) throw std::runtime_error(p.message);
  Duration bound = predict::lower_bound(q, options)->step;
  Random rng(seed ^ 0xb0);
  double least = 1e9;
  for (int k = 0; k < 6; ++k) {
    Scenario s = j.scenario;
    ddp_of(s.plan).bucket_cap_mb.reset();
    if (k < 3) {
      ddp_of(s.plan).bucket_cap_mb = 0.1 + 8 * rng.uniform() * rng.uniform();
    } else {
      for (int b = 1 + rng.below(6); b > 0; --b)
        ddp_of(s.plan).bucket_cap_mb_list.push_back(0.05 + 8 * rng.uniform());
    }
    Duration step = predict::steady_period({j.workload, fabric, j.profile, s}, Level::Mid, options);
    if (step < bound)
      throw std::runtime_error("seed " + std::to_string(seed) + ": step " + to_string(step) +
                               " below the bound " + to_string(bound));
    least = std::min(least, static_cast<double>(step.ps) / static_cast<double>(bound.ps));
  }
  return least;
}

TEST(LowerBound, IsNeverAboveASimulatedStepAndOftenNear) {
  std::vector<double> ratio;
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    ratio.push_back(nearest(seed, predict::Fidelity::Collective));
  std::sort(ratio.begin(), ratio.end());
  EXPECT_LT(ratio.front(), 1.001) << "a bound that is a little too high would not be noticed";
  EXPECT_LT(ratio[ratio.size() / 2], 1.1) << "a bound that is far from every step bounds nothing";
  RecordProperty("median", std::to_string(ratio[ratio.size() / 2]));
}

TEST(LowerBound, HoldsMessageByMessage) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed)
    EXPECT_GE(nearest(seed, predict::Fidelity::Message), 1);
}

// NCCL's choices and prices, described models, hosts that launch.
TEST(LowerBound, HoldsOnShippedClusters) {
  for (const char* w : {"resnet50", "vgg16", "gpt2-small", "mlp784-50-10"})
    for (const char* c : {"hgx-h100", "gpu-ethernet-25g", "dgx1-v100", "gcp-a3mega"})
      for (int hosts : {1, 4}) {
        Cluster on = cluster(c);
        on.hosts = on.pattern == Pattern::Star ? hosts : on.hosts;
        topology::Fabric fabric(on);
        Workload job = workload(w);
        Profile p = profile(on.profile);
        Scenario s;
        s.ranks = on.devices();
        if (s.ranks < 2) continue;
        predict::Communicators known;
        predict::TuneOptions options;
        options.options.known = &known;
        options.knob = systems::knobs(s.plan).front();
        options.simulations = 24;
        options.levers = false;
        predict::Question q{job, fabric, p, s};
        if (auto problem = predict::check(q))
          throw std::runtime_error(std::string(w) + " on " + c + ": " + problem.message);
        predict::Tuning t = predict::tune(q, options);
        for (const predict::CurvePoint& point : t.curve)
          EXPECT_GE(point.step, t.bound->step) << w << " on " << c << " at " << point.value->text;
        EXPECT_GE(t.partition->step, t.bound->step) << w << " on " << c;
      }
}

}  // namespace
}  // namespace ddpsim::test
