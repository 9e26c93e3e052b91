// tune of plans that shard: against every combination of settings, and under a limit of memory.
#include "sim/tune/tune_sharded.h"

#include <gtest/gtest.h>

#include "sim/systems/base/settings.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/zero/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

using predict::ShardedTuning;
using predict::TriedPlan;

struct Sharded {
  Workload workload;
  Profile profile;
  topology::Fabric fabric;
  Scenario scenario;
  Sharded(const char* model, const char* on, const char* of, int hosts, const Plan& plan)
      : workload(test::workload(model)), profile(test::profile(of)), fabric(made(on, hosts)) {
    scenario.ranks = fabric.devices();
    scenario.plan = plan;
  }
  static Cluster made(const char* on, int hosts) {
    Cluster c = cluster(on);
    c.hosts = hosts;
    return c;
  }
  predict::Question question() const { return {workload, fabric, profile, scenario}; }
  std::vector<systems::Decision> decisions() const {
    return systems::decisions(scenario.plan,
                              {workload, scenario.ranks, fabric.cluster().devices_per_host});
  }
  ShardedTuning tune() const { return predict::tune_sharded(question(), {{}, decisions(), true}); }
};
Plan of(System system) {
  Plan p;
  p.system = system;
  return p;
}

// Both answers have the same words for the same plan.
TEST(TuneSharded, SaysOfEachPlanWhatPredictSays) {
  for (System system : {systems::kFsdpSystem, systems::kFsdp2System, systems::kZeroSystem}) {
    Sharded j("gpt2-small", "hgx-h100", "h100-sxm.datasheet", 2, of(system));
    if (system == systems::kZeroSystem) zero_of(j.scenario.plan).stage = 3;
    const ShardedTuning t = j.tune();
    for (std::size_t k = 0; k < t.tried.size(); k += 7) {
      Scenario s = j.scenario;
      s.plan = t.tried[k].plan;
      const predict::Prediction p = predict::predict({j.workload, j.fabric, j.profile, s});
      EXPECT_EQ(p.summary.step, t.tried[k].step) << systems::settings_text(s.plan);
      EXPECT_EQ(p.summary.exposed_communication, t.tried[k].exposed);
      ASSERT_TRUE(p.memory);
      EXPECT_EQ(p.memory->device, t.tried[k].device) << systems::settings_text(s.plan);
      EXPECT_EQ(p.memory->fits(), t.tried[k].fits);
    }
  }
}

// Coordinate descent beside the whole grid of its settings: how much it leaves.
TEST(TuneSharded, DescentLeavesNoMoreThanATenthOfAPercentOfTheGrid) {
  struct Case {
    const char* cluster;
    const char* profile;
    int hosts;
    double limit_gib;  // 0 = what the device has
  };
  for (const Case& c : {Case{"gpu-ethernet-25g", "a100-sxm4-80gb.datasheet", 8, 0},
                        Case{"gpu-ethernet-100g", "a100-sxm4-80gb.datasheet", 8, 24.8},
                        Case{"hgx-h100", "h100-sxm.datasheet", 2, 25.35}})
    for (System system : {systems::kFsdpSystem, systems::kFsdp2System}) {
      Sharded j("gpt2-small", c.cluster, c.profile, c.hosts, of(system));
      if (c.limit_gib > 0)
        j.profile.memory.capacity = {static_cast<std::int64_t>(c.limit_gib * 1024 * 1024 * 1024)};
      predict::ShardedOptions options{{}, j.decisions(), false};
      for (systems::Decision& d : options.decisions)
        if (d.settings.size() > 4) d.settings.resize(4);
      const ShardedTuning t = predict::tune_sharded(j.question(), options);
      std::optional<Duration> least;
      predict::Communicators known;
      predict::Options o;
      o.known = &known;
      o.interval = o.names = false;
      std::vector<Plan> grid{j.scenario.plan};
      for (const systems::Decision& d : options.decisions) {
        std::vector<Plan> next;
        for (const Plan& p : grid)
          for (const systems::Setting& s : d.settings) {
            next.push_back(p);
            s.make(next.back());
          }
        grid = std::move(next);
      }
      for (const Plan& plan : grid) {
        Scenario s = j.scenario;
        s.plan = plan;
        const predict::Question q{j.workload, j.fabric, j.profile, s};
        if (check(q, &known)) continue;
        const predict::Prediction p = predict::predict(q, o);
        if (p.memory->fits() && (!least || p.summary.step < *least)) least = p.summary.step;
      }
      const std::string where = std::string(c.cluster) + ", " + name_of(system);
      ASSERT_EQ(t.best.has_value(), least.has_value()) << where;
      if (!least) continue;
      const Duration found = t.tried[*t.best].step;
      // A tenth of a percent that a move must gain, and as much for settings that go back.
      EXPECT_LE(static_cast<double>(found.ps), 1.002 * static_cast<double>(least->ps)) << where;
      EXPECT_LT(t.tried.size(), grid.size() / 2) << where;
    }
}

