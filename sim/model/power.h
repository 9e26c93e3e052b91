// What a GPU may draw, and what it draws: a Profile's section `power`. File format:
// docs/formats.md. Equations: docs/model.md, 5.1.
#pragma once

#include <optional>
#include <string>

#include "sim/model/error.h"
#include "sim/model/workload.h"

namespace ddpsim {

// At the clock of the peaks.
struct Draw {
  double idle_w = 0;
  double busy_w = 0;              // more, while any kernel runs
  ByPrecision joules_per_flop{};  // of products, convolutions and attention, by Precision
};

// A card of the same chip: at the same share of its peaks it draws the same share of its limit as
// the GPU that was measured. Often the card itself.
struct SameChip {
  std::string gpu;
  double limit_w = 0;
  double clock_hz = 0;
  ByPrecision peak_flops{};  // by Precision; 0 = not offered
};

struct PowerSection {
  std::string source;
  double limit_w = 0;            // of the board
  Draw draw;                     // measured, or that of `like` (predict/power.h)
  std::optional<SameChip> like;  // absent: measured
};

// Names fields of the section: "/power/limit_w".
Problem validate(const PowerSection& p);

}  // namespace ddpsim
