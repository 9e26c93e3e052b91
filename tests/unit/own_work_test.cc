// A script's own work in a step: where it stands in every system's Program, and what it costs.
#include "sim/systems/base/own_work.h"

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/left_out.h"
#include "sim/predict/lowered.h"
#include "sim/predict/predict.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::predict {
namespace {

struct OwnJob {
  Workload workload = test::workload("resnet50");
  Profile profile = test::profile("h100-sxm.datasheet");
  topology::Fabric fabric{test::cluster("hgx-h100")};
  Scenario scenario;
  explicit OwnJob(System system = systems::kDdpSystem, int micro_steps = 1) {
    scenario.ranks = 8;
    scenario.plan.system = system;
    scenario.plan.accumulation_steps = micro_steps;
  }
  Question question() const { return {workload, fabric, profile, scenario}; }
  Duration step() const { return predict(question()).summary.step; }
  Program program() const { return lowered(question(), step_times(workload, profile, Level::Mid)); }
};

constexpr System kSystems[] = {
    systems::kDdpSystem,      systems::kAveragingSystem, systems::kFsdpSystem,
    systems::kFsdp2System,    systems::kZeroSystem,      systems::kZeroRedundancySystem,
    systems::kMegatronSystem, systems::kApexSystem,      systems::kDataParallelSystem,
    systems::kMirroredSystem, systems::kLocalSgdSystem};

OwnCollective own(Operation o, bool in_forward, double bytes) {
  OwnCollective c;
  c.operation = o;
  c.in_forward = in_forward;
  c.bytes_fixed = bytes;
  return c;
}

TEST(OwnWork, IsInEverySystemsStepWithAllItsBytes) {
  for (System system : kSystems)
    for (int micro_steps : {1, 3}) {
      OwnJob j(system, micro_steps);
      SCOPED_TRACE(std::string(name_of(system)) + " " + std::to_string(micro_steps));
      const Program before = j.program();
      j.workload.loop.collectives = {own(Operation::AllReduce, true, 1000),
                                     own(Operation::AllGather, true, 50),
                                     own(Operation::Broadcast, false, 70)};
      j.workload.loop.collectives.back().count = 2;
      j.workload.loop.forward_item = true;
      j.workload.loop.traffic = 12'345;
      j.workload.loop.kernels = 7;
      const Program with = j.program();
      for (const auto& [steps, count] :
           {std::pair{&with.steady, 1}, {&with.warmup.front(), before.warmup.empty() ? 0 : 1}}) {
        if (count == 0) continue;
        std::int64_t bytes = 0, traffic = 0;
        int waits = 0, backwards = 0, last_forward = -1;
        for (const Op& op : steps->ops) {
          const std::string word = with.words[op.word];
          if (is_backward(op.kind)) backwards = std::max(backwards, op.micro + 1);
          if (word == "own_all_reduce.") {
            EXPECT_LT(last_forward, op.micro < 0 ? 0 : op.micro);
            last_forward = op.micro < 0 ? 0 : op.micro;
            EXPECT_LE(backwards, last_forward);  // in front of its micro-step's backward
          }
          if (word.starts_with("own_") && is_collective(op.kind)) bytes += op.bytes;
          if (word == "own_update") traffic += op.traffic;
          if (word == "wait/forward") ++waits;
          for (std::uint32_t d : op.dep) {
            if (d != kNoOp) {
              EXPECT_LT(d, steps->ops.size());
            }
          }
        }
        EXPECT_EQ(bytes, micro_steps * (1000 + 8 * 50) + 2 * 70);
        EXPECT_EQ(traffic, 12'345);
        EXPECT_EQ(waits, micro_steps);
      }
      EXPECT_GT(with.steady.ops.size(), before.steady.ops.size());
    }
}

TEST(OwnWork, TakesTheTimeOfItsParts) {
  OwnJob j;
  const Duration plain = j.step();
  j.workload.loop.collectives = {own(Operation::AllReduce, true, 256.0 * 1024 * 1024)};
  const Duration large = j.step() - plain;
  j.workload.loop.collectives.push_back(j.workload.loop.collectives.front());
  const Duration two = j.step() - plain;
  EXPECT_GT(large.ps, 500'000'000);  // 256 MiB among 8 H100: about a millisecond
  EXPECT_NEAR(static_cast<double>(two.ps), 2.0 * static_cast<double>(large.ps),
              0.02 * static_cast<double>(two.ps));
  // After the update it takes as long.
  for (OwnCollective& c : j.workload.loop.collectives) c.in_forward = false;
  EXPECT_NEAR(static_cast<double>((j.step() - plain).ps), static_cast<double>(two.ps),
              0.02 * static_cast<double>(two.ps));
  // Bytes of a sample grow with the batch.
  j.workload.loop.collectives = {own(Operation::AllReduce, true, 0)};
  j.workload.loop.collectives.front().bytes_per_sample = 256.0 * 1024 * 1024 / j.workload.batch;
  EXPECT_EQ(j.step() - plain, large);
  j.workload.loop.collectives.clear();
  j.workload.loop.traffic = 3'350'000'000;  // a millisecond of an H100's memory at its peak
  j.workload.loop.kernels = 1;
  EXPECT_GT((j.step() - plain).ps, 1'000'000'000);
  // So does a rank by itself.
  const Duration alone = predict(j.question()).single_rank_step;
  j.workload.loop.traffic = 0;
  EXPECT_GT((alone - predict(j.question()).single_rank_step).ps, 1'000'000'000);
}

TEST(OwnWork, GoesOnBesideAnInputPipeline) {
  OwnJob j(systems::kDdpSystem, 2);
  j.workload.loop.collectives = {own(Operation::AllReduce, true, 1 << 20)};
  const Duration plain = j.step();
  j.scenario.input = InputPipeline{1e12};
  EXPECT_NEAR(static_cast<double>(j.step().ps), static_cast<double>(plain.ps),
              1e-4 * static_cast<double>(plain.ps));
}

TEST(LeftOut, IsSaidInEachAnswer) {
  OwnJob j;
  EXPECT_TRUE(predict(j.question()).extrapolated.empty());
  j.workload.not_counted = {{"forward of a second network (ResNet)", 341e9, 0},
                            {"3 send in each step", 0, 4 << 20}};
  j.workload.described_with = {"1.13.1+cpu", {"torch.nn.RMSNorm"}};
  const std::vector<std::string> says = predict(j.question()).extrapolated;
  ASSERT_EQ(says.size(), 4u);
  EXPECT_EQ(says[0], "not counted: forward of a second network (ResNet), 341 GFLOP a step");
  EXPECT_EQ(says[1], "not counted: 3 send in each step, 4 MiB");
  EXPECT_NE(says[2].find("PyTorch 1.13.1+cpu"), std::string::npos);
  EXPECT_NE(says[3].find("torch.nn.RMSNorm"), std::string::npos);
  j.scenario.plan.pytorch = PytorchVersion{1, 13};
  EXPECT_EQ(predict(j.question()).extrapolated.size(), 2u);
}

TEST(NoSync, ReducingEachTimeCostsWhatItSendsAndIsALever) {
  OwnJob j(systems::kDdpSystem, 4);
  j.fabric = topology::Fabric(test::cluster("gpu-ethernet-10g"));
  const Duration once = j.step();
  j.scenario.plan.no_sync = false;
  const Duration each = j.step();
  EXPECT_GT(2 * each.ps, 5 * once.ps);  // four times the bytes, some behind computation
  EXPECT_LT(each.ps, 4 * once.ps);
  bool said = false;
  for (const Lever& l : levers(j.question(), each))
    if (l.change.find("no_sync()") != std::string::npos) {
      said = true;
      EXPECT_EQ(l.step, once);
      EXPECT_EQ(l.command, "--set no_sync=true");
    }
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace ddpsim::predict
