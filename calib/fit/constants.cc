#include "calib/fit/constants.h"

#include <cmath>
#include <map>

#include "sim/analysis/compare.h"

namespace ddpsim::calib {
namespace {

using ByMachine = std::map<std::string, std::vector<double>>;

// Median over machines of the medians of each. 0 of none.
double median_over(const ByMachine& machines) {
  std::vector<double> medians;
  for (const auto& [name, values] : machines) medians.push_back(analysis::median(values));
  return medians.empty() ? 0 : analysis::median(std::move(medians));
}

// Microseconds that a channel more takes for each GPU of a process that has several. nullopt = the
// table does not tell.
std::optional<double> channel_us(const CollectiveTable& t) {
  constexpr double kHidden = 1.25;
  constexpr std::int64_t kLargest = 1 << 20;
  constexpr int kFewChannels = 8;
  if (t.gpus_per_process < 2) return {};
  std::map<int, std::vector<double>> launches;
  for (const CollectiveRow& row : predict_table(t, t.profile))
    if (row.available && row.bytes <= kLargest &&
        static_cast<double>(row.measured.ps) > kHidden * static_cast<double>(row.price.total.ps))
      launches[row.choice.channels].push_back(microseconds(row.measured).us / t.gpus_per_process);
  if (launches.empty() || launches.begin()->first != 1) return {};
  auto most = std::prev(launches.end());
  if (most->first < kFewChannels) return {};
  double more = analysis::median(most->second) - analysis::median(launches.begin()->second);
  return std::max(0.0, more / (most->first - 1));
}

bool is_nvls(const CollectiveRow& row) {
  return row.available && row.choice.algorithm == nccl::Algorithm::Nvls;
}

Microseconds nvls_chunk(const std::vector<const CollectiveTable*>& tables) {
  std::vector<CollectiveTable> judges;
  for (const CollectiveTable* t : tables) {
    CollectiveTable own = *t;
    std::erase_if(own.rows, [](const CollectiveRow& r) { return !is_nvls(r); });
    if (!own.rows.empty()) judges.push_back(std::move(own));
  }
  Microseconds best;
  double least = 1e30;
  for (int k = 0; !judges.empty() && k <= 60; ++k) {
    const double value = 0.02 * k;
    ByMachine errors;
    for (CollectiveTable& t : judges) {
      nccl::set_constants(*t.group, {.nvls_chunk = {value}});
      std::vector<double> of;
      for (const CollectiveRow& r : predict_table(t, t.profile))
        of.push_back(std::abs(r.predicted / r.measured - 1));
      errors[t.machine].push_back(analysis::median(std::move(of)));
    }
    double cost = 0.02 * value;
    for (const auto& [name, medians] : errors) {
      double sum = 0;
      for (double m : medians) sum += m;
      cost += sum / static_cast<double>(medians.size());
    }
    if (cost >= least - 1e-12) continue;
    least = cost;
    best = {value};
  }
  return best;
}

}  // namespace

nccl::Constants fit_constants(const std::vector<CollectiveTable>& tables,
                              const std::string& without) {
  ByMachine own;
  ByMachine batch;
  std::vector<const CollectiveTable*> others;
  for (const CollectiveTable& t : tables) {
    if (t.machine == without || nccl::nodes(*t.group) > 1) continue;
    others.push_back(&t);
    if (auto us = channel_us(t))
      (nccl::version(*t.group).has(nccl::Change::WorkSharedByChannels) ? batch : own)[t.machine]
          .push_back(*us);
  }
  return {{median_over(own)}, {median_over(batch)}, nvls_chunk(others)};
}

}  // namespace ddpsim::calib
