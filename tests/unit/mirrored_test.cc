// TensorFlow's mirrored strategies. Their schedule is held against
// tests/oracle/mirrored_lowered.py; here are TensorFlow's own example, closed forms, memory and
// what the knobs are worth.
#include "sim/systems/mirrored/mirrored.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/memory.h"
#include "sim/predict/predict.h"
#include "sim/systems/averaging/plan.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/mirrored/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan tensorflow(System system, std::int64_t bytes_per_pack = 0) {
  Plan p;
  p.system = system;
  mirrored_of(p).bytes_per_pack = bytes_per_pack;
  return p;
}

struct ListedPacks {
  Workload w;
  StepTimes times;
  Program program;
  ListedPacks(const std::string& name, const Plan& plan, int ranks = 8)
      : w(test::workload(name)),
        times(predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid)),
        program(lower({w, times, DeviceKind::Gpu, ranks, ranks}, plan)) {}
  std::int64_t sent(Operation o) const {
    std::int64_t sum = 0;
    for (const Op& op : program.steady.ops)
      if (is_collective(op.kind) && op.kind.operation == o) sum += op.bytes;
    return sum;
  }
};

// cross_device_utils_test.py: sizes 128, 32, 800, 4 with 200 bytes a pack.
TEST(Mirrored, PacksAreThoseOfTensorFlowsOwnTest) {
  Workload w = test::layered(4, 4, kMillisecond, kMillisecond, DeviceKind::Gpu);
  const std::int64_t bytes[] = {4, 800, 32, 128};  // the last variable comes first
  for (std::size_t t = 0; t < 4; ++t) w.tensors[t].shape = {bytes[t] / 4};
  const auto packs = tensorflow_packs(w, tensorflow(systems::kMirroredSystem, 200));
  ASSERT_EQ(packs.size(), 2u);
  EXPECT_EQ(packs[0], (std::vector<TensorIndex>{3, 2, 1}));
  EXPECT_EQ(packs[1], std::vector<TensorIndex>{0});
  EXPECT_EQ(tensorflow_packs(w, tensorflow(systems::kMirroredSystem)).size(), 1u) << "0: one pack";
}

TEST(Mirrored, NoGradientIsLostWhateverThePacks) {
  for (const char* name : {"resnet50", "gpt2-small"})
    for (std::int64_t size : {0, 1, 1 << 20, 50 << 20}) {
      const ListedPacks l(name, tensorflow(systems::kMirroredSystem, size));
      std::multiset<TensorIndex> all;
      for (const auto& pack : tensorflow_packs(l.w, tensorflow(systems::kMirroredSystem, size)))
        all.insert(pack.begin(), pack.end());
      EXPECT_EQ(all.size(), l.w.arrival.size());
      EXPECT_EQ(l.sent(Operation::AllReduce), l.w.gradient_bytes().count) << name << size;
    }
}

TEST(Mirrored, PartsOfTheFlatCopyAreAsTheirPackerMakesThem) {
  EXPECT_EQ(packed_parts(10, 3), (std::vector<std::int64_t>{3, 3, 4}));
  Plan plan = tensorflow(systems::kMirroredSystem);
  mirrored_of(plan).cross_device_ops = CrossDeviceOps::NcclAllReduce;
  for (std::int64_t packs : {0, 1, 3, 8}) {
    mirrored_of(plan).num_packs = packs;
    const ListedPacks l("resnet50", plan);
    EXPECT_EQ(l.sent(Operation::AllReduce), l.w.gradient_bytes().count);
    std::vector<std::int64_t> elements(l.w.tensors.size());
    for (const Bucket& b : l.program.steady.buckets)
      for (std::size_t i = 0; i < b.tensors.size(); ++i)
        elements[b.tensors[i]] += b.slices.empty() ? l.w.tensors[b.tensors[i]].elements()
                                                   : b.slices[i].to - b.slices[i].from;
    for (std::size_t t = 0; t < elements.size(); ++t)
      EXPECT_EQ(elements[t], l.w.tensors[t].elements()) << packs;
  }
}

