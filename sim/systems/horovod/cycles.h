// When do the background threads of a coordinated Program wake, and what do they decide? Fusion
// with times. Cycles that would find nothing new are passed over, not played.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "sim/systems/horovod/fusion.h"

namespace ddpsim::systems {

class Cycles {
 public:
  // `coordination`: from the last rank's cycle to all ranks' agreement by bits; `negotiation`: what
  // names take besides.
  Cycles(const Coordination& c, int ranks, int local_ranks, Duration coordination,
         Duration negotiation)
      : fusion(c, ranks, local_ranks),
        cycle_(c.cycle),
        coordination_(coordination),
        negotiation_(negotiation),
        began_(ranks, TimePoint{-1}),
        next_(ranks, TimePoint{0}) {}

  Fusion fusion;

  // A rank's hook asks. True: all threads slept until further notice, and now wake at next().
  bool request(int rank, TensorIndex tensor, TimePoint now) {
    fusion.request(rank, tensor);
    if (!asleep_) return false;
    asleep_ = false;
    std::int64_t late = now.ps - next_[index(rank)].ps;
    std::int64_t period = std::max<std::int64_t>({cycle_.ps, spread_ + coordination_.ps, 1});
    std::int64_t passed = late > 0 ? (late + period - 1) / period : 0;
    for (TimePoint& t : next_) t.ps += passed * period;
    return true;
  }
  TimePoint next(int rank) const { return next_[index(rank)]; }

  // A rank's cycle begins. The decision, if it is the last to begin; what it decides begins
  // agreement() later. An empty one: wakes() says whether the threads wake at next() or sleep.
  std::optional<Fusion::Decision> begin(int rank, TimePoint now) {
    // Where others slept through it, its own cycle began before anybody asked.
    began_[index(rank)] = std::min(now, next_[index(rank)]);
    if (!fusion.begin_cycle(rank)) return {};
    Fusion::Decision d = fusion.agree();
    auto [first, last] = std::minmax_element(began_.begin(), began_.end());
    spread_ = last->ps - first->ps;
    if (d.fused.empty()) {
      for (int r = 0; r < std::ssize(began_); ++r) done(r, now + agreement(d));
      // Cycles that are shorter than the ranks' agreement draw them together; until they are, the
      // next is played.
      bool regular = spread_ == 0 || cycle_.ps >= spread_ + coordination_.ps;
      asleep_ = regular && !fusion.waits();
    }
    return d;
  }
  bool wakes() const { return !asleep_; }
  // From the last rank's begin to what was decided.
  Duration agreement(const Fusion::Decision& d) const {
    return d.by_name ? coordination_ + negotiation_ : coordination_;
  }

  // A rank's thread has done what was decided.
  void done(int rank, TimePoint now) {
    next_[index(rank)] = std::max(now, began_[index(rank)] + cycle_);
  }

 private:
  static std::size_t index(int rank) { return rank; }
  Duration cycle_;
  Duration coordination_;
  Duration negotiation_;
  std::vector<TimePoint> began_;
  std::vector<TimePoint> next_;
  std::int64_t spread_ = 0;
  bool asleep_ = true;
};

}  // namespace ddpsim::systems
