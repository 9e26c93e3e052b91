#include "sim/cost/carry.h"

#include <algorithm>
#include <cmath>

namespace ddpsim::predict {
namespace {

// Of the bandwidth that large element-wise kernels reach: where no other limit is felt.
constexpr double kFree = 1.05;
// F(2 x 2, 3 x 3) multiplies 16 times for 36 (Lavin, Gray: Fast Algorithms for Convolutional
// Neural Networks, 2016); cuDNN's fp32 kernels of that name compute results and gradients of data.
constexpr double kWinograd = 36.0 / 16.0;
constexpr int kAmpere = 80;
constexpr int kHopper = 90;

// Two limits of one rate, felt together: times add up as their squares.
double both(double a, double b) {
  return 1 / std::sqrt(1 / (a * a) + 1 / (b * b));
}
// What the other limit is, of two that together allow `rate`.
double other(double rate, double one) {
  return 1 / std::sqrt(1 / (rate * rate) - 1 / (one * one));
}

Duration stretched_by(Duration d, double by) {
  return {static_cast<std::int64_t>(std::llround(static_cast<double>(d.ps) * by))};
}

// Share of the peak that operands in tensor cores' reach allow.
double fed_share(const ComputeSection& c, const ProductCost& k, double rate) {
  const Precision p = k.precision;
  if (p == Precision::Fp32 || c.capability >= kHopper) return 1;
  const bool ampere = c.capability >= kAmpere;
  if (ampere && k.kernel != "conv") return 1;
  double wanted = c.peak_flops[p] / (2 * c.clock_hz * static_cast<double>(c.sms));
  return both(1, rate * (ampere ? 2 : 1) * (p == Precision::Tf32 ? 0.5 : 1) / wanted);
}

}  // namespace

KernelCosts carried(const Profile& from, const Profile& to, double fed) {
  const KernelCosts& costs = *from.costs;
  const ComputeSection& a = from.compute;
  const ComputeSection& b = to.compute;
  KernelCosts out = costs;
  out.fed = fed;
  out.sms = b.sms;
  double bandwidth = to.memory.bandwidth_bytes_per_s / from.memory.bandwidth_bytes_per_s;
  out.bandwidth_bytes_per_s = std::round(costs.bandwidth_bytes_per_s * bandwidth);
  double clocks = a.clock_hz / b.clock_hz;
  double sms = static_cast<double>(b.sms) / a.sms / clocks;
  auto peak = [&](Precision p) {
    return a.peak_flops[p] > 0 ? b.peak_flops[p] / a.peak_flops[p] : 0;
  };
  bool tf32 = peak(Precision::Tf32) > 0;
  out.products.clear();
  for (ProductCost c : costs.products) {
    bool replaced = c.kernel == "conv" && c.precision == Precision::Fp32 && !tf32;
    if (peak(c.precision) <= 0 || replaced) continue;
    c.flops_per_s = std::round(c.flops_per_s * peak(c.precision) * fed_share(b, c, fed));
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
    double asked = other(c.efficiency, kFree);
    c.efficiency = both(kFree, asked * sms / bandwidth);
  }
  for (AttentionCost& c : out.attention) {
    double rate =
        c.halves ? std::max(peak(Precision::Fp16), peak(Precision::Bf16)) : peak(Precision::Fp32);
    // FlashAttention-2 leaves what Hopper's tensor cores do more in a clock, and later ones.
    if (c.flash2) rate = sms;
    if (rate > 0) c.flops_per_s = std::round(c.flops_per_s * rate);
    for (Duration* d : {&c.fixed, &c.block}) *d = stretched_by(*d, clocks);
  }
  return out;
}

}  // namespace ddpsim::predict
