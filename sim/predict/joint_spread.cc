#include "sim/predict/joint_spread.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/cost/roofline.h"
#include "sim/predict/stragglers.h"

namespace ddpsim::predict {
namespace {

std::vector<Spread*> spreads_of(KernelCosts& k) {
  std::vector<Spread*> out;
  for (ProductCost& c : k.products) out.push_back(&c.spread);
  for (MemoryCost& c : k.memory) out.push_back(&c.spread);
  for (AttentionCost& c : k.attention) out.push_back(&c.spread);
  return out;
}

double computed(const Workload& w, const Profile& p, Level level) {
  StepTimes t = step_times(w, p, level);
  return static_cast<double>((t.forward + t.backward + t.optimizer).ps);
}

// Those that the workload's times hang on; of the others each is off by nothing.
std::vector<Spread*> asked_by(const Workload& w, Profile& p) {
  std::vector<const Spread*> asked;
  p.costs->asked = &asked;
  computed(w, p, Level::Mid);
  p.costs->asked = nullptr;
  std::sort(asked.begin(), asked.end());
  std::vector<Spread*> out = spreads_of(*p.costs);
  std::erase_if(out, [&](Spread* s) { return !std::binary_search(asked.begin(), asked.end(), s); });
  return out;
}

// What the parts together are off, as a share of that with all of them at their ends at once.
double share(const Workload& w, const Profile& p, Level level) {
  Profile one = p;
  const std::vector<Spread*> spreads = asked_by(w, one);
  std::vector<Spread> ends;
  for (const Spread* s : spreads) ends.push_back(*s);
  for (Spread* s : spreads_of(*one.costs)) *s = {};
  double middle = computed(w, one, level);
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < spreads.size(); ++i) {
    *spreads[i] = ends[i];
    double off = std::abs(computed(w, one, level) - middle);
    *spreads[i] = {};
    sum += off;
    squares += off * off;
  }
  return sum > 0 ? std::sqrt(squares) / sum : 1;
}

bool convolutional(const Workload& w) {
  double conv = 0;
  double all = 0;
  for (const Layer& l : w.layers) {
    const double flops = (l.forward.flops_per_sample + l.backward.flops_per_sample) * w.batch;
    all += flops;
    if (l.op.kind == "conv") conv += flops;
  }
  return 2 * conv > all;
}

// What whole steps were off, and what this one's kernels are by their own spreads, independent of
// one another: `common` so that both together are the root of the sum of their squares.
Spread beside_spreads(const Workload& w, const Profile& p, const Spread& common) {
  const double middle = computed(w, p, Level::Mid);
  if (middle <= 0) return common;
  auto together = [&](Level level, double whole) {
    const double own = computed(w, p, level) / middle - 1;
    return (1 + std::copysign(std::sqrt(own * own + whole * whole), whole)) / (1 + own);
  };
  return {std::min(1.0, together(Level::High, common.quick - 1)),
          std::max(1.0, together(Level::Low, common.slow - 1))};
}

// How far a level is from the middle: of computation, as a share of it, and of what ranks vary
// (`varied`). Independent of one another, they add up as squares; what ranks vary is what is more
// than computation's.
double beyond(const Workload& w, const Profile& p, Level level, double varied) {
  double middle = computed(w, p, Level::Mid);
  double off = middle > 0 ? std::abs(computed(w, p, level) / middle - 1) : 0;
  return std::copysign(std::sqrt(off * off + varied * varied) - off, varied);
}

}  // namespace

Profile with_joint_spread(const Workload& w, const Profile& p, int ranks) {
  Profile out = p;
  if (p.costs && w.basis != Basis::Captured) {
    const Spread common = convolutional(w) ? p.costs->common_conv : p.costs->common;
    out.costs->common = {};
    double slow = share(w, out, Level::Low);
    double quick = share(w, out, Level::High);
    for (Spread* s : spreads_of(*out.costs))
      *s = {1 - (1 - s->quick) * quick, 1 + (s->slow - 1) * slow};
    out.costs->common = beside_spreads(w, out, common);
  }
  if (const double largest = expected_largest(ranks); p.rank_cv && largest > 0) {
    const Range& cv = *p.rank_cv;
    auto end = [&](Level level) {
      return cv.mid + beyond(w, out, level, (at(cv, level) - cv.mid) * largest) / largest;
    };
    out.rank_cv = Range{end(Level::Low), cv.mid, end(Level::High)};
  }
  return out;
}

}  // namespace ddpsim::predict
