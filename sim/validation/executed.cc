#include "sim/validation/executed.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "sim/analysis/compare.h"

namespace ddpsim::validation {
namespace {

constexpr std::int64_t kLeast = 256 * kKiB;  // below, latencies are judged

// Pairs of algorithms at one place and size.
void rank(ExecutedReport& r) {
  for (std::size_t i = 0; i < r.rows.size(); ++i)
    for (std::size_t j = i + 1; j < r.rows.size(); ++j) {
      const ExecutedRow& a = r.rows[i];
      const ExecutedRow& b = r.rows[j];
      if (a.gloo || a.where != b.where || a.bytes != b.bytes || a.algorithm == b.algorithm ||
          a.bytes < kLeast)
        continue;
      double ratio = static_cast<double>(a.measured.ps) / static_cast<double>(b.measured.ps);
      if (std::max(ratio, 1 / ratio) <= 1.03) continue;
      ++r.ranked;
      r.ranked_right += (a.predicted < b.predicted) == (a.measured < b.measured);
    }
}

}  // namespace

void set_measured(ExecutedRow& row, std::vector<double> times) {
  double median = analysis::median(times);
  row.measured = {static_cast<std::int64_t>(median)};
  for (double& x : times) x = std::abs(x - median);
  row.deviation = analysis::median(times) / median;
}

ExecutedReport judge(std::vector<ExecutedRow> rows) {
  ExecutedReport r;
  r.rows = std::move(rows);
  std::stable_sort(r.rows.begin(), r.rows.end(), [](const ExecutedRow& a, const ExecutedRow& b) {
    return std::tie(a.where, a.algorithm, a.bytes) < std::tie(b.where, b.algorithm, b.bytes);
  });
  std::vector<double> errors;
  std::vector<double> gloo_errors;
  for (const ExecutedRow& row : r.rows) {
    if (row.bytes < kLeast) continue;
    double error =
        std::abs(static_cast<double>(row.predicted.ps) / static_cast<double>(row.measured.ps) - 1);
    if (!row.gloo) errors.push_back(error);
    r.gloo_rows += row.gloo ? 1 : 0;
    if (row.gloo && row.deviation <= kRepeats) gloo_errors.push_back(error);
  }
  r.judged = errors.size();
  if (!errors.empty()) {
    r.median = analysis::median(errors);
    r.p95 = analysis::percentile(errors, 95);
  }
  r.gloo_judged = gloo_errors.size();
  if (!gloo_errors.empty()) {
    r.gloo_median = analysis::median(gloo_errors);
    r.gloo_largest = *std::max_element(gloo_errors.begin(), gloo_errors.end());
  }
  rank(r);
  return r;
}

}  // namespace ddpsim::validation
