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
      if (a.played_by != PlayedBy::Executor || b.played_by != a.played_by || a.where != b.where ||
          a.bytes != b.bytes || a.algorithm == b.algorithm || a.bytes < kLeast)
        continue;
      double ratio = a.measured / b.measured;
      if (std::max(ratio, 1 / ratio) <= 1.03) continue;
      ++r.ranked;
      r.ranked_right += (a.predicted < b.predicted) == (a.measured < b.measured);
    }
}

double error_of(const ExecutedRow& row) {
  return std::abs(row.predicted / row.measured - 1);
}

LibraryErrors errors_of(const std::vector<ExecutedRow>& rows, PlayedBy library) {
  LibraryErrors out;
  std::vector<double> errors;
  for (const ExecutedRow& row : rows) {
    if (row.played_by != library || row.in_sample || row.bytes < kLeast) continue;
    ++out.rows;
    if (row.deviation <= kRepeats) errors.push_back(error_of(row));
  }
  out.judged = errors.size();
  if (errors.empty()) return out;
  out.median = analysis::median(errors);
  out.largest = *std::max_element(errors.begin(), errors.end());
  return out;
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
  for (const ExecutedRow& row : r.rows)
    if (row.played_by == PlayedBy::Executor && row.bytes >= kLeast) errors.push_back(error_of(row));
  r.judged = errors.size();
  if (!errors.empty()) {
    r.median = analysis::median(errors);
    r.p95 = analysis::percentile(errors, 95);
  }
  r.gloo = errors_of(r.rows, PlayedBy::Gloo);
  r.open_mpi = errors_of(r.rows, PlayedBy::OpenMpi);
  rank(r);
  return r;
}

}  // namespace ddpsim::validation
