// The executor's clock.
#pragma once

#include <cstdint>

namespace ddpsim::calib {

// CLOCK_MONOTONIC, nanoseconds: one clock for all namespaces of a machine.
std::int64_t now_ns();
void sleep_until_ns(std::int64_t deadline);

}  // namespace ddpsim::calib
