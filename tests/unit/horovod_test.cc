// Horovod: what its cycles fuse, and what a prediction plays of it. The policy is held against an
// independent oracle and 1,377 recorded steps by tests/oracle/horovod_lowered.py; here are its
// closed forms.
#include "sim/systems/horovod/horovod.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/horovod/cycles.h"
#include "sim/systems/horovod/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Coordination of(std::vector<std::int64_t> bytes) {
  Coordination c;
  for (std::int64_t b : bytes) c.tensors.push_back({b, DType::Float32, kNoSubject});
  c.cycle = {1000};
  c.threshold = std::int64_t{1} << 27;
  c.cache = 1024;
  return c;
}
std::vector<TensorIndex> all(const Coordination& c) {
  std::vector<TensorIndex> out(c.tensors.size());
  for (std::size_t t = 0; t < out.size(); ++t) out[t] = static_cast<TensorIndex>(t);
  return out;
}
using Sets = std::vector<std::vector<TensorIndex>>;

// What `ranks` ranks decide that have all requested everything.
Sets decided(const Coordination& c, int ranks = 2, int local = 1) {
  Fusion f(c, ranks, local);
  f.remember(all(c));
  for (int r = 0; r < ranks; ++r)
    for (TensorIndex t : all(c)) f.request(r, t);
  bool last = false;
  for (int r = 0; r < ranks; ++r) last = f.begin_cycle(r);
  EXPECT_TRUE(last);
  return f.agree().fused;
}

TEST(HorovodFusion, EverythingThatIsReadyIsOneAllReduce) {
  EXPECT_EQ(decided(of({4, 8, 16})), (Sets{{0, 1, 2}}));
}

TEST(HorovodFusion, IsNeverAboveTheThreshold) {
  Coordination c = of({400, 400, 400, 2000, 100});
  c.threshold = 1024;  // 2 x 512: a multiple of 8 x 64 bytes already
  EXPECT_EQ(decided(c), (Sets{{0, 1}, {2}, {3}, {4}})) << "what is too large ends it";
  c.threshold = 0;
  EXPECT_EQ(decided(c).size(), 5u);
  c.threshold = 700;  // rounded up to 8 x 64 x local size
  EXPECT_EQ(decided(c, 2, 1).front(), (std::vector<TensorIndex>{0, 1}));
  EXPECT_EQ(decided(c, 4, 4).front(), (std::vector<TensorIndex>{0, 1, 2}));
}

TEST(HorovodFusion, PaddingCounts) {
  Coordination c = of({500, 500, 4});
  c.threshold = 1024;
  EXPECT_EQ(decided(c), (Sets{{0, 1, 2}}));
  c.padding = 16;
  EXPECT_EQ(decided(c), (Sets{{0, 1}, {2}}));
}

// The last tensor of a fusion is padded as the others are.
TEST(HorovodFusion, PaddingOfTheLastTensorCounts) {
  Coordination c = of({512, 509});
  c.padding = 16;
  c.threshold = 1024;
  EXPECT_EQ(decided(c), (Sets{{0, 1}}));
  c = of({512, 16, 497});  // 512 + 16 + 512
  c.padding = 16;
  c.threshold = 1024;
  EXPECT_EQ(decided(c), (Sets{{0, 1}, {2}}));
}

// 928 bytes and six times 16 fill the threshold; six times 9 would not.
TEST(HorovodFusion, PaddingAddsUp) {
  Coordination c = of({928, 9, 9, 9, 9, 9, 9, 9});
  c.padding = 16;
  c.threshold = 1024;
  EXPECT_EQ(decided(c), (Sets{{0, 1, 2, 3, 4, 5, 6}, {7}}));
}

TEST(HorovodFusion, TypesDoNotMix) {
  Coordination c = of({4, 8, 16});
  c.tensors[1].dtype = DType::Float16;
  EXPECT_EQ(decided(c), (Sets{{0, 2}, {1}}));
}

TEST(HorovodFusion, WaitsForTheLastRank) {
  Coordination c = of({4, 8});
  Fusion f(c, 2, 1);
  f.remember(all(c));
  f.request(0, 0);
  f.request(0, 1);
  f.request(1, 1);
  EXPECT_FALSE(f.begin_cycle(0));
  EXPECT_TRUE(f.begin_cycle(1));
  EXPECT_EQ(f.agree().fused, (Sets{{1}}));
  f.request(1, 0);
  f.begin_cycle(0);
  f.begin_cycle(1);
  EXPECT_EQ(f.agree().fused, (Sets{{0}}));
}

TEST(HorovodCycles, AreACycleApartWheneverSomebodyAsks) {
  Coordination c = of({4, 8});
  Cycles cycles(c, 1, 1, {}, {});
  cycles.fusion.remember(all(c));
  EXPECT_TRUE(cycles.request(0, 0, {3500}));
  EXPECT_EQ(cycles.next(0).ps, 4000);
  auto d = cycles.begin(0, {4000});
  ASSERT_TRUE(d);
  EXPECT_EQ(d->fused, (Sets{{0}}));
  cycles.done(0, {4200});
  EXPECT_EQ(cycles.next(0).ps, 5000);
  EXPECT_FALSE(cycles.request(0, 1, {4900})) << "the thread has a cycle before it";
  EXPECT_EQ(cycles.begin(0, {5000})->fused, (Sets{{1}}));
  cycles.done(0, {7300});
  EXPECT_EQ(cycles.next(0).ps, 7300) << "a long one is followed at once";
}

}  // namespace
}  // namespace ddpsim::systems

