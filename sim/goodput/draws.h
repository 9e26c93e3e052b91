// Random numbers, the same on every machine.
#pragma once

#include <cstdint>

namespace ddpsim::goodput {

// Counter-based: the i-th number is a function of (seed, stream, i) alone, SplitMix64's output
// function (Steele, Lea, Flood, OOPSLA 2014) of key + i * its increment.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : key_(mixed(mixed(seed) + stream)) {}
  double uniform();      // 0 <= x < 1
  double exponential();  // mean 1

 private:
  static std::uint64_t mixed(std::uint64_t z);
  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

}  // namespace ddpsim::goodput
