// Predictions beside measured Runs: their errors by class, how far Runs repeat, and the limits that
// a budget sets. Pairs are made by pairing.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/compare.h"

namespace ddpsim::validation {

// A measured Run beside the prediction of its scenario. The simpler models of
// sim/predict/baselines.h answer the same question.
struct Pair {
  std::string file;
  std::string key;
  std::string scenario;  // hash
  std::string profile;
  std::string evidence;  // "replay" (computation timed), "replay_sharded" (of sharded systems),
                         // "replay_real", "system" (the real framework, in cells that repeat),
                         // "system_zero_redundancy" (the same with ZeroRedundancyOptimizer),
                         // "system_ddp_options" (with PowerSGD, join, or an optimizer in
                         // backward), "system_local_sgd", "system_other"; on a GPU "system_gpu",
                         // "replay_gpu"; several ranks on one, over loopback: "system_one_gpu",
                         // "replay_one_gpu"
  std::string sample;    // "held_out", "in_sample"
  bool noisy = false;
  bool loopback = false;
  analysis::Comparison comparison;
  Duration low;  // the prediction's 80 % interval
  Duration high;
  double naive_error = 0;
  double queue_error = 0;
  std::optional<double>
      capture_error;  // predicted from the workload as captured on one rank, where computation is
                      // real; the comparison is from the Run's layer profile
  std::string sweep;  // what scenarios that differ in bucket_cap_mb only have in common; "" = the
                      // plan has no buckets
  std::optional<double> cap;
  std::vector<std::string> tags;  // of tag_names(): what the scenario has
};
// What a budget may limit by itself: slow_rank, slow_host, racks, crossing, two_jobs, in_flight,
// ...
std::vector<std::string> tag_names();
bool in_interval(const Pair& p);
// Counts in the aggregates that a budget limits: measured on shaped hosts, not noisy, same
// schedule.
bool is_clean(const Pair& p);

// A Run that fails the validation as a whole, whatever its times.
struct RunError {
  std::string file;
  std::string key;
  std::string what;  // "stale", "mismatch"
  std::string sentence;
};

// Over the |errors| of the pairs of one class; percentiles by nearest rank. Bucket errors: of all
// buckets of all pairs.
struct Aggregate {
  std::size_t n = 0;
  double median = 0, p95 = 0, max = 0;
  std::size_t buckets = 0;
  double bucket_median = 0, bucket_p95 = 0;
  double coverage = 0;  // share of pairs in their interval
  std::size_t firsts = 0, rebuilds = 0,
              captures =
                  0;  // of steps before the steady ones; predicted from a capture on one rank
  double first_max = 0, rebuild_max = 0, capture_median = 0;
  double naive_median = 0, naive_p95 = 0;
  double queue_median = 0, queue_p95 = 0;
};
using Aggregates = std::map<std::string, std::map<std::string, Aggregate>>;  // evidence -> sample

// Clean Runs of scenarios that differ in bucket_cap_mb only, at least 3 caps. Several Runs of a
// cap: their median.
struct CapSweep {
  struct Point {
    std::optional<double> cap;  // none: left at its default
    double predicted_ps = 0;
    double measured_ps = 0;
    std::size_t runs = 0;
  };
  std::string key;  // of its first Run
  std::string evidence;
  std::string sample;  // "held_out", "in_sample", "mixed"
  std::vector<Point> points;
  std::size_t best = 0;    // shortest measured
  std::size_t picked = 0;  // shortest predicted
  double regret = 0;       // measured(picked) / measured(best) - 1
};

// Scenarios of which there are several clean Runs: (longest - shortest) / shortest step, and for
// each bucket (latest - earliest end) / step. No model can be nearer than that.
struct Floor {
  std::size_t scenarios = 0;
  double median = 0, max = 0;
  std::size_t buckets = 0;
  double bucket_median = 0, bucket_p95 = 0;
};

struct Limit {
  std::string what;  // a name of value_names()
  std::optional<double> min;
  std::optional<double> max;
};
struct LimitResult {
  Limit limit;
  std::optional<double> value;  // none: no Run that could tell. Such a limit is broken, so that
                                // deleting Runs passes nothing
  bool broken = false;
  std::string sentence;
};

struct Validation {
  std::vector<Pair> pairs;
  std::vector<RunError> errors;
  std::size_t without_steps = 0;                // Runs of samples only, not compared
  std::size_t unpredicted = 0;                  // Runs of what ddpsim records and does not predict
  Aggregates aggregates;                        // of clean pairs
  std::map<std::string, Aggregates> set_aside;  // "noisy", "loopback"
  std::vector<CapSweep> sweeps;
  Floor floor;
  std::vector<LimitResult> limits;
  bool failed() const;
};

// Sorts the pairs (class, then |error| descending) and fills in everything but limits.
void summarize(Validation& v);
// Every name that a budget may limit; and those of them that have a value.
std::vector<std::string> value_names();
std::map<std::string, double> values(const Validation& v);
void apply_budget(Validation& v, const std::vector<Limit>& limits);
// The same of values by name.
std::vector<LimitResult> apply_limits(const std::map<std::string, double>& values,
                                      const std::vector<Limit>& limits);
// Of these limits, those that are broken whatever pairs are added: a largest error only grows.
std::vector<LimitResult> broken_for_good(Validation v, const std::vector<Limit>& limits);
// Whether the gate fails whatever Runs are still to come. Then v.limits says why.
bool fails_already(Validation& v, const std::vector<Limit>& limits);

}  // namespace ddpsim::validation
