// The knobs of NVIDIA Apex's DistributedDataParallel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/systems/apex/version.h"

namespace ddpsim {

// apex.parallel.DistributedDataParallel, of NVIDIA Apex up to May 2025, which removed it.
struct ApexPlan {
  apex::Version release;
  std::int64_t message_size = 10'000'000;  // elements
  bool delay_allreduce = false;
  std::vector<std::string> allreduce_trigger_params;  // take the place of message_size
  std::int64_t num_allreduce_streams = 1;             // and communicators
  bool retain_allreduce_buffers = false;
  bool allreduce_always_fp32 = false;
  bool gradient_average = true;
  std::optional<double> gradient_predivide_factor;  // default 1
  bool disable_allreduce = false;  // in micro-steps but the last; false: each of them reduces
};
// So many buckets are on streams of their own; another is the input pipeline's (kMostStreams).
inline constexpr std::int64_t kMostApexStreams = 6;

inline const ApexPlan& apex_of(const Plan& plan) {
  return plan.parts.get<ApexPlan>();
}
inline ApexPlan& apex_of(Plan& plan) {
  return plan.parts.edit<ApexPlan>();
}

}  // namespace ddpsim
