// Plain gradient averaging after backward.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/systems/averaging/plan.h"
#include "sim/systems/base/lower.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

using Names = std::vector<std::string>;

Plan plan(Granularity g, bool async = false, PytorchVersion v = PytorchVersion{2, 7}) {
  Plan p;
  p.system = systems::kAveragingSystem;
  averaging_of(p).granularity = g;
  averaging_of(p).async_op = async;
  p.pytorch = v;
  return p;
}
Workload two(DeviceKind kind) {
  return test::layered(2, 4 * kKiB, kMicrosecond, kMicrosecond, kind);
}

struct Listing {
  Program program;
  explicit Listing(const Workload& w, const Plan& p) : program(lower(w, p)) {}
  std::string name(std::uint32_t i) const { return name_of(program, program.steady, i); }
  Names names() const {
    Names out;
    for (std::uint32_t i = 0; i < program.steady.ops.size(); ++i)
      if (!is_launch(program.steady.ops[i].kind)) out.push_back(name(i));
    return out;
  }
  std::uint32_t find(const std::string& op) const {
    for (std::uint32_t i = 0; i < program.steady.ops.size(); ++i)
      if (name(i) == op) return i;
    ADD_FAILURE() << "no operation " << op;
    return 0;
  }
  const Op& op(const std::string& n) const { return program.steady.ops[find(n)]; }
  Names waits(const std::string& n) const {
    Names out;
    for (std::uint32_t d : deps_of(program.steady, find(n))) out.push_back(name(d));
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST(Averaging, ReducesInRegistrationOrderAfterAllOfBackward) {
  Listing l(two(DeviceKind::Cpu), plan(Granularity::PerParameter));
  EXPECT_EQ(l.names(),
            (Names{"fwd", "bwd/layer1.weight", "bwd/layer0.weight", "allreduce/layer0.weight",
                   "wait/layer0.weight", "div/layer0.weight", "allreduce/layer1.weight",
                   "wait/layer1.weight", "div/layer1.weight", "optimizer"}));
  EXPECT_EQ(l.waits("wait/layer0.weight"), Names{"allreduce/layer0.weight"});
}

TEST(Averaging, WithAsyncOpLaunchesAllBeforeItWaits) {
  Listing l(two(DeviceKind::Cpu), plan(Granularity::PerParameter, true));
  EXPECT_EQ(l.names(),
            (Names{"fwd", "bwd/layer1.weight", "bwd/layer0.weight", "allreduce/layer0.weight",
                   "allreduce/layer1.weight", "wait/layer0.weight", "div/layer0.weight",
                   "wait/layer1.weight", "div/layer1.weight", "optimizer"}));
}

TEST(Averaging, FlatCopiesReducesDividesAndCopiesBack) {
  Listing l(two(DeviceKind::Cpu), plan(Granularity::Flat));
  EXPECT_EQ(l.names(),
            (Names{"fwd", "bwd/layer1.weight", "bwd/layer0.weight", "flatten/grads",
                   "allreduce/flat", "wait/flat", "div/flat", "unflatten/grads", "optimizer"}));
  EXPECT_EQ(l.op("allreduce/flat").bytes, 8 * kKiB);
  EXPECT_EQ(l.op("flatten/grads").traffic, 16 * kKiB);
  EXPECT_EQ(l.op("div/flat").traffic, 16 * kKiB);
}

TEST(Averaging, OnAGpuBlocksTheStreamAndNotTheHost) {
  Listing l(two(DeviceKind::Gpu), plan(Granularity::PerParameter));
  EXPECT_EQ(l.op("allreduce/layer1.weight").lane, Lane::Comm);
  EXPECT_EQ(l.waits("div/layer0.weight"),
            (Names{"allreduce/layer0.weight", "launch/div/layer0.weight"}));
  EXPECT_EQ(l.waits("allreduce/layer1.weight"),
            (Names{"div/layer0.weight", "launch/allreduce/layer1.weight"}));
  for (const std::string& n : l.names()) EXPECT_NE(n.rfind("wait/", 0), 0u);
}

TEST(Averaging, RunsBlockingCollectivesOnTheCurrentStreamSince28) {
  Listing l(two(DeviceKind::Gpu), plan(Granularity::PerParameter, false, PytorchVersion{2, 11}));
  EXPECT_EQ(l.op("allreduce/layer0.weight").lane, Lane::Compute);
  EXPECT_EQ(l.waits("div/layer0.weight"), Names{"launch/div/layer0.weight"});
  Listing async(two(DeviceKind::Gpu), plan(Granularity::PerParameter, true, PytorchVersion{2, 11}));
  EXPECT_EQ(async.op("allreduce/layer0.weight").lane, Lane::Comm);
}

TEST(Averaging, LeavesOutWhatHasNoGradient) {
  Workload w = two(DeviceKind::Cpu);
  w.arrival = {1};
  w.times.ready.resize(1);
  Names n = Listing(w, plan(Granularity::PerParameter)).names();
  EXPECT_EQ(std::count(n.begin(), n.end(), "allreduce/layer0.weight"), 0);
  EXPECT_EQ(std::count(n.begin(), n.end(), "allreduce/layer1.weight"), 1);
}

TEST(Averaging, AccumulatesLocallyInEveryMicroStep) {
  Plan p = plan(Granularity::PerParameter);
  p.accumulation_steps = 2;
  Names n = Listing(two(DeviceKind::Cpu), p).names();
  EXPECT_EQ(Names(n.begin(), n.begin() + 9),
            (Names{"micro0/fwd", "micro0/bwd/layer1.weight", "micro0/bwd/layer0.weight",
                   "micro1/fwd", "micro1/bwd/layer1.weight", "micro1/accumulate/layer1.weight",
                   "micro1/bwd/layer0.weight", "micro1/accumulate/layer0.weight",
                   "allreduce/layer0.weight"}));
}

TEST(Averaging, NeverRebuildsAnything) {
  Program p = lower(two(DeviceKind::Cpu), plan(Granularity::PerParameter));
  ASSERT_EQ(p.warmup.size(), 1u);
  EXPECT_EQ(p.warmup[0].kind, StepKind::First);
}

TEST(Averaging, ZeroesGradientsThatAreKept) {
  Plan p = plan(Granularity::PerParameter);
  p.set_to_none = false;
  EXPECT_EQ(Listing(two(DeviceKind::Cpu), p).names().front(), "zero_grad");
}

TEST(Averaging, FlatLeavesOutWhatHasNoGradient) {
  Workload w = two(DeviceKind::Cpu);
  w.arrival = {1};
  w.times.ready.resize(1);
  EXPECT_EQ(Listing(w, plan(Granularity::Flat)).op("allreduce/flat").bytes, 4 * kKiB);
}

}  // namespace
}  // namespace ddpsim::systems
