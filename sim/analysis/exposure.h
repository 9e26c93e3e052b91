// exposure: gives each moment in which a device communicates and computes nothing to one operation,
// the one that the device waits for.
//
// Backwards from where computing goes on: the operation that ended there has the time since it
// began, then the one that ended where that began, and so on. Where none ended, the time back to
// the last end belongs to the operation in flight that ends next; if none is in flight, to the one
// of those that wait to begin (for their stream, or for other ranks) that ends next; if there is
// none, to what the host waits for. Of operations that end together the one launched first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/analysis/intervals.h"

namespace ddpsim::analysis {

// One operation that communicates, ps.
struct Flight {
  std::int64_t ready = 0;  // could have begun; not after `begin`
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool waits = false;  // nothing is in flight for it: the host waits
};

// A stretch of time, and the index of the flight that has it.
struct ExposedTime {
  std::size_t flight = 0;
  Interval at;
};

// All of `exposed`, each moment once, in the order of time. `flights`: in launch order. REQUIRES:
// `exposed` sorted, disjoint, and inside the union of [ready, end) of all flights.
std::vector<ExposedTime> exposed_of(std::span<const Flight> flights,
                                    const std::vector<Interval>& exposed);

}  // namespace ddpsim::analysis
