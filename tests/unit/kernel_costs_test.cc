// Products by tiles and waves, traffic by kind of kernel, autocast's casts: by hand; and the fit of
// their constants from samples that were made from planted ones.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "calib/fit/host.h"
#include "calib/fit/kernels.h"
#include "calib/fit/operators.h"
#include "calib/fit/points.h"
#include "calib/fit/shapes.h"
#include "sim/cost/carry.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/layer_time.h"
#include "sim/cost/roofline.h"
#include "sim/io/codecs.h"
#include "sim/predict/joint_spread.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using predict::Product;
using predict::with_joint_spread;

// 100 SMs, 1 TFLOP/s each by tiles of 256 x 128; 1 TB/s; a kernel takes 2 us.
ProductCost product_cost(const std::string& kernel, Precision p) {
  ProductCost c;
  c.kernel = kernel;
  c.precision = p;
  c.flops_per_s = 1e14;
  c.fixed = kMicrosecond * 2;
  c.wave = kMicrosecond;
  c.split = kMicrosecond * 5;
  c.tile = {1, 0.8, 0.5, 0.5, 0.25};
  c.unaligned = {0.9, 0.25, 0.125};
  c.pass = {1, 0.9, 0.7};
  return c;
}

KernelCosts costs() {
  KernelCosts k;
  k.source = "by hand";
  k.sms = 100;
  k.bandwidth_bytes_per_s = 1e12;
  k.products = {product_cost("gemm", Precision::Bf16), product_cost("gemm", Precision::Fp32),
                product_cost("gemm", Precision::Tf32), product_cost("conv", Precision::Bf16),
                product_cost("conv", Precision::Tf32)};
  for (ProductCost& c : k.products)
    if (c.kernel == "conv") c.conversion = 2;
  for (bool halves : {false, true})
    k.memory.push_back({"add", false, halves, false, kMicrosecond * 2, 1, {}});
  k.memory.push_back({"layer_norm", false, false, false, kMicrosecond * 4, 0.5, {}});
  k.memory.push_back({"layer_norm", true, false, false, kMicrosecond * 6, 0.25, {0.8, 1.5}});
  k.memory.push_back({"adamw_foreach", false, false, false, kMicrosecond * 2, 0.8, {}});
  k.attention = {{false, true, false, 1e14, kMicrosecond * 2, kMicrosecond, {}},
                 {true, true, false, 1e14, kMicrosecond * 2, kMicrosecond, {}}};
  return k;
}

// Without traffic, so that the tiles decide.
Product product(double rows, double columns, double sum) {
  Product q;
  q.rows = rows;
  q.columns = columns;
  q.sum = sum;
  return q;
}

