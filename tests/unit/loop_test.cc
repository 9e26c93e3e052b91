// What a training loop does between the last gradient and the next forward.
#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/measured_step.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/builder.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::predict {
namespace {

constexpr std::int64_t kElements = 25'000'000;

TEST(LoopWork, IsWhatTheLoopReadsAndWrites) {
  Workload w = test::workload("resnet50");
  EXPECT_EQ(loop_work(w, kElements, 161).unscale, 0) << "fp32 needs no scaler";
  EXPECT_FALSE(loop_work(w, kElements, 161).waits);
  w.precision = Precision::Fp16;
  EXPECT_EQ(loop_work(w, kElements, 161).unscale, 8 * kElements);
  EXPECT_TRUE(loop_work(w, kElements, 161).waits);
  EXPECT_EQ(loop_work(w, kElements, 161).unscale_kernels, 2);
  w.precision = Precision::Bf16;
  EXPECT_FALSE(loop_work(w, kElements, 161).waits);
  w.loop.grad_scaler = true;
  EXPECT_TRUE(loop_work(w, kElements, 161).waits);
  w.optimizer.fused = true;
  EXPECT_FALSE(loop_work(w, kElements, 161).waits) << "the optimizer unscales";
  w.casting = Casting::MasterWeights;
  EXPECT_TRUE(loop_work(w, kElements, 161).waits) << "Apex scales by itself";
  w.precision = Precision::Fp16;
  w.loop.grad_scaler = false;
  EXPECT_FALSE(loop_work(w, kElements, 161).waits);
  EXPECT_EQ(loop_work(w, kElements, 161).clip, 0);
  w.loop.clip_grad_norm = true;
  EXPECT_EQ(loop_work(w, kElements, 161).clip, 12 * kElements);
}

TEST(LoopWork, LambsBytesAreNotAdams) {
  Workload w = test::workload("bert-large");
  Profile p = test::profile("a100-sxm4-80gb.datasheet");
  w.optimizer = {};
  w.optimizer.kind = Optimizer::Kind::AdamW;
  w.optimizer.fused = true;
  EXPECT_DOUBLE_EQ(optimizer_bytes_per_element(w), 28);
  w.optimizer.kind = Optimizer::Kind::Lamb;
  EXPECT_DOUBLE_EQ(optimizer_bytes_per_element(w), 52);
  EXPECT_EQ(optimizer_kernels(w.optimizer, 72), 5 * 2);
  w.precision = Precision::Fp16;
  EXPECT_TRUE(loop_work(w, kElements, 161).waits) << "torch's scaler does not know it";
  auto lamb = static_cast<double>(step_times(w, p, Level::Mid).optimizer.ps);
  double ideal = 52.0 * 335e6 / p.memory.bandwidth_bytes_per_s * 1e12;
  EXPECT_GT(lamb, ideal);
  EXPECT_LT(lamb, 1.6 * ideal);
}

class TrainingLoop : public ::testing::Test {
 protected:
  Prediction answer(const Loop& loop, int ranks, System system = systems::kDdpSystem) const {
    Workload w = w_;
    w.loop = loop;
    Scenario s;
    s.ranks = ranks;
    s.stragglers = false;
    s.plan.system = system;
    return predict({w, fabric_, p_, s});
  }
  StepTimes times(const Loop& loop) const {
    Workload w = w_;
    w.loop = loop;
    return step_times(w, p_, Level::Mid);
  }
  Workload w_ = test::workload("resnet50");
  Profile p_ = test::profile("h100-sxm.datasheet");
  topology::Fabric fabric_{test::cluster("hgx-h100")};
};

TEST_F(TrainingLoop, ClippingIsATimeOfTheDeviceAlone) {
  Prediction plain = answer({}, 8);
  Prediction clipped = answer({false, true, false}, 8);
  EXPECT_EQ(clipped.summary.step - plain.summary.step, times({false, true, false}).loop);
  EXPECT_EQ(clipped.summary.optimizer - plain.summary.optimizer, times({false, true, false}).loop);
  EXPECT_EQ(clipped.summary.idle, plain.summary.idle);
}

// The device waits for what the host launches after it has waited: the optimizer; forward's head.
TEST_F(TrainingLoop, TheDeviceWaitsForTheHostThatHasWaited) {
  for (System system : {systems::kDdpSystem, systems::kAveragingSystem, systems::kHorovodSystem}) {
    Prediction plain = answer({false, false, false}, 8, system);
    Prediction read = answer({false, false, true}, 8, system);
    Prediction scaled = answer({true, false, false}, 8, system);
    Duration head = systems::forward_of(times({})).head;
    EXPECT_GE(read.summary.step, plain.summary.step) << system.name();
    EXPECT_GE((read.summary.idle - plain.summary.idle).ps + 1'000'000, head.ps);
    Duration more = scaled.summary.step - plain.summary.step;
    Duration unscale = times({true, false, false}).loop;
    EXPECT_GT(more, unscale);
    EXPECT_GE(scaled.summary.idle, times({}).host->optimizer);
  }
}

// One rank by itself: what averaging without others plays, less what that adds.
TEST_F(TrainingLoop, OfOneRankIsTheClosedForm) {
  for (const Loop& loop : {Loop{false, false, false}, Loop{false, true, true},
                           Loop{true, false, false}, Loop{true, true, true}}) {
    Duration played = answer(loop, 1, systems::kAveragingSystem).summary.step;
    Duration closed = one_rank_step(times(loop), 1);
    EXPECT_NEAR(static_cast<double>(played.ps) / static_cast<double>(closed.ps), 1, 0.12)
        << loop.grad_scaler.value() << loop.clip_grad_norm << loop.loss_item;
    EXPECT_GE(played, closed);
  }
  // The device decides here, and waits for forward's first launches once it has nothing to do.
  EXPECT_EQ(one_rank_step(times({false, false, true}), 1) - one_rank_step(times({}), 1),
            systems::forward_of(times({})).head);
}

// A graph takes away what the host costs, and nothing else.
TEST_F(TrainingLoop, AGraphIsAHostThatCostsNothing) {
  Workload graphed = w_;
  graphed.cuda_graphs = true;
  Profile quick = p_;
  quick.host = {};
  quick.host.calls.clear();
  for (System system : {systems::kDdpSystem, systems::kAveragingSystem}) {
    Scenario s;
    s.ranks = 8;
    s.plan.system = system;
    Prediction graph = predict({graphed, fabric_, p_, s});
    EXPECT_EQ(graph.summary.step, predict({w_, fabric_, quick, s}).summary.step);
    EXPECT_EQ(graph.summary.idle, Duration{});
    EXPECT_EQ(graph.summary.forward, predict({w_, fabric_, p_, s}).summary.forward);
  }
  w_.batch = 2;  // where the host decides
  graphed.batch = 2;
  Scenario s;
  s.ranks = 8;
  EXPECT_LT(predict({graphed, fabric_, p_, s}).summary.step * 2,
            predict({w_, fabric_, p_, s}).summary.step);
  Profile slow = p_;
  slow.host.launch = slow.host.hook = slow.host.collective_launch = {1'000'000'000};
  EXPECT_EQ(predict({graphed, fabric_, slow, s}).summary.step,
            predict({w_, fabric_, quick, s}).summary.step);
  ddp_of(s.plan).find_unused_parameters = true;
  EXPECT_NE(check({graphed, fabric_, p_, s}).message.find("CUDA graph"), std::string::npos);
  s.plan = {};
  s.plan.system = systems::kHorovodSystem;
  EXPECT_NE(check({graphed, fabric_, p_, s}).message.find("CUDA graph"), std::string::npos);
}

TEST_F(TrainingLoop, FsdpHasItOnItsShards) {
  Loop all{true, true, true};
  Prediction plain = answer({false, false, false}, 8, systems::kFsdpSystem);
  Prediction with = answer(all, 8, systems::kFsdpSystem);
  Duration more = with.summary.optimizer - plain.summary.optimizer;
  EXPECT_GT(more, Duration{});
  EXPECT_LT(more, scale(times(all).loop, 0.4)) << "an eighth, and kernels";
  EXPECT_GT(with.summary.step, plain.summary.step);
}

}  // namespace
}  // namespace ddpsim::predict
