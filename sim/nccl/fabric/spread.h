// How far NCCL's collectives were from the shipped profiles' price on the machines of published
// tables.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
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
inline constexpr std::array<PriceSpread, 4> kPriceSpread{{{"< 1 MiB", 0, 0.838, 1.681},
                                                          {"1-16 MiB", 1 << 20, 0.872, 1.442},
                                                          {"16-128 MiB", 16 << 20, 0.86, 1.258},
                                                          {">= 128 MiB", 128 << 20, 0.853, 1.095}}};

inline std::size_t spread_index(std::int64_t bytes) {
  std::size_t out = 0;
  while (out + 1 < kPriceSpread.size() && bytes >= kPriceSpread[out + 1].from) ++out;
  return out;
}

struct PriceRange {
  Duration low;
  Duration high;
};
// 80 % of machines take so long for a collective of this price.
inline PriceRange range_of(Duration price, Bytes size) {
  const PriceSpread& spread = kPriceSpread[spread_index(size.count)];
  auto times = [&](double factor) {
    return Duration{std::llround(static_cast<double>(price.ps) * factor)};
  };
  return {times(spread.low), times(spread.high)};
}

}  // namespace ddpsim::nccl
