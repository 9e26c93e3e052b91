// One core of a CPU: products without waves, and what each operator costs there.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "calib/fit/points.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/layer_time.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

// 50 GFLOP/s, 10 GB/s, a call takes 2 us; a gradient of weights goes half as fast.
KernelCosts core() {
  KernelCosts k;
  k.source = "by hand";
  k.sms = 1;
  k.bandwidth_bytes_per_s = 1e10;
  for (const char* kernel : {"gemm", "conv"}) {
    ProductCost c;
    c.kernel = kernel;
    c.flops_per_s = 5e10;
    c.fixed = kMicrosecond * 2;
    c.wave = kMicrosecond;
    c.pass = {1, 1, 0.5};
    c.conversion = 2;
    k.products.push_back(c);
  }
  k.memory = {{"add", false, false, false, kMicrosecond * 2, 1, {}},
              {"tanh", false, false, false, kMicrosecond * 2, 0.1, {}},
              {"relu", false, false, false, kMicrosecond * 2, 0.8, {}},
              {"depthwise", false, false, false, kMicrosecond * 2, 0.5, {}},
              {"depthwise", true, false, false, kMicrosecond * 2, 0.25, {}}};
  return k;
}

TEST(KernelTime, ACoreFillsRegistersAndHasNoWaves) {
  KernelCosts k = core();
  predict::Product q = predict::linear_product(100, 20, 30, Pass::Forward, Precision::Fp32);
  double flops = 2.0 * 104 * 32 * 20 / 0.05 + 1e6;  // 100 rows as 104, 30 columns as 32
  double bytes = 4.0 * (100 * 30 + 100 * 20 + 20 * 30) / 0.01;
  EXPECT_NEAR(predict::product_ps(q, k.products[0], k), 2e6 + flops + 2 * bytes, 1);
  q.pass = Pass::WeightGradient;
  EXPECT_NEAR(predict::product_ps(q, k.products[0], k), 2e6 + 2 * (flops - 1e6) + 1e6 + 2 * bytes,
              1);
}

TEST(KernelTime, ACoreTakesTheProductsOfABatchOneByOne) {
  KernelCosts k = core();
  predict::Product q = predict::linear_product(64, 64, 64, Pass::Forward, Precision::Fp32);
  q.bytes = 0;
  double one = predict::product_ps(q, k.products[0], k) - 2e6;
  q.count = 12;
  EXPECT_NEAR(predict::product_ps(q, k.products[0], k), 2e6 + 12 * one, 1);
}

TEST(KernelTime, ACorePacksEveryConvolution) {
  KernelCosts k = core();
  predict::ConvShape s{4, 64, 16, 64, 1, 16};
  double bytes = 4.0 * (2 * 4 * 64 * 256 + 64 * 64);
  double flops = 2.0 * 4 * 256 * 64 * 64 / 0.05;
  for (bool last : {false, true})
    EXPECT_NEAR(predict::conv_ps(s, Pass::Forward, last, k.products[1], k),
                2e6 + flops + 1e6 + 2 * bytes / 0.01, 1);
}

Workload of(Layer l) {
  Workload w;
  w.name = "w";
  w.basis = Basis::Described;
  w.batch = 4;
  w.precision = Precision::Fp32;
  w.tensors = {{"p", {1000}, DType::Float32}};
  w.arrival = {0};
  l.tensors = {0};
  w.layers = {std::move(l)};
  return w;
}

TEST(LayerTime, OfACoreIsItsOwnOperators) {
  Profile p = ideal_profile({});
  p.costs = core();
  Layer l;
  l.name = "tanh";
  l.op.kind = "tanh";
  l.forward = {0, 8e6, 0, 1};
  auto took = [&] { return predict::layer_times(of(l), p, Level::Mid).layers[0]->forward.ps; };
  EXPECT_NEAR(static_cast<double>(took()), 2e6 + 4 * 8e6 / 0.001, 1);
  p.costs->sms = 100;  // on a GPU it moves as a ReLU does
  EXPECT_NEAR(static_cast<double>(took()), 2e6 + 4 * 8e6 / 0.008, 1);
}

TEST(LayerTime, ADepthwiseConvolutionOfACoreHasCostsOfItsOwn) {
  Profile p = ideal_profile({});
  p.costs = core();
  Layer l;
  l.name = "conv";
  l.kernel = KernelClass::Conv;
  l.op.kind = "conv";
  l.op.channels = l.op.filters = l.op.groups = 32;
  l.op.size = l.op.out = 8;
  l.op.kernel = 3;
  double flops = 2.0 * 32 * 9 * 64;
  l.forward = {flops, 4.0 * 2 * 32 * 64, 0, 1};
  l.backward = {2 * flops, 8.0 * 2 * 32 * 64, 0, 2};
  auto took = *predict::layer_times(of(l), p, Level::Mid).layers[0];
  double bytes = 4.0 * (2 * 4 * 32 * 64 + 32 * 9);
  EXPECT_NEAR(static_cast<double>(took.forward.ps), 2e6 + bytes / 0.005, 1);
  EXPECT_NEAR(static_cast<double>(took.backward.ps), 2 * (2e6 + bytes / 0.0025), 1);
}

TEST(Points, BatchesOfProductsAreProducts) {
  ddpsim::Run run;
  run.samples = {{"torch/linear", {{"m", 8}, {"n", 8}, {"k", 8}, {"precision", 0}}, {{5}}},
                 {"torch/bmm",
                  {{"count", 3}, {"m", 16}, {"n", 8}, {"k", 24}, {"pass", 1}, {"precision", 0}},
                  {{7}}}};
  calib::Points points = calib::points_of(1, {&run});
  ASSERT_EQ(points.products.size(), 2U);
  const calib::ProductPoint& q = points.products[1];
  EXPECT_EQ(q.product.count, 3);
  EXPECT_EQ(q.flops, 3 * 2.0 * 16 * 8 * 24);
  EXPECT_EQ(q.product.columns, 24);
  EXPECT_EQ(q.ps, 7);
}

}  // namespace
}  // namespace ddpsim::test
