// Times of a described workload, by hand; the optimizer's traffic; prices of single operations.
#include "sim/cost/roofline.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/predict/known_times.h"
#include "tests/support/support.h"

namespace ddpsim::predict {
namespace {

// 1 Tflop/s fp32 at efficiency (gemm 0.5, conv 0.25, attention 0.1), 1 TB/s at 0.5, 2 us a kernel;
// a launch takes the host 3 us.
Profile profile() {
  Profile p = test::ideal_profile({});
  p.compute.peak_flops = {1e12, 0, 4e12, 0};
  p.compute.efficiency = {Range{0.25, 0.5, 1}, Range{0.25, 0.25, 0.25}, Range{0.1, 0.1, 0.1}};
  p.memory.bandwidth_bytes_per_s = 1e12;
  p.memory.efficiency = {0.25, 0.5, 1};
  p.memory.kernel = kMicrosecond * 2;
  p.host.launch = kMicrosecond * 3;
  return p;
}

// One layer with one tensor of 1000 elements.
Workload one_layer(KernelClass k, LayerCost forward, LayerCost backward = {}) {
  Workload w;
  w.name = "w";
  w.basis = Basis::Described;
  w.batch = 10;
  w.tensors = {{"p", {1000}, DType::Float32}};
  w.arrival = {0};
  w.layers = {{"l", {}, k, {0}, {}, forward, backward}};
  return w;
}
std::int64_t forward_ps(const Workload& w, Level level = Level::Mid) {
  return step_times(w, profile(), level).forward.ps;
}

TEST(LayerTime, IsFlopsOverTheEfficientPeak) {
  // 10 * 1e7 flops / 0.5e12 = 200 us
  LayerCost c{1e7, 0, 0, 1};
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Gemm, c)), 200'000'000);
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Conv, c)), 400'000'000);
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Attention, c)), 1'000'000'000);
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Gemm, c), Level::Low), 400'000'000);
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Gemm, c), Level::High), 100'000'000);
}

TEST(LayerTime, IsTrafficOverTheMemoryWhereThatIsSlower) {
  // (10 * 1e6 + 5e6) / 0.5e12 = 30 us; the flops take 2 us
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Gemm, {1e5, 1e6, 5e6, 1})), 30'000'000);
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Memory, {1e9, 1e6, 5e6, 1})),
            30'000'000);  // flops of a memory layer cost nothing
}

TEST(LayerTime, IsAtLeastItsKernels) {
  EXPECT_EQ(forward_ps(one_layer(KernelClass::Gemm, {1, 1, 1, 7})), 14'000'000);
}

TEST(LayerTime, HalvesActivationsAndNotWeightsInHalfPrecision) {
  Workload w = one_layer(KernelClass::Memory, {0, 1e6, 5e6, 1});
  w.precision = Precision::Bf16;
  EXPECT_EQ(forward_ps(w), 20'000'000);
  w.precision = Precision::Tf32;
  EXPECT_EQ(forward_ps(w), 30'000'000);
}

TEST(LayerTime, UsesThePeakOfThePrecision) {
  Workload w = one_layer(KernelClass::Gemm, {1e7, 0, 0, 1});
  w.precision = Precision::Bf16;
  EXPECT_EQ(forward_ps(w), 50'000'000);
}

// torch.backends.cudnn.allow_tf32 is True, that of matrix products is False.
TEST(LayerTime, ConvolutionsInFp32UseTf32WhereTheDeviceHasIt) {
  Profile with = profile();
  with.compute.peak_flops[Precision::Tf32] = 8e12;
  for (KernelClass k : {KernelClass::Conv, KernelClass::Gemm, KernelClass::Attention}) {
    const Workload w = one_layer(k, {1e7, 0, 0, 1});
    EXPECT_EQ(step_times(w, with, Level::Mid).forward.ps,
              forward_ps(w) / (k == KernelClass::Conv ? 8 : 1));
  }
}

