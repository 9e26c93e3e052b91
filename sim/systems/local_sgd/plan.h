// The knobs of local SGD and DiLoCo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim {

// Of local SGD, at the end of a round: none averages parameters, Nesterov is DiLoCo's.
enum class OuterOptimizer : std::uint8_t { None, Nesterov };
// Post-local SGD, beside PeriodicModelAverager. A round's batches are Plan::accumulation_steps.
struct LocalSgdPlan {
  OuterOptimizer outer_optimizer = OuterOptimizer::None;
  std::int64_t subgroup_size = 0;  // ranks of PostLocalSGDState's subgroup; 0 = without DDP
  std::int64_t start_localSGD_iter = 100;
  bool post_local_gradient_allreduce = true;
  // HierarchicalModelAverager's period_group_size_dict; empty = PeriodicModelAverager.
  std::vector<std::int64_t> averaging_periods;
  std::vector<std::int64_t> averaging_group_sizes;
};

inline const LocalSgdPlan& local_sgd_of(const Plan& plan) {
  return plan.parts.get<LocalSgdPlan>();
}
inline LocalSgdPlan& local_sgd_of(Plan& plan) {
  return plan.parts.edit<LocalSgdPlan>();
}

}  // namespace ddpsim
