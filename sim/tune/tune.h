// tune: which setting of a system's knob makes the step shortest, how flat the curve is there, and
// what would still be won.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/tune/best_buckets.h"
#include "sim/tune/bound.h"
#include "sim/tune/knob_curve.h"

namespace ddpsim::predict {

struct TuneOptions {
  Options options;                       // `known` is filled if it is null
  systems::Knob knob;                    // one of systems::knobs(plan)
  std::vector<systems::KnobValue> only;  // settings to choose from; empty = all that differ
  int simulations = 0;                   // of the curve at most; 0 = by what one costs
  bool partition = true;                 // also look for the best buckets of any sizes
  bool levers = true;
};

// Settings this near to one another are neighbours: a model that differs a little (a layer padded,
// a bias more) turns one into the other.
inline constexpr double kBeside = 0.05;

struct Tuning {
  systems::Knob knob;
  std::vector<CurvePoint> curve;  // ascending
  std::size_t candidates = 0;     // settings that differ; the curve has those that were simulated
  std::size_t best = 0;  // index into curve: the shortest step, or one as short to a tenth of a
                         // percent with fewer buckets
  CurvePoint current;
  // Of the curve: the shortest of those that are measurably shorter than the current, with no
  // measurably longer step at any setting within kBeside of it; none = keep the current.
  std::optional<std::size_t> chosen;
  bool cliffs = false;        // some were measurably shorter, and had such a neighbour
  Difference gain;            // of the chosen, else of the best, over the current
  std::size_t flat_from = 0;  // the stretch of the curve around the best within 1 % of it
  std::size_t flat_to = 0;
  std::optional<Bound> bound;
  std::optional<TunedPartition> partition;
  std::string no_partition;              // why there is none
  std::optional<CurvePoint> other_best;  // the system's second knob, searched by itself
  systems::Knob other;
  bool other_is_better = false;  // by more than executed steps repeat to, by the same rules; only
                                 // where it is an argument (Knob::argument)
  Plan recommended;              // the current plan, if no difference could be measured
  std::vector<Lever> levers;     // of the recommended plan
  Duration recommended_step;
  std::vector<std::string> lines;  // for the training script
  std::string verdict;             // a sentence
};

// Of how many gradients settings are searched: each costs a simulation or three of a step, in
// seconds.
inline constexpr std::size_t kMostTuned = 10'000;

// REQUIRES: check(q) found nothing; with `only`, at least one; without, at most kMostTuned
// gradients.
Tuning tune(const Question& q, const TuneOptions& options);

}  // namespace ddpsim::predict
