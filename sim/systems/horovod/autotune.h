// What Horovod's autotuner tries, in which order, and what it settles on (HOROVOD_AUTOTUNE): fusion
// threshold and cycle time by Bayesian optimisation, once for every combination of the rest. Reads
// no clock: who drives it says what each setting scored.
//
//   a score = bytes reduced / microseconds: the median of 5 samples of 10 steps; the first 3 scores
//   are thrown away
//   a pass  = 4 fixed points, then 17 that maximise the expected improvement of a Gaussian process
//
// Source: horovod 0.28.1, horovod/common: parameter_manager.cc, optim/bayesian_optimization.cc,
// optim/gaussian_process.cc. Horovod draws from std::random_device, so that no two courses of it
// are alike; here a seed says which. Its L-BFGS is a descent by numerical gradients here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/units/random.h"

namespace ddpsim::systems {

inline constexpr int kAutotuneSamples = 5;          // ParameterManager::SAMPLES
inline constexpr int kAutotuneStepsPerSample = 10;  // HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE
inline constexpr int kAutotuneWarmups = 3;          // HOROVOD_AUTOTUNE_WARMUP_SAMPLES

using JointPoint =
    std::vector<double>;  // fusion threshold in MiB, cycle time in ms, less what is fixed

// A Gaussian process with a squared exponential kernel and known noise, of mean 0.
class GaussianProcess {
 public:
  explicit GaussianProcess(double noise) : noise_(noise) {}
  // Finds the kernel's length and height from (1, 1) downhill. REQUIRES: as many, not empty.
  void fit(std::vector<JointPoint> x, std::vector<double> y);
  struct Posterior {
    double mean = 0;
    double deviation = 0;
  };
  Posterior at(const JointPoint& x) const;
  double length() const { return length_; }
  double height() const { return height_; }
  // Of the samples, by a kernel: what fit() makes small.
  double unlikelihood(double length, double height) const;

 private:
  void factor(double length, double height, std::vector<double>& lower) const;
  double noise_;
  double length_ = 1;
  double height_ = 1;
  std::vector<JointPoint> x_;
  std::vector<double> y_;
  std::vector<double> lower_;    // Cholesky's, of the samples' kernel with noise
  std::vector<double> weights_;  // kernel^-1 y
};

struct AutotuneSetting {
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
  bool torus_allreduce = false;
  bool cache = false;
  double fusion_mb = 0;
  double cycle_ms = 0;
  friend bool operator==(const AutotuneSetting&, const AutotuneSetting&) = default;
};

class Autotuner {
 public:
  // What the environment sets is not tuned.
  struct Fixed {
    std::optional<bool> hierarchical_allreduce, hierarchical_allgather, torus_allreduce, cache;
    std::optional<double> fusion_mb, cycle_ms;
  };
  explicit Autotuner(const Fixed& fixed, std::uint64_t seed = 1, int most_samples = 20,
                     double noise = 0.8);

  AutotuneSetting current() const;
  AutotuneSetting best() const;
  double best_score() const { return best_score_; }
  bool done() const { return done_; }
  // The current setting's. REQUIRES: !done().
  void score(double bytes_per_us);
  // Settings that are scored in all.
  int scores() const;

 private:
  struct Flag {
    std::optional<bool> fixed;
    bool value = false;
    bool best = false;
    double best_score = 0;
  };
  AutotuneSetting setting(const JointPoint& joint, bool of_best) const;
  JointPoint test_point(std::size_t i) const;
  JointPoint propose();

  Fixed fixed_;
  std::array<Flag, 4> flags_;
  std::vector<std::pair<double, double>> bounds_;
  JointPoint joint_;
  JointPoint best_joint_;
  double best_score_ = 0;
  std::size_t iteration_ = 0;
  int most_samples_;
  double noise_;
  SplitMix64 random_;
  std::vector<JointPoint> x_;
  std::vector<double> y_;
  bool done_ = false;
};

// As the process sees them: of mean 0 and deviation 1, from three on.
std::vector<double> normalised_scores(const std::vector<double>& scores);
// Of the mean that a process expects over its best sample, at a point (Brochu et al., 2010).
double expected_improvement(const GaussianProcess& process, const JointPoint& x,
                            double best_of_samples);

}  // namespace ddpsim::systems
