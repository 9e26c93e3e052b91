// Which readings of a device's time count, and when there are enough. Pure; the caller reads
// clocks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/units/units.h"

namespace ddpsim::calib::gpu {

struct Reading {
  Duration took;
  int sm_mhz = 0;  // the GPU's clock when it ended; 0 = unknown
  bool throttled =
      false;  // the driver said that heat, or power beyond the card's limit, slowed the clock
  int power_mw = 0;  // what the GPU draws; 0 = unknown
  int celsius = 0;
  std::int64_t throttle_bits = 0;  // NVML's reasons for a lower clock, idleness apart
};

struct Kept {
  std::vector<Duration> durations;  // in order
  int discarded = 0;
  std::string reason;  // why readings were discarded, or why none could be; "" = all were good
};

// Discards readings that were throttled, and those at a clock more than `slack` below the upper
// quartile of the clocks (a GPU that was idle speeds up first). If that leaves less than half,
// keeps all and says so: then the slow clock is what this GPU does.
Kept keep(std::span<const Reading> readings, double slack = 0.03);

// Whether the median is known within `within` of itself: half the width of its 95 % confidence
// interval, by order statistics. False below 10 readings.
bool settled(std::span<const Duration> durations, double within);

}  // namespace ddpsim::calib::gpu