namespace ddpsim::predict {
namespace {

struct Asked {
  Workload workload;
  topology::Fabric fabric;
  Profile profile;
  Scenario scenario;
  Asked(const std::string& name, const std::string& cluster, int ranks)
      : workload(test::workload(name)),
        fabric(test::cluster(cluster)),
        profile(test::profile("h100-sxm.datasheet")) {
    scenario.ranks = ranks;
    scenario.plan.system = systems::kHorovodSystem;
  }
  Question question() const { return {workload, fabric, profile, scenario}; }
};

TEST(Horovod, ReducesEveryGradientOnce) {
  for (std::int64_t threshold : {std::int64_t{0}, std::int64_t{4} << 20, std::int64_t{128} << 20}) {
    for (int groups : {0, 7}) {
      Asked a("resnet50", "hgx-h100", 8);
      horovod_of(a.scenario.plan).fusion_threshold = threshold;
      horovod_of(a.scenario.plan).groups = groups;
      SteadyStep s = steady_step(a.question());
      std::vector<int> times(a.workload.tensors.size());
      for (const Bucket& b : s.program.steady.buckets)
        for (TensorIndex t : b.tensors) ++times[t];
      EXPECT_EQ(times, std::vector<int>(times.size(), 1));
      EXPECT_EQ(s.simulation.spans.size() % s.program.steady.ops.size(), 0u);
      if (threshold == 0) {
        EXPECT_EQ(s.program.steady.buckets.size(), times.size());
      }
    }
  }
}

// What is appended while it is played lies before the wait, and names what it waits for.
TEST(Horovod, WhatWasDecidedIsAProgram) {
  Asked a("gpt2-small", "dgx-h100", 8);
  SteadyStep s = steady_step(a.question());
  const StepProgram& step = s.program.steady;
  for (std::uint32_t i = 0; i < step.ops.size(); ++i) {
    for (std::uint32_t d : deps_of(step, i)) {
      EXPECT_LT(d, i) << name_of(s.program, step, i);
      EXPECT_LE(s.simulation.spans[d].end.ps, s.simulation.spans[i].begin.ps)
          << name_of(s.program, step, i);
    }
    if (is_launch(step.ops[i].kind)) {
      EXPECT_GT(step.ops[i].subject, i);
    }
  }
}

// A cycle longer than backward: one reduction of everything, after the last gradient.
TEST(Horovod, ALongCycleFusesAll) {
  Asked a("resnet50", "hgx-h100", 8);
  horovod_of(a.scenario.plan).cycle_time = 1000;
  SteadyStep s = steady_step(a.question());
  EXPECT_EQ(s.program.steady.buckets.size(), 1u);
  EXPECT_NEAR(static_cast<double>(s.period.ps), 1e12, 2e10) << "the cycle is the step";
}

TEST(Horovod, OneRankIsComputationAndItsHooks) {
  Asked a("resnet50", "hgx-h100", 1);
  Prediction p = predict(a.question());
  Duration launched = predict::step_times(a.workload, a.profile, Level::Mid).host->forward;
  EXPECT_LT(static_cast<double>((p.summary.step - p.single_rank_step - launched).ps), 2.5e9)
      << "at most the cycles that the end of the step waits for; then the host launches forward";
  EXPECT_GE(p.summary.step.ps, p.single_rank_step.ps);
}

TEST(Horovod, BothFidelitiesAgree) {
  for (const char* cluster : {"hgx-h100", "dgx-h100"}) {
    Asked a("resnet50", cluster, 8);
    horovod_of(a.scenario.plan).cycle_time = 0.25;
    Duration priced = steady_period(a.question());
    Options by_message;
    by_message.fidelity = Fidelity::Message;
    Duration simulated = steady_period(a.question(), Level::Mid, by_message);
    EXPECT_NEAR(static_cast<double>(priced.ps) / static_cast<double>(simulated.ps), 1, 0.01);
  }
}

TEST(Horovod, StepsWithJitterAndStepsThatBeginTogether) {
  Asked a("resnet50", "dgx-h100", 8);
  Duration plain = steady_period(a.question());
  Options together;
  together.common_start = true;
  Duration common = steady_period(a.question(), Level::Mid, together);
  EXPECT_GE(common, plain);
  EXPECT_LT(common.ps, plain.ps * 21 / 20) << "the host's first launches are seen, and no more";
  a.scenario.jitter = Jitter{0.05, 1, 12};
  Prediction p = predict(a.question());
  ASSERT_EQ(p.jitter_steps.size(), 12u);
  for (Duration d : p.jitter_steps) {
    EXPECT_GT(d.ps, plain.ps * 9 / 10);
    EXPECT_LT(d.ps, plain.ps * 13 / 10);
  }
}

TEST(Horovod, TheSameQuestionHasTheSameAnswer) {
  Asked a("bert-base", "dgx-h100", 8);
  EXPECT_EQ(steady_period(a.question()), steady_period(a.question()));
}

// On a CPU the thread does everything itself: what is ready meanwhile is fused next.
TEST(Horovod, OnACpuALongReductionGathersWhatFollows) {
  Workload w = test::workload("resnet18-cpu");
  topology::Fabric slow(test::cluster("testbed-torch"));
  Profile p = test::profile(slow.cluster().profile);
  Scenario s;
  s.ranks = 4;
  s.plan.system = systems::kHorovodSystem;
  SteadyStep step = steady_step({w, slow, p, s});
  std::size_t fused = step.program.steady.buckets.size();
  EXPECT_GT(fused, 0u);
  EXPECT_LT(fused, w.arrival.size());
  std::int64_t end = 0;
  for (std::uint32_t i = 0; i < step.program.steady.ops.size(); ++i) {
    if (step.program.steady.ops[i].lane != Lane::Worker) continue;
    EXPECT_GE(step.simulation.spans[i].begin.ps, end);
    end = step.simulation.spans[i].end.ps;
  }
}

}  // namespace
}  // namespace ddpsim::predict
