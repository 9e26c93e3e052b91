// PyTorch's ZeroRedundancyOptimizer: who updates what, and what follows.
#include "sim/systems/zero_redundancy/zero_redundancy.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/systems/base/lower.h"
#include "sim/systems/zero_redundancy/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

using Names = std::vector<std::string>;

Workload sized(const std::vector<std::int64_t>& elements, DeviceKind kind = DeviceKind::Cpu) {
  Workload w =
      test::layered(static_cast<int>(elements.size()), 4, kMicrosecond, kMicrosecond, kind);
  for (std::size_t i = 0; i < elements.size(); ++i) w.tensors[i].shape = {elements[i]};
  w.times.optimizer = kMicrosecond * 1000;
  return w;
}
Plan plan(bool view = false) {
  Plan p;
  p.system = systems::kZeroRedundancySystem;
  zero_redundancy_of(p).parameters_as_bucket_view = view;
  return p;
}
Program lowered(const Workload& w, const Plan& p, int ranks) {
  return lower({w, w.times, w.device, ranks}, p);
}
// What follows the last copy out, as "name@root:bytes".
Names update(const Program& p) {
  Names out;
  for (std::uint32_t i = 0; i < p.steady.ops.size(); ++i) {
    const Op& op = p.steady.ops[i];
    if (op.kind.phase != Phase::Update) continue;
    std::string name = name_of(p, p.steady, i);
    if (is_collective(op.kind))
      name += "@" + std::to_string(op.root) + ":" + std::to_string(op.bytes);
    out.push_back(name);
  }
  return out;
}

TEST(ZeroRedundancy, GivesTheLargestToWhoHasTheLeast) {
  using Owned = std::vector<std::vector<TensorIndex>>;
  EXPECT_EQ(parameters_of_ranks(sized({5, 9, 5, 1, 4}), 2), (Owned{{1, 4}, {0, 2, 3}}));
  EXPECT_EQ(parameters_of_ranks(sized({4, 4, 4}), 2), (Owned{{0, 2}, {1}}))
      << "the first of equals";
  EXPECT_EQ(parameters_of_ranks(sized({3}), 3), (Owned{{0}, {}, {}}));
}

TEST(ZeroRedundancy, BroadcastsWhatEachRankUpdatedAndWaitsForAll) {
  Workload w = sized({5, 9, 5, 1, 4});
  Program p = lowered(w, plan(), 2);
  EXPECT_EQ(update(p),
            (Names{"optimizer", "broadcast_param/layer1.weight@0:36",
                   "broadcast_param/layer4.weight@0:16", "broadcast_param/layer0.weight@1:20",
                   "broadcast_param/layer2.weight@1:20", "broadcast_param/layer3.weight@1:4",
                   "wait/broadcast_params"}));
  auto last = static_cast<std::uint32_t>(p.steady.ops.size() - 1);
  EXPECT_EQ(deps_of(p.steady, last).size(), 5u);
  EXPECT_EQ(update(lowered(w, plan(true), 2)),
            (Names{"optimizer", "broadcast_params/bucket.1@0:52", "broadcast_params/bucket.2@1:44",
                   "wait/broadcast_params"}));
  EXPECT_EQ(lowered(w, plan(true), 2).steady.buckets.back().tensors,
            (std::vector<TensorIndex>{0, 2, 3}));
}

TEST(ZeroRedundancy, ARankWithoutParametersSendsOneNumber) {
  EXPECT_EQ(update(lowered(sized({3}), plan(true), 2)),
            (Names{"optimizer", "broadcast_params/bucket.1@0:12", "broadcast_params/bucket.2@1:4",
                   "wait/broadcast_params"}));
}

TEST(ZeroRedundancy, TakesTheLargestShareOfTimeAndState) {
  Workload w = sized({6, 3, 1});
  w.optimizer.kind = Optimizer::Kind::Adam;
  Program p = lowered(w, plan(), 2);
  for (const Op& op : p.steady.ops) {
    if (!is_update(op.kind)) continue;
    EXPECT_EQ(op.duration, kMicrosecond * 600);
  }
  auto state = [](const Program& of) { return of.resident[Holds::OptimizerState]; };
  EXPECT_EQ(state(p), 2 * 4 * 6) << "two copies of Adam";
  Plan ddp;
  EXPECT_EQ(state(lowered(w, ddp, 2)), 2 * 4 * 10);
  EXPECT_EQ(state(lowered(w, plan(), 1)), 2 * 4 * 10);
}

// The device goes on behind the last broadcast, and the host does not wait.
TEST(ZeroRedundancy, OnAGpuTheStreamWaits) {
  Program p = lowered(sized({5, 9, 5, 1, 4}, DeviceKind::Gpu), plan(), 2);
  Names all = update(p);
  EXPECT_EQ(all.back(), "params_there");
  EXPECT_EQ(p.steady.ops.back().lane, Lane::Compute);
  auto waits = deps_of(p.steady, static_cast<std::uint32_t>(p.steady.ops.size() - 1));
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(name_of(p, p.steady, waits[0]), "broadcast_param/layer3.weight");
  for (const Op& op : p.steady.ops) EXPECT_FALSE(is_wait(op.kind));
}

TEST(ZeroRedundancy, RefusesWhatPyTorchRefuses) {
  Workload w = sized({4, 4});
  EXPECT_FALSE(validate(plan(), w, DeviceKind::Cpu));
  w.tensors[1].dtype = DType::Float16;
  Problem types = validate(plan(), w, DeviceKind::Cpu);
  EXPECT_NE(types.message.find("same dense type for all parameters"), std::string::npos);
  Plan overlap = plan();
  zero_redundancy_of(overlap).overlap_with_ddp = true;
  w.tensors[1].dtype = w.tensors[0].dtype;
  EXPECT_EQ(validate(overlap, w, DeviceKind::Cpu).path, "/plan/overlap_with_ddp");
}

}  // namespace
}  // namespace ddpsim::systems
