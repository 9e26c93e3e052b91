#include "sim/cost/power.h"

#include "sim/units/convert.h"

namespace ddpsim::predict {
namespace {

constexpr double kSlowest = 0.4;  // of the clock: no card that is sold so is held lower

double watts(const PowerSection& p, const StepDraw& s, double f) {
  const double clocked = p.draw.busy_w * s.clocked_ps + s.joules * kPsPerSecond;
  const double energy = clocked * f * f + p.draw.busy_w * s.memory_ps;
  return p.draw.idle_w + energy / (s.clocked_ps / f + s.memory_ps);
}

}  // namespace

Draw drawn_like(const PowerSection& measured, const ByPrecision& peaks, const SameChip& like,
                const ComputeSection& compute, double limit_w) {
  const Draw& m = measured.draw;
  const double limits = like.limit_w / measured.limit_w;
  const double clocks = compute.clock_hz / like.clock_hz;
  const Precision single = Precision::Fp32;
  Draw out;
  out.idle_w = m.idle_w * limit_w / measured.limit_w;
  out.busy_w =
      m.busy_w * limits * compute.peak_flops[single] / like.peak_flops[single] * clocks * clocks;
  for (Precision p : kPrecisions.names())
    if (like.peak_flops[p] > 0)
      out.joules_per_flop[p] =
          m.joules_per_flop[p] * limits * peaks[p] / like.peak_flops[p] * clocks * clocks;
  return out;
}

double clock_share(const PowerSection& p, const StepDraw& step) {
  if (step.clocked_ps <= 0 || watts(p, step, 1) <= p.limit_w) return 1;
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
