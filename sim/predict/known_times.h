// What a workload's layers take on a profile, which questions about the two have in common: sweeps
// ask for it point after point.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "sim/cost/roofline.h"
#include "sim/model/profile.h"

namespace ddpsim::predict {

class KnownTimes {
 public:
  // Stays where it is. REQUIRES: both outlive it.
  KnownTimes(const Workload& w, const Profile& p) : workload_(w), profile_(p) {}

  // As step_times(), which is asked where either is another object than these. May be called by
  // several threads.
  StepTimes of(const Workload& w, const Profile& p, Level level,
               std::optional<DType> weights = {}) {
    if (&w != &workload_ || &p != &profile_) return step_times(w, p, level, weights);
    std::lock_guard guard(lock_);
    auto [it, fresh] = times_.try_emplace({level, weights});
    if (fresh) it->second = step_times(w, p, level, weights);
    return it->second;
  }

 private:
  const Workload& workload_;
  const Profile& profile_;
  std::mutex lock_;
  std::map<std::pair<Level, std::optional<DType>>, StepTimes> times_;
};

// As step_times(). `known`: null = none.
inline StepTimes step_times(KnownTimes* known, const Workload& w, const Profile& p, Level level,
                            std::optional<DType> weights) {
  return known ? known->of(w, p, level, weights) : step_times(w, p, level, weights);
}

}  // namespace ddpsim::predict
