// The knobs of MiCS, a system that only tests have.
#pragma once

#include "sim/model/plan.h"

namespace ddpsim {

struct MicsPlan {
  std::int64_t partition_size = 0;  // ranks that hold one copy of the model; 0 = those of a host
};
inline const MicsPlan& mics_of(const Plan& plan) {
  return plan.parts.get<MicsPlan>();
}
inline MicsPlan& mics_of(Plan& plan) {
  return plan.parts.edit<MicsPlan>();
}

}  // namespace ddpsim
