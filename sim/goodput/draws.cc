#include "sim/goodput/draws.h"

#include "sim/units/elementary.h"

namespace ddpsim::goodput {

std::uint64_t Draws::mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double Draws::uniform() {
  constexpr std::uint64_t kIncrement = 0x9e3779b97f4a7c15ull;
  return static_cast<double>(mixed(key_ + ++count_ * kIncrement) >> 11) * 0x1p-53;
}

double Draws::exponential() {
  return -natural_logarithm(1 - uniform());
}

}  // namespace ddpsim::goodput
