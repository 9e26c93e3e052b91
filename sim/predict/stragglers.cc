#include "sim/predict/stragglers.h"

#include <algorithm>
#include <array>
#include <map>

#include "sim/systems/base/record.h"
#include "sim/units/elementary.h"

namespace ddpsim::predict {
namespace {

// Of 1, 2, 3, 4, 6, 8, 12, ... numbers: the integral of x n phi(x) Phi(x)^(n - 1).
constexpr std::array kLargest{
    0.0000, 0.5642, 0.8463, 1.0294, 1.2672, 1.4236, 1.6292, 1.7660, 1.9477, 2.0697, 2.2331,
    2.3437, 2.4930, 2.5946, 2.7325, 2.8269, 2.9555, 3.0439, 3.1648, 3.2482, 3.3627, 3.4418,
    3.5506, 3.6261, 3.7301, 3.8023, 3.9020, 3.9714, 4.0673, 4.1341, 4.2266, 4.2911, 4.3806,
    4.4430, 4.5297, 4.5903, 4.6744, 4.7332, 4.8150, 4.8723, 4.9519};

// The share of standard normal numbers that is below x, within 8e-8 (M. Abramowitz, I. Stegun,
// Handbook of Mathematical Functions, 26.2.17).
double share_below(double x) {
  if (x < 0) return 1 - share_below(-x);
  constexpr double kRootOfTwoPi = 2.5066282746310002;
  const double k = 1 / (1 + 0.2316419 * x);
  const double rest =
      k *
      (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
  return 1 - natural_exponential(-x * x / 2) / kRootOfTwoPi * rest;
}

// Mean of the largest of normal numbers whose deviation is `cv` of their mean. `alike`: how many
// have which mean.
double mean_of_largest(const std::map<double, int>& alike, double cv) {
  constexpr int kParts = 400;   // even
  constexpr double kReach = 8;  // deviations
  const double most = alike.rbegin()->first;
  auto below = [&](double x) {
    double all = 1;
    for (const auto& [mean, count] : alike) {
      double power = share_below((x - mean) / (mean * cv));
      for (int n = count; n > 0; n /= 2, power *= power)
        if (n % 2 == 1) all *= power;
    }
    return all;
  };
  const double begin = most * (1 - kReach * cv);
  const double width = 2 * kReach * cv * most / kParts;
  double sum = 0;  // Simpson's
  for (int i = 0; i <= kParts; ++i)
    sum += below(begin + i * width) * (i == 0 || i == kParts ? 1 : i % 2 == 1 ? 4 : 2);
  return most * (1 + kReach * cv) - sum * width / 3;
}

}  // namespace

double expected_largest(int n) {
  if (n <= 2) return kLargest[n - 1];
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
  if (!p.rank_cv || !s.stragglers || s.jitter) return 1;
  const double cv = at(*p.rank_cv, level);
  const double alike = 1 + cv * expected_largest(s.ranks);
  if (cv <= 0 || s.slow_ranks.empty()) return alike;
  std::map<double, int> ranks;
  for (const auto& [rank, factor] : s.slow_ranks) ++ranks[factor];
  if (const int others = s.ranks - static_cast<int>(s.slow_ranks.size()); others > 0)
    ranks[1] += others;
  if (ranks.size() == 1) return alike;
  return std::max(1.0, alike * mean_of_largest(ranks, cv) /
                           mean_of_largest({{ranks.rbegin()->first, s.ranks}}, cv));
}

}  // namespace ddpsim::predict
