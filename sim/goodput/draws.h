// Random numbers, the same on every machine.
#pragma once

#include <cstdint>

#include "sim/units/random.h"

namespace ddpsim::goodput {

// Counter-based: the i-th number is a function of (seed, stream, i) alone.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream)
      : numbers_{SplitMix64::mixed(SplitMix64::mixed(seed) + stream)} {}
  double uniform() { return numbers_.uniform(); }  // 0 <= x < 1
  double exponential();                            // mean 1

 private:
  SplitMix64 numbers_;
};

}  // namespace ddpsim::goodput
