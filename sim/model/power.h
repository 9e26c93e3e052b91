// What a GPU may draw, and what it draws: a Profile's section `power`. File format: sim/FORMATS.md.
// Equations: sim/MODEL.md, 5.1.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "sim/model/error.h"

namespace ddpsim {

// Watts at the clock of the peaks. Beside `idle`, those of a step of one kind of kernel alone.
struct Draw {
  double idle = 0;
  std::array<double, 4> products{};  // matrix products and convolutions, by Precision
  double attention = 0;
  double memory = 0;
};

// A card of the same chip, of which its maker's rates can be taken for what its limit lets it hold.
struct SameChip {
  std::string gpu;
  double limit_w = 0;
  double clock_hz = 0;
  double bandwidth_bytes_per_s = 0;
  std::array<double, 4> peak_flops{};  // by Precision; 0 = not offered
};

struct PowerSection {
  std::string source;
  double limit_w = 0;            // of the board
  Draw draw;                     // measured, or that of `like` (predict/power.h)
  std::optional<SameChip> like;  // absent: measured, and kernels were measured under this limit
};

// Names fields of the section: "/power/limit_w".
Problem validate(const PowerSection& p);

}  // namespace ddpsim
