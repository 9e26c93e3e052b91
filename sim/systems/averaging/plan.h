// The knobs of plain gradient averaging.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim {

enum class Granularity : std::uint8_t { PerParameter, Flat };
struct AveragingPlan {
  Granularity granularity = Granularity::PerParameter;
  bool async_op = false;
};

inline const AveragingPlan& averaging_of(const Plan& plan) {
  return plan.parts.get<AveragingPlan>();
}
inline AveragingPlan& averaging_of(Plan& plan) {
  return plan.parts.edit<AveragingPlan>();
}

}  // namespace ddpsim