TEST(TuneSharded, AMemoryLimitChangesWhatIsRecommended) {
  Sharded j("llama-3.2-1b", "gpu-ethernet-100g", "a100-sxm4-80gb.datasheet", 8,
            of(systems::kFsdp2System));
  const ShardedTuning free = j.tune();
  ASSERT_TRUE(free.recommended);
  const TriedPlan& most = free.tried[*free.recommended];
  // Just below what the free answer takes: something else, or nothing.
  j.profile.memory.capacity = {most.device - 1};
  const ShardedTuning tight = j.tune();
  EXPECT_NE(systems::settings_text(tight.tried[tight.recommended.value_or(tight.current)].plan),
            systems::settings_text(most.plan));
  bool left_out = false;
  for (const TriedPlan& p : tight.tried) {
    EXPECT_EQ(p.fits, p.device <= most.device - 1);
    left_out = left_out || !p.fits;
  }
  EXPECT_TRUE(left_out);
  ASSERT_TRUE(tight.recommended);
  EXPECT_TRUE(tight.tried[*tight.recommended].fits);
  EXPECT_GE(tight.tried[*tight.best].step, free.tried[*free.best].step);
  for (const TriedPlan& p : tight.tried)
    if (p.fits) {
      EXPECT_GE(p.step.ps, tight.tried[*tight.best].step.ps * 998 / 1000);
    }
}

TEST(TuneSharded, NothingThatDoesNotFitIsRecommended) {
  for (double gib : {10.0, 40.0, 75.5, 76.0, 77.0, 78.5}) {
    Sharded j("llama-3.2-1b", "hgx-h100", "h100-sxm.datasheet", 2, of(systems::kFsdp2System));
    j.profile.memory.capacity = {static_cast<std::int64_t>(gib * 1024 * 1024 * 1024)};
    const ShardedTuning t = j.tune();
    for (const auto& k : {t.recommended, t.best, t.leanest}) {
      if (k) {
        EXPECT_TRUE(t.tried[*k].fits) << gib;
        EXPECT_LE(t.tried[*k].device, t.capacity) << gib;
      }
    }
    bool any = false;
    for (const TriedPlan& p : t.tried) any = any || p.fits;
    EXPECT_EQ(t.best.has_value(), any) << gib;
    EXPECT_EQ(t.recommended.has_value(), any) << gib;
    EXPECT_EQ(t.lines.empty(), !any) << gib;
    if (!any) {
      EXPECT_EQ(t.verdict.rfind("no setting fits", 0), 0u) << t.verdict;
    }
  }
}

// Where it does not fit as it is, what makes it fit is recommended though the step is longer.
TEST(TuneSharded, WhatMakesItFitIsRecommended) {
  Sharded j("llama-3.2-1b", "gpu-ethernet-100g", "a100-sxm4-80gb.datasheet", 8,
            of(systems::kFsdp2System));
  fsdp_of(j.scenario.plan).reshard_after_forward.ranks = 0;
  j.profile.memory.capacity = {std::int64_t{78} << 30};
  const ShardedTuning t = j.tune();
  const TriedPlan& now = t.tried[t.current];
  EXPECT_FALSE(now.fits);
  ASSERT_TRUE(t.recommended);
  EXPECT_TRUE(t.tried[*t.recommended].fits);
  EXPECT_GT(t.tried[*t.recommended].step, now.step);
  EXPECT_NE(t.verdict.find("makes it fit"), std::string::npos) << t.verdict;
}

TEST(TuneSharded, IsTheSameEachTime) {
  Sharded j("gpt2-small", "gpu-ethernet-25g", "a100-sxm4-80gb.datasheet", 8,
            of(systems::kZeroSystem));
  zero_of(j.scenario.plan).stage = 3;
  const ShardedTuning a = j.tune();
  const ShardedTuning b = j.tune();
  ASSERT_EQ(a.tried.size(), b.tried.size());
  for (std::size_t k = 0; k < a.tried.size(); ++k) EXPECT_EQ(a.tried[k].step, b.tried[k].step);
  EXPECT_EQ(a.verdict, b.verdict);
}

// Decisions that change nothing measurable stay as they were.
TEST(TuneSharded, WhatMakesNoDifferenceStaysAsItIs) {
  Sharded j("gpt2-small", "gpu-ethernet-25g", "a100-sxm4-80gb.datasheet", 8,
            of(systems::kFsdp2System));
  fsdp_of(j.scenario.plan).backward_prefetch_units = 2;
  const ShardedTuning t = j.tune();
  ASSERT_TRUE(t.best);
  const TriedPlan& best = t.tried[*t.best];
  for (std::size_t d = 0; d < t.decisions.size(); ++d) {
    const std::string was = t.tried[t.current].settings[d];
    if (best.settings[d] == was) continue;
    for (const systems::Setting& s : t.decisions[d].settings) {
      if (s.text != was) continue;
      Scenario back = j.scenario;
      back.plan = best.plan;
      s.make(back.plan);
      const Duration step = predict::steady_period({j.workload, j.fabric, j.profile, back});
      EXPECT_GT(step, best.step) << t.decisions[d].name;
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