TEST(StepTimesOf, LayersRunForwardThenBackwardInReverse) {
  Workload w = one_layer(KernelClass::Memory, {0, 0, 5e6, 1}, {0, 0, 10e6, 2});  // 10 us, 20 us
  w.tensors.push_back({"q", {1000}, DType::Float32});
  w.tensors.push_back({"r", {1000}, DType::Float32});
  w.layers.push_back(
      {"m", {}, KernelClass::Memory, {2, 1}, {}, {0, 0, 20e6, 1}, {0, 0, 30e6, 3}});  // 40 us, 60
                                                                                      // us
  w.arrival = {2, 1, 0};
  ASSERT_FALSE(validate(w));
  StepTimes t = step_times(w, profile(), Level::Mid);
  EXPECT_EQ(t.forward, kMicrosecond * 50);
  EXPECT_EQ(t.backward, kMicrosecond * 80);
  EXPECT_EQ(t.ready,
            (std::vector<Duration>{kMicrosecond * 60, kMicrosecond * 60, kMicrosecond * 80}));
  ASSERT_TRUE(t.host);
  EXPECT_EQ(t.host->forward, kMicrosecond * 6);
  EXPECT_EQ(t.host->backward, kMicrosecond * 15);
  EXPECT_EQ(t.host->ready,
            (std::vector<Duration>{kMicrosecond * 9, kMicrosecond * 9, kMicrosecond * 15}));
}

TEST(StepTimesOf, ACpuHaveNoHostTimes) {
  Profile p = profile();
  p.kind = DeviceKind::Cpu;
  EXPECT_FALSE(step_times(one_layer(KernelClass::Memory, {0, 1, 1, 1}), p, Level::Mid).host);
}

TEST(StepTimesOf, HostsOfADatasheetAreSlowestAtTheLowEnd) {
  Profile p = profile();
  const Workload w = one_layer(KernelClass::Gemm, {1e7, 0, 0, 1});
  auto launch = [&](Level level) { return step_times(w, p, level).host->forward.ps; };
  EXPECT_EQ(launch(Level::Mid), 3'000'000);
  EXPECT_EQ(launch(Level::Low), 4'800'000);
  EXPECT_EQ(launch(Level::High), 2'100'000);
  p.host.basis = Evidence::Measured;
  EXPECT_EQ(launch(Level::Low), 3'000'000);
}

TEST(StepTimesOf, ACapturedWorkloadAreItsOwn) {
  Workload w = test::layered(3, 64, kMillisecond, kMillisecond * 2);
  StepTimes t = step_times(w, profile(), Level::Low);
  EXPECT_EQ(t.forward, w.times.forward);
  EXPECT_EQ(t.ready, w.times.ready);
}

TEST(OptimizerTime, IsItsTrafficOrItsKernels) {
  Workload w = one_layer(KernelClass::Memory, {0, 1, 1, 1});
  w.tensors[0].shape = {10'000'000};
  EXPECT_EQ(step_times(w, profile(), Level::Mid).optimizer.ps, 240'000'000);  // 12 B * 1e7 / 0.5e12
  w.tensors[0].shape = {1};
  EXPECT_EQ(step_times(w, profile(), Level::Mid).optimizer, kMicrosecond * 2);
  w.optimizer.momentum = true;  // three passes
  EXPECT_EQ(step_times(w, profile(), Level::Mid).optimizer, kMicrosecond * 6);
  EXPECT_EQ(step_times(w, profile(), Level::Mid).host->optimizer, kMicrosecond * 9);
  w.optimizer.fused = true;
  EXPECT_EQ(step_times(w, profile(), Level::Mid).optimizer, kMicrosecond * 2);
}

TEST(OptimizerTime, WithoutForeachLaunchesEveryPassForEveryTensor) {
  Workload w = one_layer(KernelClass::Memory, {0, 1, 1, 1});
  w.tensors.assign(5, {"p", {1}, DType::Float32});
  EXPECT_EQ(step_times(w, profile(), Level::Mid).optimizer, kMicrosecond * 2);
  w.optimizer.foreach = false;
  EXPECT_EQ(step_times(w, profile(), Level::Mid).optimizer, kMicrosecond * 10);
}

