// NVIDIA Apex's DistributedDataParallel. Its schedule is held against Apex's own and against
// tests/oracle/apex.py; here are closed forms, memory, and what the knobs are worth.
#include "sim/systems/apex/apex.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/memory.h"
#include "sim/predict/predict.h"
#include "sim/systems/apex/plan.h"
#include "sim/systems/base/lower.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan apex(std::int64_t message_size = 10'000'000) {
  Plan p;
  p.system = systems::kApexSystem;
  apex_of(p).message_size = message_size;
  return p;
}

struct ListedSchedule {
  Workload w;
  StepTimes times;
  Program program;
  ListedSchedule(Workload workload, const Plan& plan, int ranks = 8)
      : w(std::move(workload)),
        times(predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid)),
        program(lower({w, times, DeviceKind::Gpu, ranks}, plan)) {}
  std::int64_t reduced() const {
    std::int64_t sum = 0;
    for (const Op& op : program.steady.ops)
      if (carries_tensors(op.kind)) sum += op.bytes;
    return sum;
  }
};

Workload halves(const std::string& name) {
  Workload w = test::workload(name);
  w.precision = Precision::Fp16;
  w.casting = Casting::MasterWeights;
  w.loop.grad_scaler = true;
  for (Tensor& t : w.tensors) t.dtype = DType::Float16;
  return w;
}

TEST(Apex, ABucketEndsWithTheGradientThatFillsItAndNoGradientIsLost) {
  for (const char* name : {"resnet50", "gpt2-small", "mlp784-50-10"})
    for (std::int64_t size : {1, 100'000, 2'000'000, 10'000'000}) {
      const Workload w = test::workload(name);
      const auto buckets = apex_buckets(w, apex(size));
      std::vector<TensorIndex> all;
      for (const auto& bucket : buckets) {
        std::int64_t elements = 0;
        for (TensorIndex t : bucket) {
          EXPECT_LT(elements, size) << "it was full before";
          elements += w.tensors[t].elements();
        }
        if (&bucket != &buckets.back()) {
          EXPECT_GE(elements, size);
        }
        all.insert(all.end(), bucket.begin(), bucket.end());
      }
      EXPECT_EQ(all, w.arrival);
    }
}

TEST(Apex, EveryGradientIsReducedOnceWhateverTheKnobs) {
  for (bool fp32 : {false, true})
    for (int micro_steps : {1, 3})
      for (bool disabled : {false, true})
        for (std::int64_t streams : {1, 4}) {
          Plan plan = apex(1'000'000);
          apex_of(plan).allreduce_always_fp32 = fp32;
          apex_of(plan).num_allreduce_streams = streams;
          apex_of(plan).disable_allreduce = disabled;
          plan.accumulation_steps = micro_steps;
          ListedSchedule l(halves("gpt2-small"), plan);
          const std::int64_t times = disabled ? 1 : micro_steps;
          EXPECT_EQ(l.reduced(), times * (fp32 ? 4 : 2) * l.w.elements());
        }
}

// csrc/multi_tensor_apply.cuh: 64 tensors and 320 blocks of 65,536 elements a launch.
TEST(Apex, LaunchesOfAScaleAreCountedAsItsLoopDoes) {
  EXPECT_EQ(multi_tensor_launches({1}), 1);
  EXPECT_EQ(multi_tensor_launches(std::vector<std::int64_t>(64, 1)), 1);
  EXPECT_EQ(multi_tensor_launches(std::vector<std::int64_t>(65, 1)), 2);
  EXPECT_EQ(multi_tensor_launches({320 * 65'536}), 1);
  EXPECT_EQ(multi_tensor_launches({320 * 65'536 + 1}), 2);
  EXPECT_EQ(multi_tensor_launches({65'536, 320 * 65'536}), 2);
}

// What a step allocates it frees again, and with retain_allreduce_buffers gradients are in buffers.
TEST(Apex, MemoryComesAndGoesInEachStep) {
  for (bool retains : {false, true})
    for (bool sets_to_none : {false, true})
      for (bool delays : {false, true}) {
        Plan plan = apex(2'000'000);
        plan.set_to_none = sets_to_none;
        apex_of(plan).retain_allreduce_buffers = retains;
        apex_of(plan).delay_allreduce = delays;
        ListedSchedule l(test::workload("resnet50"), plan);
        Held sum{};
        for (const MemoryChange& c : l.program.steady.memory) sum[c.holds] += c.bytes;
        for (Holds k : Held::names())
          EXPECT_EQ(sum[k], 0) << name_of(k) << retains << sets_to_none << delays;
        const std::int64_t all = l.w.gradient_bytes().count;
        EXPECT_EQ(l.program.resident[Holds::Buckets], retains ? all : 0);
        EXPECT_EQ(l.program.resident[Holds::Gradients], !retains && !sets_to_none ? all : 0);
      }
}

Duration step(const char* workload, const char* cluster, int ranks, const Plan& plan,
              predict::Fidelity fidelity = predict::Fidelity::Collective) {
  Cluster c = test::cluster(cluster);
  Profile profile = test::profile(c.profile);
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = ranks;
  s.plan = plan;
  predict::Options o;
  o.fidelity = fidelity;
  return predict::predict({test::workload(workload), fabric, profile, s}, o).summary.step;
}

// Buckets beside backward win over one reduction after it, and both fidelities say so alike.
TEST(Apex, OverlapsBackward) {
  for (const char* cluster : {"dgx1-v100", "pcie-box-8"}) {
    Plan late = apex();
    apex_of(late).delay_allreduce = true;
    Plan more = apex(2'000'000);
    apex_of(more).num_allreduce_streams = 2;
    const Duration together = step("resnet50", cluster, 8, late);
    EXPECT_LT(step("resnet50", cluster, 8, apex()), together) << cluster;
    EXPECT_LT(step("resnet50", cluster, 8, more), together) << cluster;
  }
  for (std::int64_t streams : {1, 2}) {
    Plan plan = apex(2'000'000);
    apex_of(plan).num_allreduce_streams = streams;
    const Duration coarse = step("resnet50", "hgx-h100", 4, plan);
    const Duration fine = step("resnet50", "hgx-h100", 4, plan, predict::Fidelity::Message);
    EXPECT_NEAR(static_cast<double>(fine.ps) / static_cast<double>(coarse.ps), 1, 0.02) << streams;
  }
}

}  // namespace
}  // namespace ddpsim::systems
