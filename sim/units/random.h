// Random numbers, the same on every machine: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#pragma once

#include <cstdint>
#include <cstring>

namespace ddpsim {

// The bits of a number, for a hash. libc++ 14 (Emscripten) knows no std::bit_cast.
inline std::uint64_t bits_of(double x) {
  std::uint64_t out = 0;
  std::memcpy(&out, &x, sizeof out);
  return out;
}

// The i-th number from a state is mixed(state + i * kIncrement).
struct SplitMix64 {
  static constexpr std::uint64_t kIncrement = 0x9e3779b97f4a7c15ull;
  std::uint64_t state = 0;

  static constexpr std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // 0 <= x < 1, of one of them.
  static constexpr double unit(std::uint64_t number) {
    return static_cast<double>(number >> 11) * 0x1p-53;
  }
  constexpr std::uint64_t next() { return mixed(state += kIncrement); }
  constexpr double uniform() { return unit(next()); }
};

}  // namespace ddpsim