// FSDP's param_dtype: 10 * 1e7 flops at bf16's rate, activations of two bytes; the optimizer keeps
// the weights' four.
TEST(StepTimesOf, AreOfTheHalvesThatWeightsAreGatheredIn) {
  Workload w = one_layer(KernelClass::Gemm, {1e7, 1, 1, 1}, {1e7, 1, 1, 1});
  StepTimes single = step_times(w, profile(), Level::Mid);
  StepTimes halves = step_times(w, profile(), Level::Mid, DType::BFloat16);
  EXPECT_EQ(halves.forward.ps, 50'000'000);
  EXPECT_EQ(halves.backward.ps, 50'000'000);
  EXPECT_EQ(halves.ready, std::vector<Duration>{halves.backward});
  EXPECT_EQ(halves.optimizer, single.optimizer);
  EXPECT_EQ(step_times(w, profile(), Level::Mid, DType::Float32).forward, single.forward);

  Workload gpt = test::workload("gpt2-small");
  const Profile p = test::profile("h100-sxm.datasheet");
  StepTimes gathered = step_times(gpt, p, Level::Mid, DType::BFloat16);
  StepTimes four = step_times(gpt, p, Level::Mid);
  gpt.precision = Precision::Bf16;
  StepTimes autocast = step_times(gpt, p, Level::Mid);
  EXPECT_EQ(step_times(gpt, p, Level::Mid, DType::BFloat16).backward, gathered.backward);
  gpt.casting = Casting::Pure;
  for (Tensor& t : gpt.tensors) t.dtype = DType::BFloat16;
  StepTimes pure = step_times(gpt, p, Level::Mid);
  EXPECT_EQ(gathered.forward, pure.forward);
  EXPECT_EQ(gathered.backward, pure.backward);
  EXPECT_EQ(gathered.host->forward, pure.host->forward);
  EXPECT_EQ(gathered.optimizer, four.optimizer);
  EXPECT_EQ(gathered.host->optimizer, four.host->optimizer);
  EXPECT_LT(gathered.forward, autocast.forward);  // which casts weights in every layer
  EXPECT_LT(pure.optimizer, gathered.optimizer);
}

TEST(StepTimesOf, OfACaptureAreItsOwnWhateverIsGathered) {
  Workload w = test::layered(2, 64, kMillisecond, kMillisecond, DeviceKind::Gpu);
  EXPECT_EQ(step_times(w, profile(), Level::Mid, DType::BFloat16).forward,
            step_times(w, profile(), Level::Mid).forward);
}

TEST(OptimizerTraffic, IsTheTableOfItsPasses) {
  using K = Optimizer::Kind;
  auto bytes = [](K kind, bool momentum, bool decay, bool fused) {
    return optimizer_bytes_per_element({kind, momentum, decay, true, fused});
  };
  EXPECT_EQ(bytes(K::Sgd, false, false, false), 12);
  EXPECT_EQ(bytes(K::Sgd, false, false, true), 12);
  EXPECT_EQ(bytes(K::Sgd, false, true, false), 24);
  EXPECT_EQ(bytes(K::Sgd, false, true, true), 12);
  EXPECT_EQ(bytes(K::Sgd, true, false, false), 32);
  EXPECT_EQ(bytes(K::Sgd, true, false, true), 20);
  EXPECT_EQ(bytes(K::Sgd, true, true, false), 44);
  EXPECT_EQ(bytes(K::Sgd, true, true, true), 20);
  EXPECT_EQ(bytes(K::Adam, false, false, false), 72);
  EXPECT_EQ(bytes(K::Adam, false, true, false), 84);
  EXPECT_EQ(bytes(K::Adam, false, false, true), 28);
  EXPECT_EQ(bytes(K::AdamW, false, true, false), 80);
  EXPECT_EQ(bytes(K::AdamW, false, true, true), 28);
}