TEST(KernelTime, AProductTakesItsWaves) {
  KernelCosts k = costs();
  const ProductCost& c = k.products[0];
  // 100 tiles of 256 x 128 on 100 SMs: 2 * 256 * 128 * 512 flops at 1 TFLOP/s, and 1 us, and 2 us.
  double one = 2.0 * 256 * 128 * 512 / 1.0 + 1e6;
  EXPECT_NEAR(predict::product_ps(product(25'600, 128, 512), c, k), 2e6 + one, 1);
  // One row more: another wave, of the tiles that take least.
  EXPECT_GT(predict::product_ps(product(25'601, 128, 512), c, k), 2e6 + 1.2 * one);
  EXPECT_LE(predict::product_ps(product(25'601, 128, 512), c, k), 2e6 + 2 * one);
}

TEST(KernelTime, ALongSumIsSplitWhereThatIsShorter) {
  KernelCosts k = costs();
  const ProductCost& c = k.products[0];
  double whole = 2e6 + 2.0 * 256 * 128 * 1e6 + 1e6;
  EXPECT_LT(predict::product_ps(product(256, 128, 1e6), c, k), whole / 20);
  // A short sum: eight tiles of 64 x 64, of a quarter of the rate, on eight SMs.
  EXPECT_NEAR(predict::product_ps(product(256, 128, 256), c, k), 3e6 + 2.0 * 64 * 64 * 256 / 0.25,
              1);
}

TEST(KernelTime, RowsThatAreNotAlignedAreSlower) {
  EXPECT_EQ(predict::alignment(768, Precision::Bf16), 16);
  EXPECT_EQ(predict::alignment(50'257, Precision::Bf16), 2);
  EXPECT_EQ(predict::alignment(50'257, Precision::Tf32), 4);
  EXPECT_EQ(predict::alignment(30'522, Precision::Bf16), 4);
  KernelCosts k = costs();
  const ProductCost& c = k.products[0];
  auto took = [&](std::int64_t outputs) {
    return predict::product_ps(
        predict::linear_product(8192, 768, outputs, Pass::Forward, Precision::Bf16), c, k);
  };
  EXPECT_GT(took(50'257), 5 * took(50'264));
  EXPECT_LT(took(50'257), 8 * took(50'264));
}

TEST(KernelTime, NchwConvertsAroundAConvolution) {
  KernelCosts k = costs();
  const ProductCost& c = *find_product(k, "conv", Precision::Bf16);
  predict::ConvShape s{64, 256, 14, 256, 3, 14};
  double nhwc = predict::conv_ps(s, Pass::Forward, true, c, k);
  double nchw = predict::conv_ps(s, Pass::Forward, false, c, k);
  // Image and result of 64 * 256 * 196 halves, filters of 256 * 256 * 9: twice at 1 TB/s.
  double bytes = 2.0 * (2 * 64 * 256 * 196 + 256 * 256 * 9);
  EXPECT_NEAR(nchw - nhwc, 3 * 2e6 + 2 * bytes, 1);
  // 1 x 1 needs none where its pixels are aligned.
  predict::ConvShape one{64, 256, 56, 64, 1, 56};
  EXPECT_EQ(predict::conv_ps(one, Pass::Forward, false, c, k),
            predict::conv_ps(one, Pass::Forward, true, c, k));
}

TEST(KernelTime, AGroupIsAProductOfItsOwn) {
  predict::ConvShape s{64, 256, 14, 512, 3, 14, 32};
  Product q = predict::conv_product(s, Pass::Forward, Precision::Bf16);
  EXPECT_EQ(q.count, 32);
  EXPECT_EQ(q.rows, 64 * 196);
  EXPECT_EQ(q.columns, 16);
  EXPECT_EQ(q.sum, 8 * 9);
  EXPECT_EQ(q.bytes, 2.0 * (64 * 256 * 196 + 64 * 512 * 196 + 8 * 512 * 9));
  q = predict::conv_product(s, Pass::DataGradient, Precision::Bf16);
  EXPECT_EQ(q.columns, 8);
  EXPECT_EQ(q.sum, 16 * 9);
  q = predict::conv_product(s, Pass::WeightGradient, Precision::Bf16);
  EXPECT_EQ(q.rows, 16);
  EXPECT_EQ(q.columns, 8 * 9);
  // A 32nd of the operations of one group, and far less than 32 times as fast: no tile is full.
  KernelCosts k = costs();
  const ProductCost& c = *find_product(k, "conv", Precision::Bf16);
  predict::ConvShape one = s;
  one.groups = 1;
  double grouped = predict::conv_ps(s, Pass::Forward, true, c, k);
  double whole = predict::conv_ps(one, Pass::Forward, true, c, k);
  EXPECT_GT(grouped, whole / 8);
}

TEST(KernelTime, ACausalRowOfBlocksEndsAtTheDiagonal) {
  KernelCosts k = costs();
  predict::AttentionShape a{4, 12, 1024, 64, false};
  double full = predict::attention_ps(a, k.attention[0], k) - 2e6;
  a.causal = true;
  EXPECT_NEAR(predict::attention_ps(a, k.attention[0], k) - 2e6, full * 9 / 16, 1);
}

// ---- layers

Layer linear(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out) {
  Layer l;
  l.name = name;
  l.kernel = KernelClass::Gemm;
  l.op.kind = "linear";
  l.op.rows = rows, l.op.inputs = in, l.op.outputs = out;
  double flops = 2.0 * static_cast<double>(rows * in * out);
  l.forward = {flops, 4.0 * static_cast<double>(rows * (in + out)), 0, 1};
  l.backward = {2 * flops, 8.0 * static_cast<double>(rows * (in + out)), 0, 2};
  return l;
}

Layer norm(std::int64_t elements) {
  Layer l;
  l.name = "norm";
  l.op.kind = "layer_norm";
  auto n = static_cast<double>(elements);
  l.forward = {0, 8 * n, 0, 1};
  l.backward = {0, 20 * n, 0, 2};
  return l;
}

Workload described(std::vector<Layer> layers, Precision precision) {
  Workload w;
  w.name = "w";
  w.basis = Basis::Described;
  w.batch = 4;
  w.precision = precision;
  w.tensors = {{"p", {1000}, DType::Float32}};
  w.arrival = {0};
  layers.front().tensors = {0};
  w.layers = std::move(layers);
  return w;
}

Profile measured() {
  Profile p = ideal_profile({});
  p.compute.peak_flops = {1e12, 1e12, 1e12, 1e12};
  p.costs = costs();
  return p;
}

TEST(LayerTime, AutocastCastsWhatASingleReads) {
  Profile p = measured();
  const KernelCosts& k = *p.costs;
  // layer_norm is single, a product half: its input and its weight are cast, and their gradients.
  std::vector<Layer> layers{norm(1024 * 1024), linear("l", 1024, 1024, 1024)};
  auto half = predict::layer_times(described(layers, Precision::Bf16), p, Level::Mid).layers;
  auto single = predict::layer_times(described(layers, Precision::Fp32), p, Level::Mid).layers;
  ASSERT_TRUE(half[0] && half[1] && single[0] && single[1]);
  EXPECT_EQ(half[0]->forward, single[0]->forward) << "layer_norm is single in both";
  auto product = [&](Pass pass) {
    Product q = predict::linear_product(4096, 1024, 1024, pass, Precision::Bf16);
    return predict::product_ps(q, k.products[0], k);
  };
  double casts = 2 * 2e6 + 6.0 * (4096.0 * 1024 + 1024.0 * 1024);
  EXPECT_NEAR(static_cast<double>(half[1]->forward.ps), product(Pass::Forward) + casts, 1);
  EXPECT_NEAR(static_cast<double>(half[1]->backward.ps),
              product(Pass::DataGradient) + product(Pass::WeightGradient) + casts, 1);
}

TEST(LayerTime, HalvesAreNotCastAgain) {
  Profile p = measured();
  std::vector<Layer> two{linear("a", 1024, 1024, 1024), linear("b", 1024, 1024, 1024)};
  auto times = predict::layer_times(described(two, Precision::Bf16), p, Level::Mid).layers;
  // The first reads what the model was given, in single precision.
  EXPECT_EQ(times[0]->forward.ps - times[1]->forward.ps, 2'000'000 + 6 * 4096 * 1024);
  Workload pure = described(two, Precision::Bf16);
  pure.tensors[0].dtype = DType::BFloat16;
  auto without = predict::layer_times(pure, p, Level::Mid).layers;
  EXPECT_EQ(times[1]->forward.ps - without[1]->forward.ps, 2'000'000 + 6 * 1024 * 1024);
}

// A block a channel: 64 channels leave SMs of 100 idle, 256 (the bench's) need three waves.
TEST(LayerTime, BatchNormalisationOfFewChannelsLeavesSmsIdle) {
  Profile p = measured();
  p.costs->memory.push_back({"batch_norm", false, false, false, {}, 1, {}});
  p.costs->memory.push_back({"batch_norm", true, false, false, {}, 1, {}});
  auto forward = [&](std::int64_t channels, bool last) {
    Layer l;
    l.op.kind = "batch_norm";
    l.forward = {0, 12e6, 0, 1};
    l.backward = {0, 20e6, 0, 1};
    Workload w = described({l}, Precision::Fp32);
    w.tensors[0].shape = {channels};
    w.channels_last = last;
    return static_cast<double>(predict::layer_times(w, p, Level::Mid).layers[0]->forward.ps);
  };
  EXPECT_NEAR(forward(64, false) / forward(256, false), (100.0 / 64) / (300.0 / 256), 1e-6);
  EXPECT_EQ(forward(64, true), forward(256, true));
}

// What was not measured is priced as a plain element-wise kernel, of as many bytes.
TEST(LayerTime, TheNearestThatWasMeasured) {
  KernelCosts k = costs();
  EXPECT_EQ(find_memory(k, "layer_norm", true, false, true)->efficiency, 0.25) << "any layout";
  EXPECT_EQ(find_memory(k, "add", true, true, false)->op, "add");
  EXPECT_EQ(find_memory(k, "swish", true, true, true)->op, "add");
  k.memory.clear();
  EXPECT_EQ(find_memory(k, "add", false, false, false), nullptr);
}

TEST(LayerTime, TheIntervalIsTheHeldOutSpread) {
  Profile p = measured();
  Workload w = described({norm(1 << 20)}, Precision::Fp32);
  auto at = [&](Level level) { return predict::layer_times(w, p, level).layers[0]->backward.ps; };
  double mid = static_cast<double>(at(Level::Mid));
  EXPECT_NEAR(static_cast<double>(at(Level::Low)) / mid, 1.5, 1e-6);
  EXPECT_NEAR(static_cast<double>(at(Level::High)) / mid, 0.8, 1e-6);
}

// What is computed in a step.
double computed(const Workload& w, const Profile& p, Level level) {
  StepTimes t = predict::step_times(w, p, level);
  return static_cast<double>((t.forward + t.backward + t.optimizer).ps);
}

TEST(JointSpread, WhatWasFittedApartErrsApart) {
  Profile p = measured();
  Workload w = described({norm(1 << 20)}, Precision::Fp32);
  auto spread = [&](bool backward) -> Spread& {
    return const_cast<MemoryCost*>(find_memory(*p.costs, "layer_norm", backward, false, false))
        ->spread;
  };
  auto off = [&](const Profile& q, Level level) {
    return std::abs(computed(w, q, level) - computed(w, q, Level::Mid));
  };
  Profile alone[2];
  for (bool backward : {false, true}) {
    spread(backward) = {0.9, 1.3};
    spread(!backward) = {};
    alone[backward] = p;
    // One part is as far off as its shapes are.
    EXPECT_NEAR(off(with_joint_spread(w, p, 1), Level::Low), off(p, Level::Low), 2);
  }
  spread(false) = spread(true) = {0.9, 1.3};
  for (Level level : {Level::Low, Level::High}) {
    double a = off(alone[0], level);
    double b = off(alone[1], level);
    EXPECT_GT(std::min(a, b), 0.2 * std::max(a, b));
    EXPECT_NEAR(off(p, level), a + b, 2) << "all at their ends at once";
    EXPECT_NEAR(off(with_joint_spread(w, p, 1), level), std::sqrt(a * a + b * b), 1e-3 * a);
  }
}

TEST(JointSpread, WhatWasNotMeasuredStaysAsItIs) {
  Workload w = described({norm(1 << 20)}, Precision::Fp32);
  w.basis = Basis::Captured;
  EXPECT_EQ(with_joint_spread(w, measured(), 1).costs->memory[3].spread.slow, 1.5);
  EXPECT_FALSE(with_joint_spread(w, ideal_profile({}), 1).costs);
}

TEST(LayerTime, FusedAttentionStandsForItsParts) {
  Workload w = workload("gpt2-small");
  w.precision = Precision::Bf16;
  Profile p = measured();
  Duration parts = predict::step_times(w, p, Level::Mid).forward;
  w.fused_attention = true;
  auto times = predict::layer_times(w, p, Level::Mid).layers;
  int priced = 0;
  for (std::size_t i = 0; i < w.layers.size(); ++i)
    if (w.layers[i].op.attention) priced += times[i]->forward.ps > 0;
  EXPECT_EQ(priced, 12) << "one kernel a block";
  EXPECT_LT(predict::step_times(w, p, Level::Mid).forward, parts);
}

TEST(LayerTime, WhatDoesNotSayWhatItComputesIsPricedAsBefore) {
  Workload w = workload("resnet18");
  Profile p = profile("h100-sxm.datasheet");
  p.costs.reset();
  Duration plain = predict::step_times(w, p, Level::Mid).forward;
  for (Layer& l : w.layers) l.op = {};
  p.costs = costs();
  EXPECT_EQ(predict::step_times(w, p, Level::Mid).forward, plain);
}

TEST(LayerTime, ADepthwiseConvolutionIsTraffic) {
  Layer l;
  l.name = "depthwise";
  l.kernel = KernelClass::Conv;
  l.op.kind = "conv";
  l.op.channels = l.op.filters = l.op.groups = 1024;
  l.op.size = l.op.out = 28;
  l.op.kernel = 3;
  double flops = 2.0 * 1024 * 9 * 28 * 28;
  l.forward = {flops, 8.0 * 1024 * 28 * 28, 4.0 * 1024 * 9, 1};
  l.backward = {2 * flops, 16.0 * 1024 * 28 * 28, 8.0 * 1024 * 9, 2};
  Workload w = described({l}, Precision::Fp32);
  EXPECT_FALSE(validate(w));
  // Image, result and filters once at 1 TB/s, in a kernel of 2 us; twice in backward. No
  // conversion around it.
  double ps = 2e6 + 4.0 * (2 * 4 * 1024 * 784 + 1024 * 9);
  auto times = predict::layer_times(w, measured(), Level::Mid).layers;
  EXPECT_NEAR(static_cast<double>(times[0]->forward.ps), ps, 1);
  EXPECT_NEAR(static_cast<double>(times[0]->backward.ps), 2 * ps, 1);
}

TEST(LayerTime, AMeasuredCallOfTheHostReplacesItsLaunches) {
  Workload w = described({linear("l", 1, 64, 64)}, Precision::Fp32);
  Profile p = measured();
  p.host.launch = kMicrosecond * 5;
  EXPECT_EQ(predict::step_times(w, p, Level::Mid).host->backward, kMicrosecond * 10);
  p.host.basis = Evidence::Measured;
  p.host.calls = {{"linear", kMicrosecond * 17, kMicrosecond * 19}};
  EXPECT_EQ(predict::step_times(w, p, Level::Mid).host->forward, kMicrosecond * 17);
  EXPECT_EQ(predict::step_times(w, p, Level::Mid).host->backward, kMicrosecond * 19);
}

TEST(Workloads, WhatALayerComputesAgreesWithItsCosts) {
  Workload w = workload("resnet18");
  EXPECT_FALSE(validate(w));
  w.layers[0].op.filters *= 2;
  EXPECT_TRUE(validate(w)) << "other operations than flops_per_sample";
  w = workload("resnext50-32x4d");
  EXPECT_FALSE(validate(w));
  for (Layer& l : w.layers)
    if (l.op.groups > 1) l.op.groups = 24;  // of 128 channels
  EXPECT_NE(validate(w).message.find("groups"), std::string::npos);
}

// ---- the fit

// Samples as PyTorch's bench gives them, from planted constants.
ddpsim::Run planted(const KernelCosts& k, double scale_held_out = 1) {
  ddpsim::Run r;
  r.kind = RunKind::Measured;
  r.evidence = EvidenceClass::Kernel;
  r.origin.gpu = "NVIDIA H100 80GB HBM3 (100 SMs, 81079 MiB; made up)";
  auto add = [&](const std::string& op, std::map<std::string, std::int64_t> parameters, double ps) {
    if (calib::held_out(op, parameters)) ps *= scale_held_out;
    r.samples.push_back({op, std::move(parameters), {{static_cast<std::int64_t>(ps)}}});
  };
  for (Precision p : {Precision::Bf16, Precision::Fp32})
    for (const calib::Gemm& g : calib::gemm_shapes())
      for (Pass pass : {Pass::Forward, Pass::DataGradient, Pass::WeightGradient}) {
        auto parameters = calib::parameters(g, p);
        parameters["pass"] = static_cast<std::int64_t>(pass);
        add("torch/linear", parameters,
            predict::product_ps(predict::linear_product(g.m, g.k, g.n, pass, p),
                                *find_product(k, "gemm", p), k));
      }
  for (std::int64_t n : {1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26})
    for (auto [op, per] : {std::pair{"add", 12.0}, {"layer_norm", 8.0}})
      add(std::string("torch/pointwise/") + op,
          {{"elements", n}, {"pass", 0}, {"precision", 0}, {"channels_last", 0}},
          predict::memory_ps(per * static_cast<double>(n), 1,
                             *find_memory(k, op, false, false, false), k));
  constexpr std::int64_t kCudnn = 3;
  for (std::int64_t sequence : {256, 512, 1024, 2048, 4096})
    for (std::int64_t dim : {64, 128})
      for (bool causal : {false, true})
        for (bool back : {false, true})
          add("torch/attention",
              {{"batch", 8},
               {"heads", 16},
               {"sequence", sequence},
               {"dim", dim},
               {"causal", causal},
               {"kind", kCudnn},
               {"pass", back},
               {"precision", static_cast<std::int64_t>(Precision::Bf16)}},
              predict::attention_ps({8, 16, sequence, dim, causal},
                                    *find_attention(k, back, true, false), k));
  return r;
}

TEST(FitOfOperators, FindsWhatTheSamplesWereMadeFrom) {
  KernelCosts k = costs();
  ddpsim::Run run = planted(k);
  calib::OperatorFit f = calib::fit_operators(100, {&run});
  EXPECT_NEAR(f.costs.bandwidth_bytes_per_s / 1e12, 1, 0.01);
  EXPECT_NEAR(find_memory(f.costs, "layer_norm", false, false, false)->efficiency, 0.5, 0.005);
  const ProductCost* c = find_product(f.costs, "gemm", Precision::Bf16);
  ASSERT_NE(c, nullptr);
  EXPECT_NEAR(c->flops_per_s / 1e14, 1, 0.01);
  EXPECT_NEAR(c->unaligned[2], 0.125, 0.00125);
  EXPECT_NEAR(c->pass[Pass::WeightGradient], 0.7, 0.007);
  for (const KernelResidual& r : f.residuals) {
    EXPECT_LE(r.median_error, 0.01) << r.kernel << (r.held_out ? " held out" : "");
    EXPECT_LE(r.p90_error, 0.05) << r.kernel << (r.held_out ? " held out" : "");
  }
  EXPECT_TRUE(std::any_of(f.residuals.begin(), f.residuals.end(), [](const KernelResidual& r) {
    return r.held_out && r.kernel == "gemm bf16" && r.points > 20;
  }));
}

TEST(FitOfOperators, SeesNothingOfHeldOutShapesAndTheSpreadDoes) {
  KernelCosts k = costs();
  ddpsim::Run run = planted(k);
  ddpsim::Run other = planted(k, 2);
  ddpsim::Run quick = planted(k, 0.5);
  calib::OperatorFit a = calib::fit_operators(100, {&run});
  calib::OperatorFit b = calib::fit_operators(100, {&other});
  auto all_but_spreads = [](KernelCosts c) {
    for (ProductCost& each : c.products) each.spread = {};
    for (MemoryCost& each : c.memory) each.spread = {};
    for (AttentionCost& each : c.attention) each.spread = {};
    c.common = c.common_conv = {};
    Profile p = profile("h100-sxm.datasheet");
    p.costs = c;
    return io::write_profile(p, {}).dump(1);
  };
  EXPECT_EQ(a.costs.attention.size(), 2u);
  EXPECT_EQ(all_but_spreads(a.costs), all_but_spreads(b.costs));
  EXPECT_EQ(all_but_spreads(a.costs), all_but_spreads(calib::fit_operators(100, {&quick}).costs));
  EXPECT_LT(a.costs.products[0].spread.slow, 1.1);
  EXPECT_NEAR(b.costs.products[0].spread.slow, 2, 0.1);
  // A shape is left out in every pass and precision.
  auto shape = calib::parameters(calib::Gemm{8192, 768, 3072}, Precision::Bf16);
  bool out = calib::held_out("torch/linear", shape);
  for (std::int64_t p = 0; p < 4; ++p)
    for (std::int64_t pass = 0; pass < 3; ++pass) {
      shape["precision"] = p;
      shape["pass"] = pass;
      EXPECT_EQ(calib::held_out("torch/linear", shape), out);
    }
}

TEST(FitOfOperators, AStrangerIsJudgedByItsDatasheet) {
  KernelCosts k = costs();
  ddpsim::Run run = planted(k);
  Profile from = profile("h100-sxm.datasheet");
  Profile to = profile("h200-sxm.datasheet");
  from.costs = k;
  KernelCosts there = predict::carried(from, to);
  EXPECT_NEAR(there.bandwidth_bytes_per_s / k.bandwidth_bytes_per_s, 4.8 / 3.35, 1e-3);
  EXPECT_EQ(there.products[0].flops_per_s, k.products[0].flops_per_s);
  for (const KernelResidual& r : calib::judge_operators(k, {&run})) {
    EXPECT_TRUE(r.held_out);
    EXPECT_LT(r.p90_error, 1e-3) << r.kernel;
  }
  to.compute.clock_hz /= 2;  // what its SMs ask for, and what a wave costs
  for (const KernelResidual& r : calib::judge_operators(predict::carried(from, to), {&run})) {
    if (r.kernel == "memory") {
      EXPECT_GT(r.median_error, 0.2);
    }
  }
}

TEST(FitOfKernels, RefusesNoiseAndAnotherGpu) {
  Profile h100 = profile("h100-sxm.datasheet");
  Profile h200 = profile("h200-sxm.datasheet");
  ddpsim::Run run = planted(costs());
  EXPECT_EQ(calib::refused(h100, {&run}), "");
  EXPECT_NE(calib::refused(h200, {&run}).find("is of NVIDIA H100 80GB HBM3"), std::string::npos);
  run.origin.gpu = "a GPU (100 SMs, 143155 MiB)";  // no name: its memory tells
  EXPECT_NE(calib::refused(h100, {&run}).find("143155 MiB"), std::string::npos);
  EXPECT_EQ(calib::refused(h200, {&run}), "");
  run.quality.verdict = Verdict::Noisy;
  run.quality.reasons = {"hot"};
  EXPECT_NE(calib::refused(h200, {&run}).find("noisy (hot)"), std::string::npos);
  EXPECT_EQ(calib::gpu_size("NVIDIA H200 (132 SMs, 143155 MiB; driver)").sms, 132);
  EXPECT_EQ(calib::gpu_size("NVIDIA H200").sms, 0);
}

TEST(FitOfKernels, CudasLaunchIsNotAFrameworksCall) {
  ddpsim::Run run = planted(costs());
  run.samples.push_back({"launch", {}, {{2'000'000}}});
  Profile base = profile("h100-sxm.datasheet");
  Profile p = base;
  std::vector<std::string> notes;
  calib::fit_host({&run}, p, notes);
  EXPECT_EQ(p.host.launch, base.host.launch);
  for (auto [op, us] :
       {std::pair{"add/no_grad", 9}, {"linear_module/forward", 17}, {"linear_module/backward", 19}})
    run.samples.push_back(
        {std::string("torch_host/") + op, {{"per_call", 50}}, {{us * 1'000'000}}});
  calib::fit_host({&run}, p, notes);
  EXPECT_EQ(p.host.launch, kMicrosecond * 9);
  ASSERT_EQ(p.host.calls.size(), 1u);
  EXPECT_EQ(p.host.calls[0].backward, kMicrosecond * 19);
}

TEST(Profiles, KernelsAreWrittenAndReadAgain) {
  Profile p = profile("h100-sxm.datasheet");
  p.costs = costs();
  p.host.calls = {{"linear", kMicrosecond * 17, kMicrosecond * 19}};
  std::string text = io::write_profile(p, {}).dump();
  Profile again = io::read_profile(io::parse_json(text, "p"), "p");
  ASSERT_TRUE(again.costs.has_value());
  const ProductCost* conv = find_product(*again.costs, "conv", Precision::Bf16);
  ASSERT_NE(conv, nullptr);
  EXPECT_EQ(conv->conversion, 2);
  EXPECT_EQ(conv->unaligned, p.costs->products[3].unaligned);
  EXPECT_EQ(conv->pass, p.costs->products[3].pass);
  EXPECT_EQ(conv->tile, p.costs->products[3].tile);
  EXPECT_EQ(again.costs->attention[0].block, kMicrosecond);
  EXPECT_EQ(again.host.calls[0].backward, kMicrosecond * 19);
  EXPECT_EQ(io::write_profile(again, {}).dump(), text);
  p.costs->products[0].spread = {1.1, 1};
  EXPECT_TRUE(validate(p));
  p = again;
  p.costs->sms = 0;
  EXPECT_TRUE(validate(p));
}

}  // namespace
}  // namespace ddpsim::test
