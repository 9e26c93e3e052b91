// The best buckets of any sizes: a dynamic programme's answers, simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tune/planned_steps.h"

namespace ddpsim::predict {

struct TunedPartition {
  std::vector<std::int64_t> buckets;  // bytes, in launch order
  std::vector<double> list;           // bucket_cap_mb_list that makes them
  Duration model;  // the dynamic programme's own end of the step's communication, after the start
                   // of the step
  Duration step;   // simulated
};
struct BestBuckets {
  std::optional<TunedPartition> partition;
  std::string why_not;  // "" = there is one, or the plan has no buckets to choose
};
BestBuckets best_buckets(PlannedSteps& steps, const Plan& plan);

}  // namespace ddpsim::predict