TEST(OptimizerTime, CountsTheEighthPassOfAdamW) {
  Workload w = one_layer(KernelClass::Memory, {0, 1, 1, 1});
  w.optimizer.kind = Optimizer::Kind::AdamW;
  EXPECT_EQ(step_times(w, profile(), Level::Mid).optimizer, kMicrosecond * 16);
}

TEST(RooflineProblem, NamesAPrecisionThatTheDeviceLacks) {
  Workload w = one_layer(KernelClass::Gemm, {1, 1, 1, 1});
  EXPECT_EQ(roofline_problem(w, profile()), "");
  w.precision = Precision::Fp16;
  EXPECT_EQ(roofline_problem(w, profile()),
            "profile \"ideal\" has no peak_flops for precision fp16");
  w.precision = Precision::Fp32;
  EXPECT_EQ(roofline_problem(w, profile(), DType::Float16),
            "profile \"ideal\" has no peak_flops for precision fp16");
  EXPECT_EQ(roofline_problem(w, profile(), DType::BFloat16), "");
}

TEST(RooflineProblem, DoesNotCarryACaptureToAnotherKindOfDevice) {
  Workload w = test::layered(1, 64, kMillisecond, kMillisecond, DeviceKind::Cpu);
  EXPECT_NE(roofline_problem(w, profile()).find("was captured on a CPU"), std::string::npos);
  Profile p = profile();
  p.kind = DeviceKind::Cpu;
  EXPECT_EQ(roofline_problem(w, p), "");
}

// ---- price()

