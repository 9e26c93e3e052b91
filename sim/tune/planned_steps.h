// The steps of plans that differ in their knobs only, each simulated once at each level.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "sim/predict/predict.h"
#include "sim/tune/difference.h"

namespace ddpsim::predict {

class PlannedSteps {
 public:
  // `q` outlives this. `simulations`: that a search may take at most; 0 = by what one costs.
  PlannedSteps(const Question& q, const Options& options, int simulations);
  PlannedSteps(const PlannedSteps&) = delete;
  PlannedSteps& operator=(const PlannedSteps&) = delete;

  const Question& question() const { return q_; }
  const Options& options() const { return options_; }  // `known` is there

  // The question's scenario with another plan: `s` holds it.
  Question with(const Plan& plan, Scenario& s) const;
  Duration step(const Plan& plan, Level level);
  Difference difference(const Plan& from, const Plan& to);
  // As predict() has it of this step.
  struct Interval {
    Duration low, high;
  };
  Interval interval(const Plan& plan);
  // Simulations that a search may take.
  std::size_t budget() const;

 private:
  Duration step_on(const Profile& p, const Plan& plan, Level level);

  const Question& q_;
  const Profile ends_;  // at levels other than Mid
  Options options_;
  Communicators own_;
  int simulations_;
  std::map<std::string, Duration> steps_;
};

}  // namespace ddpsim::predict
