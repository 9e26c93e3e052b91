// tune of a plan that shards: the settings of its decisions that make the step shortest of those
// that fit the device's memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/predict/predict.h"
#include "sim/systems/base/decisions.h"
#include "sim/tune/difference.h"

namespace ddpsim::predict {

struct ShardedOptions {
  Options options;
  // What is searched: one decision or all. Of each the settings to choose from.
  std::vector<systems::Decision> decisions;
  bool partitions = true;  // of "units": also what the dynamic programme finds
};

// A plan that was simulated.
struct TriedPlan {
  Plan plan;
  std::vector<std::string> settings;  // of each decision, in their order
  Duration step;
  Duration exposed;              // communication
  std::int64_t device = 0;       // bytes at the peak
  std::int64_t device_high = 0;  // the estimate's pessimistic end
  bool fits = true;              // as a prediction says it
};

// The plan recommended with one decision's setting changed.
struct Around {
  std::size_t decision = 0;
  std::string setting;
  std::size_t tried = 0;  // index into ShardedTuning::tried
};

struct ShardedTuning {
  std::vector<systems::Decision> decisions;
  std::int64_t capacity = 0;               // of the device, or the limit; 0 = not known
  std::vector<TriedPlan> tried;            // each plan once, the question's own first
  std::size_t refused = 0;                 // settings that rule one another out, as check() says
  std::size_t rounds = 0;                  // through all decisions
  std::size_t current = 0;                 // index into tried, as the others
  std::size_t shortest = 0;                // of all, also of those that do not fit
  std::optional<std::size_t> best;         // the shortest that fits; none: nothing does
  std::optional<std::size_t> recommended;  // the best, or the plan as it is where no difference
                                           // could be measured; none: nothing fits
  std::optional<std::size_t> leanest;  // least memory of those as short as `recommended` to what
                                       // executed steps repeat to; none: not 1 % less
  std::vector<Around> around;          // the recommended, else the current
  Difference gain;                     // of the best over the current
  // What the dynamic programme said of the partitions that it proposed, and what was simulated.
  struct Proposed {
    std::vector<std::int64_t> blocks;
    Duration model;
    std::size_t tried = 0;
  };
  std::vector<Proposed> proposed;
  std::vector<std::string> lines;  // for the training script, or DeepSpeed's JSON
  std::string verdict;             // a sentence
};

// What a plan that was tried changes of the question's: "units=2, shard_degree=8".
std::string changes_of(const ShardedTuning& t, std::size_t tried);
// The answer in a sentence. REQUIRES: all but `verdict` is there.
std::string verdict_of(const ShardedTuning& t);

// Coordinate descent: from the plan as it is, each decision in turn takes the setting with the
// shortest step that fits, until a round changes nothing; where something did not fit, again from
// the settings of least memory. Then decisions that make no difference go back to what they were.
// Deterministic. REQUIRES: check(q) found nothing; at least one decision, of the question's plan.
ShardedTuning tune_sharded(const Question& q, const ShardedOptions& options);

}  // namespace ddpsim::predict