TEST(Mirrored, CopiesBetweenGpusCarryEachGradientThereAndBack) {
  Plan plan = tensorflow(systems::kMirroredSystem);
  const std::int64_t all = test::workload("vgg16").gradient_bytes().count;
  mirrored_of(plan).cross_device_ops = CrossDeviceOps::ReductionToOneDevice;
  const ListedPacks one("vgg16", plan);
  EXPECT_EQ(one.sent(Operation::Reduce), all);
  EXPECT_EQ(one.sent(Operation::Broadcast), all);
  mirrored_of(plan).cross_device_ops = CrossDeviceOps::HierarchicalCopyAllReduce;
  const ListedPacks halves("vgg16", plan);
  EXPECT_EQ(halves.sent(Operation::Reduce), 2 * all) << "in halves, and between them";
  EXPECT_EQ(halves.sent(Operation::Broadcast), 2 * all);
  ASSERT_EQ(halves.program.groups.size(), 2u);
  EXPECT_EQ(halves.program.groups[0].size, 4);
}

predict::Prediction predicted(const std::string& workload, const std::string& cluster, int hosts,
                              const Plan& plan,
                              predict::Fidelity f = predict::Fidelity::Collective) {
  const Workload w = test::workload(workload);
  Cluster c = test::cluster(cluster);
  c.hosts = hosts;
  const topology::Fabric fabric(c);
  const Profile p = test::profile("h100-sxm.datasheet");
  Scenario s;
  s.plan = plan;
  s.ranks = fabric.devices();
  s.stragglers = false;
  const predict::Question q{w, fabric, p, s};
  const Problem problem = predict::check(q);
  EXPECT_EQ(problem.message, "");
  predict::Options options;
  options.fidelity = f;
  return predict::predict(q, options);
}

// One pack waits for the last gradient; several do not, and a step is shorter for it.
TEST(Mirrored, OnePackOverlapsWithNothing) {
  const auto one = predicted("bert-large", "ovx-l40s", 1, tensorflow(systems::kMirroredSystem));
  const auto some =
      predicted("bert-large", "ovx-l40s", 1, tensorflow(systems::kMirroredSystem, 25 << 20));
  EXPECT_LT(one.summary.overlap, 0.01);
  EXPECT_GT(some.summary.overlap, 0.5);
  EXPECT_LT(some.summary.step, one.summary.step);
}

TEST(Mirrored, WithoutAnOptionSeveralWorkersUseTensorFlowsRing) {
  Plan plan = tensorflow(systems::kMultiWorkerMirroredSystem);
  EXPECT_EQ(backend_of(plan, DeviceKind::Gpu), Backend::Tcp);
  mirrored_of(plan).implementation = TensorflowCollective::Nccl;
  EXPECT_EQ(backend_of(plan, DeviceKind::Gpu), Backend::Nccl);
  EXPECT_EQ(backend_of(tensorflow(systems::kMirroredSystem), DeviceKind::Gpu), Backend::Nccl);
  EXPECT_EQ(backend_of(tensorflow(systems::kMirroredSystem), DeviceKind::Cpu), Backend::Tcp);
}

TEST(Mirrored, BothFidelitiesAgree) {
  Plan nccl = tensorflow(systems::kMultiWorkerMirroredSystem, 25 << 20);
  mirrored_of(nccl).implementation = TensorflowCollective::Nccl;
  for (const Plan& plan : {nccl, tensorflow(systems::kMultiWorkerMirroredSystem, 25 << 20)}) {
    const auto a = predicted("resnet50", "hgx-h100", 2, plan);
    const auto b = predicted("resnet50", "hgx-h100", 2, plan, predict::Fidelity::Message);
    EXPECT_NEAR(static_cast<double>(b.summary.step.ps) / static_cast<double>(a.summary.step.ps), 1,
                0.05);
  }
}

// Weights, states, one gradient of each, and one flat copy that takes their place.
TEST(Mirrored, APackTakesThePlaceOfItsGradients) {
  Plan averaging;
  averaging.system = systems::kAveragingSystem;
  averaging_of(averaging).granularity = Granularity::Flat;
  const auto kept = [](const predict::Prediction& p) { return p.memory->device; };
  const auto tf =
      kept(predicted("bert-large", "hgx-h100", 1, tensorflow(systems::kMirroredSystem)));
  const auto flat = kept(predicted("bert-large", "hgx-h100", 1, averaging));
  EXPECT_LE(tf, flat);
}

}  // namespace
}  // namespace ddpsim::systems
