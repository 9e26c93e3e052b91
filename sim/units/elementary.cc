//   ln x = e ln 2 + 2 artanh((m - 1) / (m + 1)),  x = m 2^e, m between sqrt(1/2) and sqrt(2)
//   e^x = 2^k e^r,  r = x - k ln 2, |r| <= ln 2 / 2, by its power series
#include "sim/units/elementary.h"

#include <cmath>
#include <limits>

namespace ddpsim {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kLn2High = 0x1.62e42fefa38p-1;  // its first 42 bits: k times it is exact
constexpr double kLn2Low = 0x1.ef35793c7673p-45;
constexpr double kMost = 700;

}  // namespace

double natural_logarithm(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0.70710678118654752) {
    m *= 2;
    --e;
  }
  const double s = (m - 1) / (m + 1);
  double sum = 0;
  for (int n = 25; n >= 1; n -= 2) sum = sum * s * s + 1.0 / n;
  return e * kLn2 + 2 * s * sum;
}

double natural_exponential(double x) {
  if (x < -kMost) return 0;
  if (x > kMost) return std::numeric_limits<double>::infinity();
  const double turns = x / kLn2;
  const int k = static_cast<int>(turns + (turns < 0 ? -0.5 : 0.5));
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int n = 18; n >= 1; --n) sum = 1 + sum * r / n;
  return std::ldexp(sum, k);
}

}  // namespace ddpsim
