// Local SGD and DiLoCo: what is sent in a round, memory, and what a longer round gains.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/predict/predict.h"
#include "sim/predict/roofline.h"
#include "sim/strategy/lower.h"
#include "tests/support/support.h"

namespace ddpsim::strategy {
namespace {

Plan round_of(int steps, OuterOptimizer outer) {
  Plan p;
  p.system = System::LocalSgd;
  p.accumulation_steps = steps;
  p.outer_optimizer = outer;
  return p;
}

struct ListedRound {
  Workload w;
  StepTimes times;
  Program program;
  ListedRound(const std::string& name, const Plan& plan)
      : w(test::workload(name)),
        times(predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid)),
        program(lower({w, times, DeviceKind::Gpu, 8}, plan)) {}
  int count(OpKind of) const {
    int n = 0;
    for (const Op& op : program.steady.ops) n += op.kind == of;
    return n;
  }
};

TEST(LocalSgd, ARoundSendsEveryParameterOnceAndUpdatesInEachStep) {
  for (OuterOptimizer outer : {OuterOptimizer::None, OuterOptimizer::Nesterov})
    for (int steps : {1, 4, 30}) {
      ListedRound l("resnet50", round_of(steps, outer));
      std::int64_t sent = 0;
      int collectives = 0;
      for (const Op& op : l.program.steady.ops)
        if (is_collective(op.kind)) sent += op.bytes, ++collectives;
      EXPECT_EQ(sent, l.w.gradient_bytes().count);
      EXPECT_EQ(collectives,
                outer == OuterOptimizer::None ? 1 : static_cast<int>(l.w.tensors.size()));
      EXPECT_EQ(l.count(test::kind_of_op("inner_optimizer")), steps);
    }
}

TEST(LocalSgd, MemoryComesAndGoesInEachRound) {
  for (OuterOptimizer outer : {OuterOptimizer::None, OuterOptimizer::Nesterov})
    for (bool sets_to_none : {false, true}) {
      Plan plan = round_of(3, outer);
      plan.set_to_none = sets_to_none;
      ListedRound l("resnet50", plan);
      Held sum{};
      for (const MemoryChange& c : l.program.steady.memory) of(sum, c.holds) += c.bytes;
      for (std::size_t k = 0; k < kHolds; ++k)
        EXPECT_EQ(sum[k], 0) << name_of(static_cast<Holds>(k)) << sets_to_none;
    }
}

// The longer a round, the nearer a step comes to what one GPU takes by itself; a round of one is
// dearer than DDP, which overlaps.
TEST(LocalSgd, LongerRoundsSendLess) {
  const Cluster cluster = test::cluster("gpu-ethernet-10g");
  const Profile profile = test::profile(cluster.profile);
  const topology::Fabric fabric(cluster);
  const Workload w = test::workload("resnet50");
  const auto samples = [&](const Plan& plan) {
    Scenario s;
    s.ranks = 8;
    s.plan = plan;
    return predict::predict({w, fabric, profile, s});
  };
  double before = 0;
  for (int steps : {1, 2, 8, 64}) {
    const predict::Prediction p = samples(round_of(steps, OuterOptimizer::None));
    EXPECT_GT(p.samples_per_s, before) << steps;
    before = p.samples_per_s;
  }
  EXPECT_LT(samples(round_of(1, OuterOptimizer::None)).samples_per_s,
            samples(Plan{}).samples_per_s);
  const predict::Prediction p = samples(round_of(64, OuterOptimizer::None));
  EXPECT_GT(static_cast<double>(p.single_rank_step.ps) / static_cast<double>(p.summary.step.ps),
            0.8);
  EXPECT_LE(p.single_rank_step.ps, p.summary.step.ps);
}

}  // namespace
}  // namespace ddpsim::strategy
