#include "calib/fit/price_interval.h"

#include <algorithm>
#include <map>
#include <string>

namespace ddpsim::calib {
namespace {

constexpr double kTail = 0.1;

using Ratios = std::map<std::string, std::vector<double>>;  // by machine

// Below which a share of the machines' rows lies; each machine weighs 1, whatever its rows.
// REQUIRES: one machine at least.
double quantile(const Ratios& by_machine, const std::string& without, double share) {
  std::vector<std::pair<double, double>> weighted;
  double all = 0;
  for (const auto& [machine, ratios] : by_machine) {
    if (machine == without) continue;
    all += 1;
    for (double r : ratios) weighted.emplace_back(r, 1.0 / static_cast<double>(ratios.size()));
  }
  std::sort(weighted.begin(), weighted.end());
  double below = 0;
  for (const auto& [ratio, weight] : weighted) {
    below += weight;
    if (below >= share * all) return ratio;
  }
  return weighted.back().first;
}

}  // namespace

PriceInterval interval_of(const Ratios& ratios) {
  PriceInterval out;
  out.machines = ratios.size();
  if (ratios.empty()) return out;
  out.low = quantile(ratios, "", kTail);
  out.high = quantile(ratios, "", 1 - kTail);
  if (ratios.size() < 2) return out;
  for (const auto& [machine, own] : ratios) {
    const double low = quantile(ratios, machine, kTail);
    const double high = quantile(ratios, machine, 1 - kTail);
    out.rows += own.size();
    out.inside += static_cast<std::size_t>(
        std::count_if(own.begin(), own.end(), [&](double r) { return low <= r && r <= high; }));
  }
  return out;
}

void PriceRatios::add(const std::string& machine, const std::vector<CollectiveRow>& shipped) {
  for (const CollectiveRow& row : shipped)
    if (row.available)
      by_size_[nccl::spread_index(row.bytes)][machine].push_back(row.measured / row.predicted);
}

PriceIntervals PriceRatios::intervals() const {
  PriceIntervals out;
  std::transform(by_size_.begin(), by_size_.end(), out.begin(), interval_of);
  return out;
}

}  // namespace ddpsim::calib
