#include "sim/systems/horovod/autotune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "sim/units/elementary.h"

namespace ddpsim::systems {
namespace {

constexpr double kExploration = 0.01;  // BayesianOptimization's xi
constexpr int kRestarts = 25;          // ProposeLocation's n_restarts
constexpr int kMostDescents = 100;     // LBFGSParam::max_iterations
constexpr double kEpsilon = 1e-5;      // LBFGSParam::epsilon
constexpr double kDifference = 1e-8;   // of numerical gradients
// Fusion threshold in MiB, cycle time in ms.
constexpr double kTestPoints[4][2] = {{4, 5}, {32, 50}, {16, 25}, {8, 10}};
constexpr double kAutotuneBounds[2][2] = {{0, 64}, {1, 100}};

double squared_distance(const JointPoint& a, const JointPoint& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

double kernel_of(double squared, double length, double height) {
  return height * height * natural_exponential(-0.5 / (length * length) * squared);
}

// Downhill by numerical gradients, halving the step until it helps.
template <class F>
JointPoint descend(JointPoint x, F f) {
  double fx = f(x);
  for (int k = 0; k < kMostDescents; ++k) {
    JointPoint gradient(x.size());
    double norm = 0;
    double size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      JointPoint beside = x;
      beside[i] += kDifference;
      gradient[i] = (f(beside) - fx) / kDifference;
      norm += gradient[i] * gradient[i];
      size += x[i] * x[i];
    }
    norm = std::sqrt(norm);
    if (!(norm > kEpsilon * std::max(1.0, std::sqrt(size)))) return x;
    bool better = false;
    for (double step = 1 / std::max(1.0, norm); step > 1e-10; step /= 2) {
      JointPoint next = x;
      for (std::size_t i = 0; i < x.size(); ++i) next[i] -= step * gradient[i];
      const double there = f(next);
      if (!(there < fx)) continue;
      x = std::move(next);
      fx = there;
      better = true;
      break;
    }
    if (!better) return x;
  }
  return x;
}

double normal_density(double z) {
  return natural_exponential(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
}
// Below z: 1/2 + density x (z + z^3/3 + z^5/15 + ...); far out by a continued fraction.
double normal_share(double z) {
  if (z < 0) return 1 - normal_share(-z);
  if (z > 5) {
    double tail = z;
    for (int k = 60; k > 0; --k) tail = z + k / tail;
    return 1 - normal_density(z) / tail;
  }
  double term = z;
  double sum = z;
  for (int k = 3; k < 200; k += 2) sum += term *= z * z / k;
  return 0.5 + normal_density(z) * sum;
}

// L^-1 b, of a lower triangle by rows.
std::vector<double> forward_solved(const std::vector<double>& lower, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) b[i] -= lower[i * n + j] * b[j];
    b[i] /= lower[i * n + i];
  }
  return b;
}

}  // namespace

void GaussianProcess::factor(double length, double height, std::vector<double>& lower) const {
  const std::size_t n = x_.size();
  lower.assign(n * n, 0);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = kernel_of(squared_distance(x_[i], x_[j]), length, height);
      if (i == j) sum += noise_ * noise_;
      for (std::size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      lower[i * n + j] = i == j ? std::sqrt(sum) : sum / lower[j * n + j];
    }
}

double GaussianProcess::unlikelihood(double length, double height) const {
  std::vector<double> lower;
  factor(length, height, lower);
  const std::size_t n = x_.size();
  double out = 0.5 * static_cast<double>(n) * natural_logarithm(2 * std::numbers::pi);
  for (double v : forward_solved(lower, y_)) out += 0.5 * v * v;
  for (std::size_t i = 0; i < n; ++i) out += natural_logarithm(lower[i * n + i]);
  return out;
}

void GaussianProcess::fit(std::vector<JointPoint> x, std::vector<double> y) {
  x_ = std::move(x);
  y_ = std::move(y);
  const JointPoint found =
      descend({1, 1}, [&](const JointPoint& k) { return unlikelihood(k[0], k[1]); });
  length_ = found[0];
  height_ = found[1];
  factor(length_, height_, lower_);
  // L^T w = L^-1 y
  weights_ = forward_solved(lower_, y_);
  const std::size_t n = x_.size();
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) weights_[i] -= lower_[j * n + i] * weights_[j];
    weights_[i] /= lower_[i * n + i];
  }
}

GaussianProcess::Posterior GaussianProcess::at(const JointPoint& x) const {
  std::vector<double> k;
  for (const JointPoint& sample : x_)
    k.push_back(kernel_of(squared_distance(sample, x), length_, height_));
  Posterior out;
  for (std::size_t i = 0; i < k.size(); ++i) out.mean += k[i] * weights_[i];
  double variance = height_ * height_ + 1e-8;
  for (double v : forward_solved(lower_, std::move(k))) variance -= v * v;
  out.deviation = std::sqrt(std::max(0.0, variance));
  return out;
}

