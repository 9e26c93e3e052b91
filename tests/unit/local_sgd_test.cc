// Local SGD and DiLoCo: what is sent in a round, memory, and what a longer round gains.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/local_sgd/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan round_of(int steps, OuterOptimizer outer) {
  Plan p;
  p.system = systems::kLocalSgdSystem;
  p.accumulation_steps = steps;
  local_sgd_of(p).outer_optimizer = outer;
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
      for (const MemoryChange& c : l.program.steady.memory) sum[c.holds] += c.bytes;
      for (Holds k : Held::names()) EXPECT_EQ(sum[k], 0) << name_of(k) << sets_to_none;
    }
}

Plan in_subgroups(int steps, std::int64_t size) {
  Plan p = round_of(steps, OuterOptimizer::None);
  local_sgd_of(p).subgroup_size = size;
  return p;
}

TEST(PostLocalSgd, ReducesEachBatchInItsSubgroupAndAveragesOverAll) {
  ListedRound l("resnet50", in_subgroups(3, 4));
  std::map<int, std::int64_t> sent;  // by group
  for (const Op& op : l.program.steady.ops)
    if (carries_tensors(op.kind)) sent[op.group] += op.bytes;
  const std::int64_t whole = l.w.gradient_bytes().count;
  EXPECT_EQ(sent, (std::map<int, std::int64_t>{{0, whole}, {1, 3 * whole}}));
  EXPECT_EQ(l.count(test::kind_of_op("inner_optimizer")), 3);
  ASSERT_EQ(l.program.warmup.size(), 2u);  // one bucket, then the rebuild: over all ranks
  for (const StepProgram& s : l.program.warmup)
    for (const Op& op : s.ops) EXPECT_EQ(op.group, 0) << name_of(s.kind);
}

TEST(PostLocalSgd, WithoutGradientsOnlyAveragesAndStillCopies) {
  Plan plan = in_subgroups(4, 4);
  local_sgd_of(plan).post_local_gradient_allreduce = false;
  ddp_of(plan).broadcast_buffers = false;
  ListedRound l("resnet50", plan);
  int collectives = 0;
  int copied = 0;
  for (const Op& op : l.program.steady.ops) {
    collectives += is_collective(op.kind);
    copied += copies_in(op.kind);
  }
  EXPECT_EQ(collectives, 1);
  EXPECT_EQ(copied, 4 * static_cast<int>(l.w.tensors.size()));
}

TEST(PostLocalSgd, AveragesWithTheLongestPeriodThatEnds) {
  Plan plan = round_of(8, OuterOptimizer::None);
  local_sgd_of(plan).averaging_periods = {2, 4, 8};
  local_sgd_of(plan).averaging_group_sizes = {2, 4, 8};
  ListedRound l("resnet50", plan);
  std::vector<std::pair<int, int>> averaged;  // batch, group
  for (const Op& op : l.program.steady.ops)
    if (is_collective(op.kind)) averaged.push_back({op.micro, op.group});
  EXPECT_EQ(averaged, (std::vector<std::pair<int, int>>{{1, 1}, {3, 2}, {5, 1}, {7, 0}}));
}

TEST(PostLocalSgd, MemoryComesAndGoesInEachRound) {
  ListedRound l("resnet50", in_subgroups(3, 4));
  Held sum{};
  for (const MemoryChange& c : l.program.steady.memory) sum[c.holds] += c.bytes;
  for (Holds k : Held::names()) EXPECT_EQ(sum[k], 0) << name_of(k);
}

// Gradients that stay within a host spare the network, which decides here.
TEST(PostLocalSgd, LiesBetweenDdpAndLocalSgd) {
  const Cluster cluster = [] {
    Cluster c = test::cluster("hgx-h100");
    c.hosts = 2;
    return c;
  }();
  const Profile profile = test::profile(cluster.profile);
  const topology::Fabric fabric(cluster);
  const Workload w = test::workload("gpt2-small");
  const auto per_batch = [&](const Plan& plan) {
    Scenario s;
    s.ranks = 16;
    s.plan = plan;
    return predict::predict({w, fabric, profile, s}).summary.step.ps / plan.accumulation_steps;
  };
  const std::int64_t subgroups = per_batch(in_subgroups(4, 8));
  EXPECT_LT(subgroups, per_batch(in_subgroups(4, 16)));
  EXPECT_GT(subgroups, per_batch(round_of(4, OuterOptimizer::None)));
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
}  // namespace ddpsim::systems
