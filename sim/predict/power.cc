#include "sim/predict/power.h"

namespace ddpsim::predict {
namespace {

constexpr double kSlowest = 0.4;  // of the clock: no card that is sold so is held lower

double watts(const PowerSection& p, const StepDraw& s, double f) {
  const double energy = s.clocked_energy * f * f + p.draw.memory * s.memory_ps;
  return p.draw.idle + energy / (s.clocked_ps / f + s.memory_ps);
}

}  // namespace

Draw drawn_like(const PowerSection& measured, const SameChip& like, const ComputeSection& compute,
                const MemorySection& memory, double limit_w) {
  const Draw& m = measured.draw;
  auto half = static_cast<std::size_t>(Precision::Fp16);
  Draw out;
  out.idle = m.idle / measured.limit_w * limit_w;
  const double all = like.limit_w * (1 - m.idle / measured.limit_w);  // products of halves alone
  const double clocks = compute.clock_hz / like.clock_hz;
  auto scaled = [&](double watts_of, std::size_t peak) {
    if (like.peak_flops[peak] <= 0) return 0.0;
    const double rate = compute.peak_flops[peak] / like.peak_flops[peak];
    return all * watts_of / m.products[half] * rate * clocks * clocks;
  };
  for (std::size_t i = 0; i < out.products.size(); ++i) out.products[i] = scaled(m.products[i], i);
  out.attention = scaled(m.attention, half);
  out.memory =
      all * m.memory / m.products[half] * memory.bandwidth_bytes_per_s / like.bandwidth_bytes_per_s;
  return out;
}

double clock_share(const PowerSection& p, const StepDraw& step) {
  if (!p.like || step.clocked_ps <= 0 || watts(p, step, 1) <= p.limit_w) return 1;
  double low = kSlowest;
  double high = 1;
  constexpr int kHalvings = 30;
  for (int i = 0; i < kHalvings; ++i) {
    const double f = (low + high) / 2;
    (watts(p, step, f) > p.limit_w ? high : low) = f;
  }
  return low;
}

}  // namespace ddpsim::predict
