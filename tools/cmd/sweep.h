// A sweep: one prediction for every point of its axes.
#pragma once

#include <string>
#include <vector>

#include "tools/cmd/axis.h"

namespace ddpsim::cli {

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
  Bytes state;
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

// Checks every field and every name before any work. Throws InputError.
Sweep make_sweep(const Terminal& t, Loader& loader, const QuestionFlags& flags,
                 const std::vector<std::string>& axes, const std::vector<std::string>& zips,
                 bool interval);

// "resnet50 on hgx-h100: bucket_cap_mb x cluster.hosts", of the first point that has a question.
std::string title(Loader& loader, const Sweep& sweep);

// Throws nothing that a question can be blamed for: what is wrong with it is the row's reason. So
// is an internal error, which the summary counts.
SweepRow ask_point(Loader& loader, const Sweep& sweep, std::int64_t point);

// The row of a point that is not asked.
SweepRow skipped_point(const Sweep& sweep, std::int64_t point);

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
// Of Sweep::id: how many points it has; 0 = it is no id.
std::int64_t points_of_id(const std::string& id);

// CSV, with the line's end.
std::string sweep_header(const Sweep& s);
std::string sweep_line(const Sweep& s, const SweepRow& row);
// What a sweep's CSV says of itself: the columns that its header names as axes, and its rows (with
// the decimals that the CSV has). `file`: for errors. Throws InputError.
Sweep sweep_of(const std::string& header, const std::string& file);
SweepRow row_of(const Sweep& s, const std::string& line, const std::string& file);

std::string sweep_table(const Sweep& s, const std::vector<SweepRow>& rows, bool markdown);
io::OrderedJson sweep_json(
    const Sweep& s,
    const std::vector<SweepRow>& rows);  // sweep_flips.h's lines are among its notes

// "profile h100-sxm.datasheet: datasheet, never measured on this hardware", for each profile.
std::vector<std::string> provenance(const std::vector<SweepRow>& rows);

// The best few, and how many points have no prediction: what a person wants to know when it is
// done. Where points differ in the samples of a step, a shorter step says little: then by samples
// per second, and where they differ in ranks also by samples per second of a rank.
class SweepSummary {
 public:
  void add(const SweepRow& row);
  std::string text(const Sweep& s) const;
  std::string notes() const;  // what all rows have in common, as lines
  std::int64_t internal_errors() const { return internal_; }

 private:
  std::int64_t rows_ = 0;
  std::int64_t invalid_ = 0;
  std::int64_t internal_ = 0;
  std::int64_t beyond_ = 0;
  bool jitter_ = false;
  std::string first_reason_;
  std::string first_beyond_;
  std::optional<SweepRow> first_;  // of those with a prediction
  bool samples_differ_ = false;
  bool ranks_differ_ = false;
  std::vector<SweepRow> shortest_;
  std::vector<SweepRow> fastest_;   // samples per second
  std::vector<SweepRow> cheapest_;  // samples per second of a rank
  std::vector<SweepRow> profiles_;  // one of each
};

}  // namespace ddpsim::cli
