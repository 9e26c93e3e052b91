// Kernels carried over from a measured GPU to one that only has a datasheet, and how halves train.
#include "sim/cost/carry.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/kernel_time.h"
#include "sim/cost/roofline.h"
#include "sim/io/codecs.h"
#include "sim/io/reference_gpu.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using predict::carried;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

const Profile& reference() {
  return io::reference_gpu();
}

TEST(Carried, ToTheSameGpuIsWhatWasMeasured) {
  KernelCosts same = carried(reference(), reference());
  const KernelCosts& measured = *reference().costs;
  ASSERT_EQ(same.products.size(), measured.products.size());
  for (std::size_t i = 0; i < same.products.size(); ++i) {
    EXPECT_NEAR(same.products[i].flops_per_s, measured.products[i].flops_per_s, 1);
    EXPECT_EQ(same.products[i].fixed, measured.products[i].fixed);
  }
  for (std::size_t i = 0; i < same.memory.size(); ++i)
    EXPECT_NEAR(same.memory[i].efficiency, measured.memory[i].efficiency, 1e-12);
  EXPECT_EQ(same.sms, 132);
}

TEST(Carried, TwiceTheBandwidthHelpsWhatTheBandwidthLimits) {
  Profile to = reference();
  to.memory.bandwidth_bytes_per_s *= 2;
  KernelCosts there = carried(reference(), to);
  auto speedup = [&](const char* op, bool backward, bool halves) {
    auto rate = [&](const KernelCosts& k) {
      return k.bandwidth_bytes_per_s * find_memory(k, op, backward, halves, false)->efficiency;
    };
    return rate(there) / rate(*reference().costs);
  };
  EXPECT_GT(speedup("relu", false, false), 1.4);
  EXPECT_GT(speedup("sum", false, false), 1.99) << "the bandwidth alone";
  EXPECT_LT(speedup("batch_norm", false, true), 1.05) << "0.31 of the bandwidth: its SMs decide";
  EXPECT_GT(speedup("batch_norm", false, true), 1);
}

// FlashAttention-2 knows nothing of what Hopper's tensor cores do more in a clock.
TEST(Carried, FlashAttention2FollowsTheSmsAndTheOtherThePeaks) {
  const Profile a100 = profile("a100-sxm4-80gb.datasheet");
  for (bool backward : {false, true}) {
    const AttentionCost* there = find_attention(*a100.costs, backward, true, true);
    const AttentionCost* here = find_attention(*reference().costs, backward, true, true);
    ASSERT_TRUE(there->flash2 && here->flash2);
    EXPECT_NEAR(there->flops_per_s / here->flops_per_s,
                108 * a100.compute.clock_hz / (132 * reference().compute.clock_hz), 1e-3);
    const AttentionCost* other = find_attention(*reference().costs, backward, true, false);
    ASSERT_FALSE(other->flash2);
    EXPECT_GT(other->flops_per_s, 1.5 * here->flops_per_s) << "measured: cuDNN's on an H100";
    EXPECT_NEAR(
        find_attention(*a100.costs, backward, true, false)->flops_per_s / other->flops_per_s,
        312 / 989.4, 1e-3);
  }
  EXPECT_FALSE(find_attention(*a100.costs, false, false, true)->flash2) << "it has no TF32";
}

TEST(Carried, AWorkloadChoosesItsAttention) {
  Workload w = workload("gpt2-small");
  w.precision = Precision::Bf16;
  w.fused_attention = true;
  const Profile h100 = profile("h100-sxm.datasheet");
  auto forward = [&] { return predict::step_times(w, h100, Level::Mid).forward; };
  const Duration fused = forward();
  w.flash2 = true;
  EXPECT_GT(forward(), fused);
}

