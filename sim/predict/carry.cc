#include "sim/predict/carry.h"

#include <algorithm>
#include <cmath>

namespace ddpsim::predict {
namespace {

// Of the bandwidth that large element-wise kernels reach: where no other limit is felt.
constexpr double kFree = 1.05;
// F(2 x 2, 3 x 3) multiplies 16 times for 36 (Lavin, Gray: Fast Algorithms for Convolutional
// Neural Networks, 2016); cuDNN's fp32 kernels of that name compute results and gradients of data.
constexpr double kWinograd = 36.0 / 16.0;
// Operands that reach the tensor cores of an SM: multiply-adds of halves a clock that they feed.
// Before Ampere threads copy them through registers; Ampere and Ada copy to shared memory
// asynchronously; from Hopper on, whose kernels are the measured ones, tensor cores read them
// there. The number is the only one here that is fitted, to published steps of one GPU
// (calib/published/steps; reports/gpu_steps.md leaves out each generation and each source).
constexpr double kFed = 330;
constexpr int kAmpere = 80;
constexpr int kHopper = 90;

double to_4th(double v) {
  return v * v * v * v;
}
double root_4th(double v) {
  return std::sqrt(std::sqrt(v));
}

// Two limits, as shares of one rate, met together: as in kernel_time.cc's `together`.
double both(double a, double b) {
  return 1 / root_4th(1 / to_4th(a) + 1 / to_4th(b));
}

Duration stretched_by(Duration d, double by) {
  return {static_cast<std::int64_t>(std::llround(static_cast<double>(d.ps) * by))};
}

// Share of the peak that operands in tensor cores' reach allow.
double fed_share(const ComputeSection& c, Precision p) {
  if (p == Precision::Fp32 || c.capability >= kHopper) return 1;
  double wanted =
      c.peak_flops[static_cast<std::size_t>(p)] / (2 * c.clock_hz * static_cast<double>(c.sms));
  double fed = kFed * (c.capability >= kAmpere ? 2 : 1) * (p == Precision::Tf32 ? 0.5 : 1);
  return both(1, fed / wanted);
}

}  // namespace

KernelCosts carried(const Profile& from, const Profile& to) {
  const KernelCosts& costs = *from.costs;
  const ComputeSection& a = from.compute;
  const ComputeSection& b = to.compute;
  KernelCosts out = costs;
  out.sms = b.sms;
  double bandwidth = to.memory.bandwidth_bytes_per_s / from.memory.bandwidth_bytes_per_s;
  out.bandwidth_bytes_per_s = std::round(costs.bandwidth_bytes_per_s * bandwidth);
  double clocks = a.clock_hz / b.clock_hz;
  double sms = static_cast<double>(b.sms) / a.sms / clocks;
  auto peak = [&](Precision p) {
    auto i = static_cast<std::size_t>(p);
    return a.peak_flops[i] > 0 ? b.peak_flops[i] / a.peak_flops[i] : 0;
  };
  bool tf32 = peak(Precision::Tf32) > 0;
  out.products.clear();
  for (ProductCost c : costs.products) {
    bool replaced = c.kernel == "conv" && c.precision == Precision::Fp32 && !tf32;
    if (peak(c.precision) <= 0 || replaced) continue;
    c.flops_per_s = std::round(c.flops_per_s * peak(c.precision) * fed_share(b, c.precision));
    for (Duration* d : {&c.fixed, &c.wave, &c.split}) *d = stretched_by(*d, clocks);
    out.products.push_back(c);
  }
  if (const ProductCost* gemm = find_product(out, "gemm", Precision::Fp32); gemm && !tf32) {
    ProductCost conv = *gemm;
    conv.kernel = "conv";
    conv.winograd = kWinograd;
    out.products.push_back(conv);
  }
  for (MemoryCost& c : out.memory) {
    c.fixed = stretched_by(c.fixed, clocks);
    if (c.efficiency >= kFree) continue;
    double asked = 1 / root_4th(1 / to_4th(c.efficiency) - 1 / to_4th(kFree));
    c.efficiency = both(kFree, asked * sms / bandwidth);
  }
  for (AttentionCost& c : out.attention) {
    double rate =
        c.halves ? std::max(peak(Precision::Fp16), peak(Precision::Bf16)) : peak(Precision::Fp32);
    if (rate > 0) c.flops_per_s = std::round(c.flops_per_s * rate);
    for (Duration* d : {&c.fixed, &c.block}) *d = stretched_by(*d, clocks);
  }
  return out;
}

}  // namespace ddpsim::predict
