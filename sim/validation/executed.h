// All-reduces that were executed alone, beside the simulation of their messages: ddpsim's own
// executor, and the real Gloo. None was fitted. The two are never pooled.
#pragma once

#include <string>
#include <vector>

#include "sim/model/algorithm.h"
#include "sim/units/units.h"

namespace ddpsim::validation {

struct ExecutedRow {
  std::string where;  // cluster, ranks, rank order
  Algorithm algorithm = Algorithm::Ring;
  std::int64_t bytes = 0;
  Duration measured;     // median
  double deviation = 0;  // median absolute deviation of the repetitions / their median
  bool gloo = false;     // the real Gloo, not ddpsim's executor
  Duration predicted;
};
inline constexpr double kRepeats = 0.02;  // largest deviation of what is said to repeat
struct ExecutedReport {
  std::vector<ExecutedRow> rows;  // by where, algorithm, bytes
  std::size_t judged = 0;         // rows of 256 KiB and more
  double median = 0;              // of their |predicted / measured - 1|
  double p95 = 0;
  std::size_t ranked =
      0;  // pairs of algorithms, same place and size, whose times differ by more than 3 %
  std::size_t ranked_right = 0;
  std::size_t gloo_rows = 0;    // of 256 KiB and more
  std::size_t gloo_judged = 0;  // of these, that repeat
  double gloo_median = 0;
  double gloo_largest = 0;
};

// `times`: of the repetitions, picoseconds. REQUIRES: at least one.
void set_measured(ExecutedRow& row, std::vector<double> times);
ExecutedReport judge(std::vector<ExecutedRow> rows);

}  // namespace ddpsim::validation
