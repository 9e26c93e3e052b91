#include "sim/analysis/exposure.h"

#include <algorithm>
#include <numeric>

namespace ddpsim::analysis {
namespace {

// Goes back in time. An operation joins where it ends and leaves for good where it begins, so that
// those which are there are a stack: the one on top ends next.
class Backwards {
 public:
  explicit Backwards(std::span<const Flight> flights) : flights_(flights), by_end_(flights.size()) {
    std::iota(by_end_.begin(), by_end_.end(), std::size_t{0});
    // Latest end first; of equal ends the one launched first is last, and so on top.
    std::stable_sort(by_end_.begin(), by_end_.end(), [&](std::size_t a, std::size_t b) {
      return flights[a].end != flights[b].end ? flights[a].end > flights[b].end : a > b;
    });
  }

  // Who has the moments just before `t`, and since when.
  struct Owner {
    std::size_t flight;
    std::int64_t since;
  };
  Owner before(std::int64_t t) {
    for (; next_ < by_end_.size() && flights_[by_end_[next_]].end >= t; ++next_) {
      const std::size_t joins = by_end_[next_];
      if (flights_[joins].waits) {
        hosts_.push_back(joins);
      } else {
        flying_.push_back(joins);
        waiting_.push_back(joins);
      }
    }
    const std::int64_t last_end = next_ < by_end_.size() ? flights_[by_end_[next_]].end : INT64_MIN;
    leave(flying_, &Flight::begin, t);
    leave(waiting_, &Flight::ready, t);
    leave(hosts_, &Flight::ready, t);
    if (!flying_.empty()) {
      const Flight& f = flights_[flying_.back()];
      return {flying_.back(), f.end == t ? f.begin : std::max(f.begin, last_end)};
    }
    const std::vector<std::size_t>& rest = waiting_.empty() ? hosts_ : waiting_;
    if (rest.empty()) return {flights_.size(), last_end};
    return {rest.back(), std::max(flights_[rest.back()].ready, last_end)};
  }

 private:
  void leave(std::vector<std::size_t>& stack, std::int64_t Flight::*since, std::int64_t t) {
    while (!stack.empty() && flights_[stack.back()].*since >= t) stack.pop_back();
  }

  std::span<const Flight> flights_;
  std::vector<std::size_t> by_end_;
  std::size_t next_ = 0;                               // of by_end_: the next to join
  std::vector<std::size_t> flying_, waiting_, hosts_;  // waiting_: those in flight, too
};

}  // namespace

std::vector<ExposedTime> exposed_of(std::span<const Flight> flights,
                                    const std::vector<Interval>& exposed) {
  std::vector<ExposedTime> out;
  if (exposed.empty()) return out;
  Backwards walk(flights);
  for (auto piece = exposed.rbegin(); piece != exposed.rend(); ++piece)
    for (std::int64_t t = piece->end; t > piece->begin;) {
      const auto [owner, since] = walk.before(t);
      const std::int64_t from = std::max(since, piece->begin);
      if (owner < flights.size()) out.push_back({owner, {from, t}});
      t = from;
    }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace ddpsim::analysis
