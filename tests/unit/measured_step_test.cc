// Computation scaled to what one device measured.
#include "sim/predict/measured_step.h"

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "tests/support/support.h"

namespace ddpsim::predict {
namespace {

Duration one_rank(const Workload& w, const Profile& p, int micro_steps = 1,
                  Level level = Level::Mid) {
  return one_rank_step(step_times(w, p, level), micro_steps);
}

Workload measured(const Workload& w, const Profile& p, Duration step, int micro_steps = 1) {
  return scaled_to(step, {w, micro_steps}, {w, micro_steps}, p);
}

// Described (on the device, and where its host is the slower), captured with a host and without.
struct Case {
  Workload workload;
  Profile profile;
};
std::vector<Case> cases() {
  Workload captured = test::workload("resnet50-cpu");
  return {{test::workload("resnet50"), test::profile("h100-sxm.datasheet")},
          {test::workload("mlp784-50-10"), test::profile("h100-sxm.datasheet")},
          {test::workload("bert-base"), test::profile("h100-sxm-measured")},
          {captured, test::profile(test::cluster("ethernet-10g").profile)}};
}

TEST(MeasuredStep, IsThePredictedStepOfOneRankAtEveryLevel) {
  for (const Case& c : cases())
    for (int micro_steps : {1, 4})
      for (double factor : {0.3, 1.31, 7.0}) {
        Duration step = scale(one_rank(c.workload, c.profile, micro_steps), factor);
        Workload w = measured(c.workload, c.profile, step, micro_steps);
        for (Level level : {Level::Low, Level::Mid, Level::High})
          EXPECT_NEAR(static_cast<double>(one_rank(w, c.profile, micro_steps, level).ps),
                      static_cast<double>(step.ps), 1e-6 * static_cast<double>(step.ps))
              << c.workload.name << " x" << factor;
        EXPECT_NEAR(w.measured_step->factor, factor, 1e-6);
        EXPECT_FALSE(w.measured_step->carried);
      }
}

TEST(MeasuredStep, ThatIsThePredictionMovesNothing) {
  for (const Case& c : cases()) {
    StepTimes plain = step_times(c.workload, c.profile, Level::Mid);
    StepTimes same = step_times(measured(c.workload, c.profile, one_rank(c.workload, c.profile)),
                                c.profile, Level::Mid);
    EXPECT_EQ(same.forward, plain.forward);
    EXPECT_EQ(same.ready, plain.ready);
    EXPECT_EQ(same.optimizer, plain.optimizer);
    EXPECT_EQ(same.core, plain.core);
    ASSERT_EQ(same.host.has_value(), plain.host.has_value());
    if (plain.host) {
      EXPECT_EQ(same.host->ready, plain.host->ready);
    }
  }
}

TEST(MeasuredStep, OfTwiceTheTimeTakesTwiceWhereNothingElseCosts) {
  Workload w = test::layered(8, 1 << 20, kMillisecond, kMillisecond * 2);
  Profile p = test::ideal_profile({});
  topology::Fabric fabric(test::star(4, {INT64_C(1'000'000'000'000'000)}));
  Scenario s;
  s.ranks = 4;
  Duration plain = steady_period({w, fabric, p, s});
  Workload twice = measured(w, p, one_rank(w, p) * 2);
  EXPECT_NEAR(static_cast<double>(steady_period({twice, fabric, p, s}).ps),
              2 * static_cast<double>(plain.ps), 1e-4 * static_cast<double>(plain.ps));
  Prediction told = predict({twice, fabric, p, s});
  EXPECT_EQ(told.single_rank_step, twice.measured_step->measured);
}

TEST(MeasuredStep, LeavesTheIntervalToWhatIsNotComputation) {
  Workload w = test::workload("resnet50");
  Profile p = test::profile("h100-sxm.datasheet");
  topology::Fabric fabric(test::cluster("hgx-h100"));
  Scenario s;
  s.ranks = 8;
  s.stragglers = false;  // which no step of one GPU says
  Prediction before = predict({w, fabric, p, s});
  Workload own = measured(w, p, before.single_rank_step);
  Prediction after = predict({own, fabric, p, s});
  EXPECT_EQ(after.summary.step, before.summary.step);
  // What several GPUs add was off less than what one takes, in published steps.
  EXPECT_LT((after.step_high - after.step_low).ps * 3, (before.step_high - before.step_low).ps * 2);
  EXPECT_LT(after.step_low, after.step_high);
}

TEST(MeasuredStep, OfOneBatchScalesAnother) {
  Workload w = test::workload("resnet50");
  Profile p = test::profile("h100-sxm.datasheet");
  Workload smaller = w;
  smaller.batch = w.batch / 2;
  Workload out = scaled_to(one_rank(w, p) * 2, {w, 1}, {smaller, 1}, p);
  EXPECT_EQ(out.batch, smaller.batch);
  EXPECT_DOUBLE_EQ(out.measured_step->factor, 2);
  EXPECT_TRUE(out.measured_step->carried);
  EXPECT_NEAR(static_cast<double>(one_rank(out, p).ps),
              2 * static_cast<double>(one_rank(smaller, p).ps), 1000);
}

TEST(MeasuredStep, IsNamedAndDoubtedBeyondAFactorOfFour) {
  MeasuredStep m{kMillisecond * 97, kMillisecond * 74, 97.0 / 74, DeviceKind::Gpu, false};
  EXPECT_EQ(sentence(m), "computation x1.31: measured 97 ms on one GPU, predicted 74 ms");
  for (double factor : {0.25, 1.0, 4.0}) {
    m.factor = factor;
    EXPECT_EQ(doubt(m), "");
  }
  for (double factor : {0.24, 4.1}) {
    m.factor = factor;
    EXPECT_NE(doubt(m).find("batch"), std::string::npos);
  }
}

}  // namespace
}  // namespace ddpsim::predict