// A GPU of few SMs with a slow memory: what the H100's SMs limited, its memory does.
TEST(Carried, WhatTheSmsLimitedTheMemoryLimitsWhereItIsSlower) {
  Profile v100 = profile("v100-sxm2.datasheet");
  const MemoryCost* norm = find_memory(*v100.costs, "batch_norm", false, true, false);
  EXPECT_GT(norm->efficiency,
            1.5 * find_memory(*reference().costs, "batch_norm", false, true, false)->efficiency);
  EXPECT_LT(norm->efficiency, 1.06);
}

TEST(Carried, WithoutTf32ConvolutionsAreProductsAndWinograds) {
  Profile v100 = profile("v100-sxm2.datasheet");
  const KernelCosts& k = *v100.costs;
  EXPECT_FALSE(find_product(k, "gemm", Precision::Bf16));
  EXPECT_FALSE(find_product(k, "conv", Precision::Tf32));
  const ProductCost* conv = find_product(k, "conv", Precision::Fp32);
  ASSERT_TRUE(conv);
  EXPECT_EQ(conv->flops_per_s, find_product(k, "gemm", Precision::Fp32)->flops_per_s);
  EXPECT_EQ(conv->conversion, 0);
  predict::ConvShape three{256, 128, 28, 128, 3, 28};
  ProductCost direct = *conv;
  direct.winograd = 1;
  auto time = [&](Pass pass, const ProductCost& c) {
    return predict::conv_ps(three, pass, false, c, k);
  };
  EXPECT_NEAR(time(Pass::Forward, direct) / time(Pass::Forward, *conv), 2.25, 0.25);
  EXPECT_EQ(time(Pass::WeightGradient, direct), time(Pass::WeightGradient, *conv));
  three.out = 14;  // a stride
  EXPECT_EQ(time(Pass::Forward, direct), time(Pass::Forward, *conv));
  EXPECT_EQ(
      find_product(*profile("a100-sxm4-80gb.datasheet").costs, "conv", Precision::Fp32)->winograd,
      1);
}

// The H200: the same SMs, another bandwidth; its own measured kernels were not asked.
TEST(Carried, SaysWhatAnH200GainsFromItsBandwidth) {
  Profile h200 = profile("h200-sxm.datasheet");
  Profile owned = profile("h200-sxm-measured");
  const KernelCosts& measured = *owned.costs;
  std::vector<double> off;
  std::vector<double> alone;
  for (const MemoryCost& c : h200.costs->memory) {
    const MemoryCost* there = find_memory(measured, c.op, c.backward, c.halves, c.channels_last);
    const MemoryCost* here =
        find_memory(*reference().costs, c.op, c.backward, c.halves, c.channels_last);
    double truth = there->efficiency * measured.bandwidth_bytes_per_s;
    off.push_back(std::abs(c.efficiency * h200.costs->bandwidth_bytes_per_s / truth - 1));
    alone.push_back(std::abs(here->efficiency * h200.costs->bandwidth_bytes_per_s / truth - 1));
  }
  EXPECT_LT(median(off), 0.05);
  EXPECT_GT(median(alone), 2 * median(off)) << "as if the bandwidth limited each of them";
}

// Multiply-adds of halves a clock and SM: V100 512, A100 1,024, RTX 3090 256.
TEST(Carried, TensorCoresAreFedByTheirGeneration) {
  auto share = [](const char* name, const char* kernel) {
    Profile p = profile(name);
    double measured = find_product(*reference().costs, kernel, Precision::Fp16)->flops_per_s /
                      reference().compute.peak_flops[Precision::Fp16];
    return find_product(*p.costs, kernel, Precision::Fp16)->flops_per_s /
           p.compute.peak_flops[Precision::Fp16] / measured;
  };
  for (const char* kernel : {"gemm", "conv"}) {
    EXPECT_NEAR(share("h200-sxm.datasheet", kernel), 1, 1e-9);
    EXPECT_LT(share("v100-sxm2.datasheet", kernel), 0.65);
  }
  // From Ampere on products are not limited (calib/published/kernels); convolutions are.
  EXPECT_NEAR(share("a100-sxm4-80gb.datasheet", "gemm"), 1, 1e-9);
  EXPECT_NEAR(share("a100-sxm4-80gb.datasheet", "conv"), share("v100-sxm2.datasheet", "conv"),
              0.02);
  EXPECT_GT(share("rtx-3090.datasheet", "conv"), 0.94);
}

