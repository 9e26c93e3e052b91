// The knobs of ZeroRedundancyOptimizer, next to DDP's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim {

// torch.distributed.optim.ZeroRedundancyOptimizer, beside DDP's knobs.
struct ZeroRedundancyPlan {
  bool parameters_as_bucket_view = false;
  bool overlap_with_ddp = false;  // refused (validate)
};

inline const ZeroRedundancyPlan& zero_redundancy_of(const Plan& plan) {
  return plan.parts.get<ZeroRedundancyPlan>();
}
inline ZeroRedundancyPlan& zero_redundancy_of(Plan& plan) {
  return plan.parts.edit<ZeroRedundancyPlan>();
}

}  // namespace ddpsim
