#include "sim/predict/stragglers.h"

#include <array>

namespace ddpsim::predict {
namespace {

// Of 1, 2, 3, 4, 6, 8, 12, ... numbers: the integral of x n phi(x) Phi(x)^(n - 1).
constexpr std::array kLargest{
    0.0000, 0.5642, 0.8463, 1.0294, 1.2672, 1.4236, 1.6292, 1.7660, 1.9477, 2.0697, 2.2331,
    2.3437, 2.4930, 2.5946, 2.7325, 2.8269, 2.9555, 3.0439, 3.1648, 3.2482, 3.3627, 3.4418,
    3.5506, 3.6261, 3.7301, 3.8023, 3.9020, 3.9714, 4.0673, 4.1341, 4.2266, 4.2911, 4.3806,
    4.4430, 4.5297, 4.5903, 4.6744, 4.7332, 4.8150, 4.8723, 4.9519};

}  // namespace

double expected_largest(int n) {
  if (n <= 2) return kLargest[static_cast<std::size_t>(n - 1)];
  int below = 2;
  int above = 3;
  std::size_t i = 1;
  for (; above < n && i + 2 < kLargest.size(); ++i) {
    int next = 2 * below;
    below = above;
    above = next;
  }
  double part = static_cast<double>(n - below) / (above - below);
  return kLargest[i] + (kLargest[i + 1] - kLargest[i]) * part;
}

double straggling(const Profile& p, const Scenario& s, Level level) {
  // Nobody waits for the slowest.
  if (goes_apart(s.plan)) return 1;
  if (!p.rank_cv || !s.stragglers || s.jitter || !s.slow_ranks.empty()) return 1;
  return 1 + at(*p.rank_cv, level) * expected_largest(s.ranks);
}

}  // namespace ddpsim::predict
