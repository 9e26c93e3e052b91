// A point's neighbour on an axis of bandwidths has all other axes' values and the next slower one.
#include "sim/sweep/flips.h"

#include <algorithm>

#include <fmt/format.h>

namespace ddpsim::sweep {
namespace {

constexpr std::size_t kShown = 5;
constexpr double kNotice = 0.001;  // of the step

// Places on the axis, from the slowest link to the fastest; empty: it is not one of bandwidths.
std::vector<std::size_t> by_bandwidth(const Axis& a) {
  std::vector<std::pair<Bandwidth, std::size_t>> places;
  if (a.fields.size() != 1 || !a.fields.front().ends_with("bandwidth")) return {};
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    auto parsed = parse_bandwidth(a.values[i].front());
    if (!parsed.value) return {};
    places.emplace_back(*parsed.value, i);
  }
  std::sort(places.begin(), places.end());
  std::vector<std::size_t> out;
  for (const auto& place : places) out.push_back(place.second);
  return out;
}

}  // namespace

void SweepFlips::add(const SweepRow& row) {
  // Only NCCL's all-reduces have a name of two parts.
  if (!row.reason.empty() || row.algorithm.find('/') == std::string::npos) return;
  if (seen_.size() < kMost)
    seen_[row.point] = {row.step, row.algorithm};
  else
    too_many_ = true;
}

std::vector<std::string> SweepFlips::lines(const Sweep& s) const {
  std::vector<std::string> shown;
  std::size_t count = 0;
  std::int64_t stride = 1;
  for (std::size_t k = s.axes.size(); k-- > 0 && !too_many_;) {
    const Axis& axis = s.axes[k];
    std::int64_t length = axis.values.size();
    std::vector<std::size_t> order = by_bandwidth(axis);
    for (std::size_t i = 1; i < order.size(); ++i)
      for (const auto& [point, fast] : seen_) {
        if (point / stride % length != static_cast<std::int64_t>(order[i])) continue;
        auto steps = static_cast<std::int64_t>(order[i - 1]) - static_cast<std::int64_t>(order[i]);
        auto slow = seen_.find(point + steps * stride);
        if (slow == seen_.end()) continue;
        const Seen& other = slow->second;
        double lost = fast.step / other.step - 1;
        if (lost < kNotice || ++count > kShown) continue;
        const std::string& field = axis.fields.front();
        std::string why = fast.algorithm == other.algorithm
                              ? fmt::format("both {}, on other channels", fast.algorithm)
                              : fmt::format("{} instead of {}", fast.algorithm, other.algorithm);
        shown.push_back(fmt::format("point {}: {} with {}={}, and {} with {} ({})", point,
                                    to_string(fast.step), field, axis.values[order[i]].front(),
                                    to_string(other.step), axis.values[order[i - 1]].front(), why));
      }
    stride *= length;
  }
  if (count == 0) return {};
  std::string first = fmt::format(
      "{} point{} slower than the neighbour with a slower link: NCCL chooses by its own estimate "
      "(NCCL_ALGO and NCCL_PROTO hold it to one algorithm)",
      count, count == 1 ? " is" : "s are");
  shown.insert(shown.begin(), first);
  if (count > kShown) shown.push_back(fmt::format("and {} more", count - kShown));
  return shown;
}

}  // namespace ddpsim::sweep
