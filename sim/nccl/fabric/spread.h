// How far NCCL's collectives are from their price on machines that the price has not seen.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "sim/units/units.h"

namespace ddpsim::nccl {

// Sizes from `from` bytes: 80 % of the published rows (each machine counts once) took between `low`
// and `high` times what the shipped profiles say. `ddpsim validate --collectives` works them out
// and says how many rows of a machine left out they hold; tests/validation/collectives.py holds
// these numbers to it.
struct PriceSpread {
  const char* what;
  std::int64_t from;
  double low;
  double high;
};
inline constexpr std::array<PriceSpread, 4> kPriceSpread{{{"< 1 MiB", 0, 0.871, 1.77},
                                                          {"1-16 MiB", 1 << 20, 0.866, 1.563},
                                                          {"16-128 MiB", 16 << 20, 0.817, 1.291},
                                                          {">= 128 MiB", 128 << 20, 0.818, 1.087}}};

struct PriceRange {
  Duration low;
  Duration high;
};
// 80 % of machines take so long for a collective of this price.
inline PriceRange range_of(Duration price, Bytes size) {
  const PriceSpread* spread = &kPriceSpread.front();
  for (const PriceSpread& s : kPriceSpread)
    if (size.count >= s.from) spread = &s;
  auto times = [&](double factor) {
    return Duration{std::llround(static_cast<double>(price.ps) * factor)};
  };
  return {times(spread->low), times(spread->high)};
}

}  // namespace ddpsim::nccl