struct Priced {
  Program program;
  StepProgram step;
  Profile p = profile();
  Priced() {
    program.tensor_names = {"a", "b", "c"};
    p.host.hook = Duration{100};
    p.host.collective_launch = Duration{1'000};
    p.host.traverse = Duration{10};
  }
  std::int64_t of(const Op& op, Level level = Level::Mid) const {
    return price(op, step, program, p, level).ps;
  }
};

TEST(PriceOf, MeasuredWorkIsItsDuration) {
  Op op;
  op.duration = Duration{77};
  op.traffic = 1'000'000'000;
  EXPECT_EQ(Priced().of(op), 77);
}

TEST(PriceOf, ACopyIsItsTrafficOrItsKernels) {
  Op op;
  op.kind = test::kind_of_op("copy_in/w");
  op.cost = Cost::Memory;
  op.kernels = 1;
  op.traffic = 50'000'000;
  EXPECT_EQ(Priced().of(op), 100'000'000);
  EXPECT_EQ(Priced().of(op, Level::High), 50'000'000);
  op.traffic = 8;
  EXPECT_EQ(Priced().of(op), 2'000'000);
  op.kernels = 3;
  EXPECT_EQ(Priced().of(op), 6'000'000);
  op.hooks = 2;  // on a CPU the hook runs in the same thread
  EXPECT_EQ(Priced().of(op), 6'000'200);
}

// Where operators were measured: each kernel's fixed time, and the traffic beside it.
TEST(PriceOf, ACopyOfAMeasuredGpuIsItsFixedTimesAndItsTraffic) {
  Priced s;
  KernelCosts& k = s.p.costs.emplace();
  k.sms = 100;
  k.bandwidth_bytes_per_s = 1e12;
  k.memory.push_back({"mul_scalar", false, false, false, Duration{3'000'000}, 0.8, {0.9, 1.5}});
  Op op;
  op.kind = test::kind_of_op("copy_out/w");
  op.cost = Cost::Memory;
  op.kernels = 2;
  op.traffic = 8'000'000;  // 10 us at 0.8 TB/s
  EXPECT_EQ(s.of(op), 16'000'000);
  EXPECT_EQ(s.of(op, Level::Low), 24'000'000);
  EXPECT_EQ(s.of(op, Level::High), 14'400'000);
  op.traffic = 0;
  EXPECT_EQ(s.of(op), 6'000'000);
  k.sms = 1;  // a core's kernels are of another kind: the profile's own shortest
  EXPECT_EQ(s.of(op), 4'000'000);
  k.sms = 100;
  k.memory.clear();  // nothing like it was measured
  EXPECT_EQ(s.of(op), 4'000'000);
}

TEST(PriceOf, ALaunchIsItsKernelsItsHooksAndTheCollectivesShare) {
  Priced s;
  s.step.ops.resize(2);
  s.step.ops[1].kind = test::kind_of_op("copy_in/w");
  Op launch;
  launch.kind = test::kind_of_op("launch/fwd");
  launch.lane = Lane::Host;
  launch.cost = Cost::Launch;
  launch.subject = 1;
  launch.kernels = 2;
  launch.hooks = 1;
  launch.duration = Duration{5};
  EXPECT_EQ(s.of(launch), 5 + 100 + 6'000'000);
  launch.cost = Cost::LaunchCollective;
  launch.kernels = 0;
  EXPECT_EQ(s.of(launch), 5 + 100 + 1'000);
}

TEST(PriceOf, FindUnusedGrowsWithTheParameters) {
  Op op;
  op.kind = test::kind_of_op("find_unused");
  op.cost = Cost::Traverse;
  EXPECT_EQ(Priced().of(op), 30);
}

// Asked again, and after other levels and weights were asked for.
TEST(KnownTimes, AreThoseOfTheLevelAndTheWeights) {
  Profile p = profile();
  p.compute.peak_flops[Precision::Bf16] = 3e12;  // no level of halves is one of fp32
  const Workload w = one_layer(KernelClass::Gemm, {1e7, 0, 0, 1}, {2e7, 0, 0, 1});
  KnownTimes known(w, p);
  std::set<std::int64_t> different;
  for (int pass = 0; pass < 2; ++pass)
    for (Level level : {Level::Mid, Level::Low, Level::High})
      for (std::optional<DType> weights :
           {std::optional<DType>{}, std::optional<DType>{DType::BFloat16}}) {
        const StepTimes expected = step_times(w, p, level, weights);
        const StepTimes times = known.of(w, p, level, weights);
        EXPECT_EQ(times.forward, expected.forward);
        EXPECT_EQ(times.backward, expected.backward);
        EXPECT_EQ(times.ready, expected.ready);
        different.insert(expected.forward.ps);
      }
  EXPECT_EQ(different.size(), 6u);
}

TEST(KnownTimes, OfAnotherWorkloadOrProfileAreItsOwn) {
  const Profile p = profile();
  const Workload w = one_layer(KernelClass::Gemm, {1e7, 0, 0, 1});
  KnownTimes known(w, p);
  EXPECT_EQ(known.of(w, p, Level::Mid).forward.ps, 200'000'000);
  Workload twice = w;
  twice.batch *= 2;
  EXPECT_EQ(known.of(twice, p, Level::Mid).forward.ps, 400'000'000);
  Profile slow = p;
  slow.compute.peak_flops[Precision::Fp32] /= 4;
  EXPECT_EQ(known.of(w, slow, Level::Mid).forward.ps, 800'000'000);
  EXPECT_EQ(known.of(w, p, Level::Mid).forward.ps, 200'000'000);
}

// A captured step was computed when it was captured, whatever its weights are gathered in.
TEST(Precision, IsOfTheWeightsAsGatheredWhereTheStepIsDescribed) {
  Workload w = one_layer(KernelClass::Gemm, {1e7, 0, 0, 1});
  EXPECT_EQ(computed_in(w, std::nullopt), Precision::Fp32);
  EXPECT_EQ(computed_in(w, DType::BFloat16), Precision::Bf16);
  EXPECT_EQ(computed_in(w, DType::Float16), Precision::Fp16);
  EXPECT_EQ(computed_in(w, DType::Float32), Precision::Fp32);
  w.basis = Basis::Captured;
  EXPECT_EQ(computed_in(w, DType::BFloat16), Precision::Fp32);
}

}  // namespace
}  // namespace ddpsim::predict
