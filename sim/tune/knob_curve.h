// The step as a function of one knob: coarse to fine, as many settings as a budget allows.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sim/systems/knobs.h"
#include "sim/tune/planned_steps.h"

namespace ddpsim::predict {

struct CurvePoint {
  std::optional<systems::KnobValue> value;  // none: left at its default
  Duration step;
  Duration low;  // the interval, as a prediction's
  Duration high;
  std::size_t buckets = 0;  // gradient all-reduces
};

// The steady step of a plan, without its interval.
CurvePoint point_of(PlannedSteps& steps, const Plan& plan, std::optional<systems::KnobValue> value);
void find_interval(PlannedSteps& steps, const Plan& plan, CurvePoint& p);

// Simulates settings of `all` (ascending), over the question's plan: those of round numbers, then
// evenly, then beside the best; every one if the budget allows it or `every` says so. Ascending.
std::vector<CurvePoint> curve_of(PlannedSteps& steps, const systems::Knob& knob,
                                 const std::vector<systems::KnobValue>& all, bool every);

// The index of the shortest step; of a stretch around it that is as short to a tenth of a percent,
// of the largest value that keeps a factor of two from the stretch's upper end: few collectives,
// and no cliff nearby.
std::size_t best_of(const std::vector<CurvePoint>& curve);
// The stretch of the curve around `best` within 1 % of it: its first and its last index.
std::pair<std::size_t, std::size_t> flat_around(const std::vector<CurvePoint>& curve,
                                                std::size_t best);

}  // namespace ddpsim::predict
