// The parts of a fabric's picture. Internal to topology_dot.
#pragma once

#include <string>

#include "sim/report/dot_drawing.h"

namespace ddpsim::report {

// One host, as a box with this label: its devices and NICs and what joins them.
void draw_host(Drawing& dot, HostId host, const std::string& label);

// The network's switches; its cables from switch to switch.
void draw_switches(Drawing& dot);
void draw_trunks(Drawing& dot);

// Switches that a picture has beside boxes of many hosts; with more, those of one role are a box.
inline constexpr int kMostSwitches = 16;
// More hosts than can be drawn one by one: one host whole, the others as boxes with their number.
void draw_summary(Drawing& dot);

}  // namespace ddpsim::report
