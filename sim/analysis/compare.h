// compare: a prediction beside an execution of the same case. The judge sees two Runs and cannot
// see the predictor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/run.h"

namespace ddpsim::analysis {

// Steady steps without the first, which still carries the warm-up, unless it is the only one.
std::vector<Duration> settled_steps(const Run& run);

// The step that a Run stands for. Median (mean if `mean`: for steps that differ from one another,
// as beside another job) of its steady steps without the first of them, which still carries the
// warm-up; with one steady step, that one. Predicted: always their mean; it lists the steps that
// its answer is the mean of (predict/steady.h). REQUIRES: a steady step.
Duration typical_step(const Run& run, bool mean);

// Of one gradient all-reduce: when the last actor had it, relative to the start of its step; median
// over the steps that were recorded.
struct BucketEnd {
  std::string name;
  std::vector<TensorIndex> tensors;
  std::int64_t bytes = 0;
  Duration end;
};
// In order of first appearance. Spans of steps that are not steady are left out.
std::vector<BucketEnd> bucket_ends(const Run& run);

enum class Agreement : std::uint8_t { Within, Outside, Ambiguous };
const char* name_of(Agreement a);

// A difference of more than this is a failure whatever the quality of the measurement: no noise
// that was seen here explains it.
inline constexpr double kMostAmbiguous = 0.10;

struct CompareOptions {
  double tolerance = 0.02;            // of the step, for the verdict
  bool mean = false;                  // see typical_step
  double ambiguous = kMostAmbiguous;  // |error| of the step beyond which an Ambiguous comparison
                                      // fails, too; at least `tolerance`
};

struct EndError {
  std::string name;
  std::int64_t bytes = 0;
  Duration predicted;  // end, relative to the start of the step
  Duration measured;
  double error = 0;  // (predicted - measured) / measured STEP
};

// For display. Times relative to the start of the step; over actors the latest, of a measured Run
// the median over steps.
struct SpanRow {
  std::string op;
  std::string lane;
  Duration predicted_begin;
  Duration predicted_end;
  Duration measured_begin;
  Duration measured_end;
  Duration difference;  // of the ends, predicted - measured
};

struct Comparison {
  Agreement verdict = Agreement::Ambiguous;
  std::string reason;    // of a verdict that is not Within, one sentence
  bool failed = false;   // Outside, or Ambiguous and further off than CompareOptions::ambiguous
  std::string mismatch;  // the schedules differ: one sentence. Then the verdict is Outside, and no
                         // error below is one of timing. "" = they agree
  bool schedule_checked =
      false;  // false: one of the Runs recorded no collective that every step has (what is
              // decided while a step runs is none), so nothing could be joined
  Duration predicted;
  Duration measured;
  double error = 0;                     // predicted / measured - 1
  std::optional<double> first_error;    // of the first step, where both Runs have one
  std::optional<double> rebuild_error;  // of the step that forms the buckets
  std::vector<EndError> buckets;        // joined by name
  std::vector<EndError> phases;         // the ends of forward (of every micro-step) and optimizer
  std::vector<SpanRow> spans;  // operations that both recorded, in the order of the prediction
};

// Joins communication by the operation's name, then requires equal tensors and bytes. Verdict:
// Outside on a mismatch; else Ambiguous if the measured Run is noisy, was not made on shaped hosts
// ("loopback"), or cannot support the tolerance (spread / sqrt(steps) > tolerance); else by |step
// error|. Ambiguous is no licence: `failed` where |step error| is above both
// CompareOptions::ambiguous and the tolerance. REQUIRES: a predicted and a measured Run, each with
// a steady step.
Comparison compare(const Run& predicted, const Run& measured, const CompareOptions& options = {});

// Mean of the two in the middle for an even count. REQUIRES: not empty.
double median(std::vector<double> values);
// Nearest rank: the smallest value that at least `percent` per cent of all values do not exceed.
// REQUIRES: not empty, 0 < percent <= 100.
double percentile(std::vector<double> values, double percent);
std::vector<double> absolute(std::vector<double> values);

}  // namespace ddpsim::analysis
