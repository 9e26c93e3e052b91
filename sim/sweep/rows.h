// A sweep, one row for each of its points, and rows as a file has them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/predict/predict.h"
#include "sim/sweep/axis.h"

namespace ddpsim::sweep {

struct SweepRow {
  std::int64_t point = 0;
  std::vector<std::string> values;  // of the axes' fields
  std::string reason;               // why the point has no prediction; "" = it has
  bool internal = false;            // the reason is an internal error
  bool jitter = false;  // samples_per_s and scaling_efficiency are with it, all else is without
  int ranks = 0;
  Duration step;
  std::optional<Duration> low;  // of the interval: with Sweep::interval, or where the profile was
                                // held to executed steps
  std::optional<Duration> high;
  double samples_per_s = 0;
  double samples = 0;                    // of a step, all ranks together
  double scaling_efficiency = 0;         // 0: the workload computes nothing, and has none
  std::optional<double> efficiency_low;  // as low and high
  std::optional<double> efficiency_high;
  Duration communication;
  Duration exposed;
  int all_reduces = 0;    // of gradients, in a step
  std::string algorithm;  // of the largest
  std::string busiest_link;
  double busiest_share = 0;
  std::int64_t memory = 0;   // of a device at the peak, bytes; 0 = not known
  std::optional<bool> fits;  // none: nothing says how much it has
  std::string would_fit;  // with what it would, as predict says it; "" = it fits, or nothing tried
                          // would do
  std::string profile;
  std::string basis;   // of the profile's numbers, as predict says it
  std::string beyond;  // what of it the model has only in part, as predict says it; "" = nothing
};

struct Sweep {
  std::vector<Axis> axes;
  std::int64_t points = 0;
  bool interval = false;  // also at both ends of the profile's ranges: three simulations a point
  std::string
      nccl;  // what the plan sets of NCCL and no axis does, at the first point; "" = nothing
  std::string
      id;  // of the question, the axes and this version: "16 hex digits-points"; in every row
};

// The axes that flags name, and their points; id and nccl are the caller's to say. Throws
// InputError.
Sweep sweep_over(const std::vector<std::string>& axes, const std::vector<std::string>& zips,
                 bool interval);

// A row without an answer: what the point is.
SweepRow row_at(const Sweep& sweep, std::int64_t point);
// The answer of its question; where it does not fit, what would is tried with `options`.
void fill(SweepRow& row, const Sweep& sweep, const predict::Question& question,
          const predict::Prediction& prediction, const predict::Options& options);
bool does_not_fit(const SweepRow& row);
// "0.9 GiB", "131.4 GiB does not fit"; "" = not known.
std::string memory_text(const SweepRow& row);
// Why there is none, in words of the axes.
void refuse(SweepRow& row, const Sweep& sweep, const InputError& error);

// One row as text: what a file that is continued or merged holds.
struct RowText {
  std::int64_t point = -1;
  std::vector<std::string> values;  // of the axes' fields, as printed
  std::string id;
  std::string problem;  // why sweep_line() did not write it; "" = it may have
};
// REQUIRES: is_sweep_header(header).
RowText read_row(const std::string& header, const std::string& line);
bool is_sweep_header(const std::string& line);
// The values of a point, as its row prints them.
std::vector<std::string> printed_values(const std::vector<std::string>& values);
// Sweep::id, and how many points one has; 0 = it is no id.
std::string id_of(std::uint64_t hash, std::int64_t points);
std::int64_t points_of_id(const std::string& id);

// CSV, with the line's end.
std::string sweep_header(const Sweep& s);
std::string sweep_line(const Sweep& s, const SweepRow& row);
// What a sweep's CSV says of itself: the columns that its header names as axes, and its rows (with
// the decimals that the CSV has). `file`: for errors. Throws InputError.
Sweep sweep_of(const std::string& header, const std::string& file);
SweepRow row_of(const Sweep& s, const std::string& line, const std::string& file);

}  // namespace ddpsim::sweep