TEST(Carried, IsAFewLinesOfAProfile) {
  Profile p = profile("l4.datasheet");
  EXPECT_EQ(p.costs->carried_from, "h100-sxm-measured");
  EXPECT_EQ(p.host.calls.size(), reference().host.calls.size());
  io::OrderedJson j = io::write_profile(p, {});
  EXPECT_FALSE(j["kernels"].contains("products"));
  EXPECT_FALSE(j["host"].contains("calls"));
  Profile again = io::read_profile(io::parse_json(j.dump(), "p"), "p");
  EXPECT_EQ(again.costs->products[0].flops_per_s, p.costs->products[0].flops_per_s);
  EXPECT_EQ(again.costs->common.slow, p.costs->common.slow);
  EXPECT_EQ(again.host.call_factor.low, 2.8);
}

TEST(Carried, RefusesADatasheetThatDoesNotSayItsSms) {
  io::OrderedJson j = io::write_profile(profile("l4.datasheet"), {});
  j["compute"].erase("sms");
  try {
    io::read_profile(io::parse_json(j.dump(), "p"), "p");
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_NE(e.what.find("need compute/compute_capability, sms and clock_hz"), std::string::npos);
  }
}

TEST(Carried, RefusesARangeThatIsNone) {
  for (auto [quick, slow] : {std::pair{0.9, -1e18}, {1.1, 1.2}, {0.9, 0.95}, {0.0, 1.1}}) {
    io::OrderedJson j = io::write_profile(profile("l4.datasheet"), {});
    j["kernels"]["common"] = {{"quick", quick}, {"slow", slow}};
    try {
      io::read_profile(io::parse_json(j.dump(), "p"), "p");
      ADD_FAILURE() << quick << " " << slow;
    } catch (const InputError& e) {
      EXPECT_EQ(e.where, "p#/kernels/common");
    }
  }
}

// Calls of the host are as many times as long as the profile says, and their range is its own.
TEST(CallFactor, ScalesCallsOfTheHost) {
  Workload w = workload("resnet18");
  Profile p = profile("a100-sxm4-80gb.datasheet");
  auto host = [&](Level level) {
    return static_cast<double>(predict::step_times(w, p, level).host->backward.ps);
  };
  double mid = host(Level::Mid);
  EXPECT_NEAR(host(Level::Low) / mid, 2.8, 0.15);
  p.host.call_factor.mid = 2;
  EXPECT_NEAR(host(Level::Mid) / mid, 2, 0.1);
}

Workload trained(const char* casting, const char* precision = "fp16") {
  io::Json j = read_json("workloads/bert-base.json");
  j["precision"] = precision;
  j["casting"] = casting;
  return io::read_workload(j, "w");
}

TEST(Casting, HalvesGradientsAndOptimizerOrKeepsACopyOfFourBytes) {
  Workload autocast = trained("autocast");
  Workload pure = trained("pure");
  Workload copy = trained("master_weights");
  EXPECT_EQ(2 * pure.gradient_bytes().count, autocast.gradient_bytes().count);
  EXPECT_EQ(copy.gradient_bytes(), pure.gradient_bytes());
  Profile p = profile("a100-sxm4-80gb.datasheet");
  auto times = [&](const Workload& w) { return predict::step_times(w, p, Level::Mid); };
  EXPECT_LT(times(pure).forward, times(autocast).forward) << "no casts, softmax in halves";
  EXPECT_LT(times(pure).optimizer, times(autocast).optimizer);
  EXPECT_GT(times(copy).optimizer, times(autocast).optimizer);
  EXPECT_LT(times(pure).host->forward, times(autocast).host->forward);
  EXPECT_THROW(trained("pure", "fp32"), InputError);
}

}  // namespace
}  // namespace ddpsim::test
