// All-reduces that were executed alone, beside the simulation of their messages: by ddpsim's own
// executor, by the real Gloo and by the real Open MPI. The three are never pooled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/units/units.h"

namespace ddpsim::validation {

enum class PlayedBy : std::uint8_t { Executor, Gloo, OpenMpi };

struct ExecutedRow {
  std::string where;      // cluster, ranks, rank order
  std::string algorithm;  // as `ddpsim explain --op` names it
  std::int64_t bytes = 0;
  Duration measured;     // median
  double deviation = 0;  // median absolute deviation of the repetitions / their median
  PlayedBy played_by = PlayedBy::Executor;
  bool in_sample = false;  // a fit saw it: shown, not judged
  Duration predicted;
};
inline constexpr double kRepeats = 0.02;  // largest deviation of what is said to repeat
// Of a real library: its held-out rows of 256 KiB and more.
struct LibraryErrors {
  std::size_t rows = 0;
  std::size_t judged = 0;  // of these, that repeat
  double median = 0;       // of their |predicted / measured - 1|
  double largest = 0;
};
struct ExecutedReport {
  std::vector<ExecutedRow> rows;  // by where, algorithm, bytes
  std::size_t judged = 0;         // the executor's rows of 256 KiB and more
  double median = 0;              // of their |predicted / measured - 1|
  double p95 = 0;
  std::size_t ranked =
      0;  // pairs of algorithms, same place and size, whose times differ by more than 3 %
  std::size_t ranked_right = 0;
  LibraryErrors gloo;
  LibraryErrors open_mpi;
};

// `times`: of the repetitions, picoseconds. REQUIRES: at least one.
void set_measured(ExecutedRow& row, std::vector<double> times);
ExecutedReport judge(std::vector<ExecutedRow> rows);

}  // namespace ddpsim::validation
