// Plans of one question, each simulated once: step, exposed communication, memory.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/tune/tune_sharded.h"

namespace ddpsim::predict {

class TriedPlans {
 public:
  // What is given outlives this. REQUIRES: options.known.
  TriedPlans(const Question& q, const Options& options,
             const std::vector<systems::Decision>& decisions)
      : q_(q), options_(options), decisions_(decisions) {}

  // The index of the plan; none: check() refuses it.
  std::optional<std::size_t> attempt(const Plan& plan);
  const TriedPlan& operator[](std::size_t k) const { return plans_[k]; }
  std::size_t size() const { return plans_.size(); }
  std::size_t refused() const { return refused_; }
  std::vector<TriedPlan> take() { return std::move(plans_); }

 private:
  const Question& q_;
  const Options& options_;
  const std::vector<systems::Decision>& decisions_;
  std::vector<TriedPlan> plans_;
  std::size_t refused_ = 0;
  std::map<std::string, std::optional<std::size_t>> known_;
};

}  // namespace ddpsim::predict
