#include "sim/goodput/draws.h"

#include "sim/units/elementary.h"

namespace ddpsim::goodput {

double Draws::exponential() {
  return -natural_logarithm(1 - uniform());
}

}  // namespace ddpsim::goodput