std::vector<double> normalised_scores(const std::vector<double>& scores) {
  double mean = 0;
  double deviation = 1;
  const auto n = static_cast<double>(scores.size());
  if (scores.size() >= 3) {
    for (double y : scores) mean += y / n;
    double squares = 0;
    for (double y : scores) squares += (y - mean) * (y - mean) / n;
    if (squares > 0) deviation = std::sqrt(squares);
  }
  std::vector<double> out;
  for (double y : scores) out.push_back((y - mean) / deviation);
  return out;
}

double expected_improvement(const GaussianProcess& process, const JointPoint& x,
                            double best_of_samples) {
  const GaussianProcess::Posterior p = process.at(x);
  if (p.deviation == 0) return 0;
  const double better = p.mean - best_of_samples - kExploration;
  const double z = better / p.deviation;
  return better * normal_share(z) + p.deviation * normal_density(z);
}

Autotuner::Autotuner(const Fixed& fixed, std::uint64_t seed, int most_samples, double noise)
    : fixed_(fixed), most_samples_(most_samples), noise_(noise), random_{seed} {
  const std::optional<bool> of_flags[] = {fixed.hierarchical_allreduce,
                                          fixed.hierarchical_allgather, fixed.torus_allreduce,
                                          fixed.cache};
  for (std::size_t k = 0; k < flags_.size(); ++k) {
    flags_[k].fixed = of_flags[k];
    flags_[k].value = flags_[k].best = of_flags[k].value_or(false);
  }
  if (!fixed.fusion_mb) bounds_.emplace_back(kAutotuneBounds[0][0], kAutotuneBounds[0][1]);
  if (!fixed.cycle_ms) bounds_.emplace_back(kAutotuneBounds[1][0], kAutotuneBounds[1][1]);
  joint_ = best_joint_ = test_point(0);
}

JointPoint Autotuner::test_point(std::size_t i) const {
  JointPoint out;
  if (!fixed_.fusion_mb) out.push_back(kTestPoints[i][0]);
  if (!fixed_.cycle_ms) out.push_back(kTestPoints[i][1]);
  return out;
}

AutotuneSetting Autotuner::setting(const JointPoint& joint, bool of_best) const {
  AutotuneSetting s;
  bool* values[] = {&s.hierarchical_allreduce, &s.hierarchical_allgather, &s.torus_allreduce,
                    &s.cache};
  for (std::size_t k = 0; k < flags_.size(); ++k)
    *values[k] = of_best ? flags_[k].best : flags_[k].value;
  std::size_t at = 0;
  s.fusion_mb = fixed_.fusion_mb ? *fixed_.fusion_mb : joint[at++];
  s.cycle_ms = fixed_.cycle_ms ? *fixed_.cycle_ms : joint[at];
  return s;
}

AutotuneSetting Autotuner::current() const {
  return setting(joint_, false);
}
AutotuneSetting Autotuner::best() const {
  return setting(best_joint_, true);
}

int Autotuner::scores() const {
  int out = most_samples_ + 1;
  for (const Flag& f : flags_)
    if (!f.fixed) out *= 2;
  return out;
}

// Each parameter in turn: the joint ones until their pass is over, then the next flag that has not
// been both, and all before it again from the start.
void Autotuner::score(double bytes_per_us) {
  if (bytes_per_us > best_score_) {
    best_score_ = bytes_per_us;
    best_joint_ = joint_;
  }
  x_.push_back(joint_);
  y_.push_back(bytes_per_us);
  ++iteration_;
  if (static_cast<int>(iteration_) <= most_samples_) {
    joint_ = iteration_ < std::size(kTestPoints) ? test_point(iteration_) : propose();
    return;
  }
  iteration_ = 0;
  joint_ = test_point(0);
  x_.clear();
  y_.clear();
  double best = best_score_;
  for (Flag& f : flags_) {
    if (best > f.best_score) {
      f.best_score = best;
      f.best = f.value;
    }
    best = f.best_score;
    if (f.fixed) continue;
    if (!f.value) {
      f.value = true;
      return;
    }
    f.value = false;
  }
  done_ = true;
}

JointPoint Autotuner::propose() {
  if (bounds_.empty()) return {};
  GaussianProcess process(noise_);
  process.fit(x_, normalised_scores(y_));
  double highest = -std::numeric_limits<double>::infinity();
  for (const JointPoint& x : x_) highest = std::max(highest, process.at(x).mean);
  auto worse = [&](const JointPoint& x) {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (x[i] < bounds_[i].first || x[i] > bounds_[i].second)
        return std::numeric_limits<double>::max();
    return -expected_improvement(process, x, highest);
  };
  JointPoint out;
  double least = std::numeric_limits<double>::max();
  for (int k = 0; k < kRestarts; ++k) {
    JointPoint x;
    for (const auto& [low, high] : bounds_) x.push_back(low + (high - low) * random_.uniform());
    x = descend(std::move(x), worse);
    if (const double value = worse(x); value < least) {
      least = value;
      out = std::move(x);
    }
  }
  return out;
}

}  // namespace ddpsim::systems
