#include "sim/tune/difference.h"

#include <cstdio>

namespace ddpsim::predict {

std::string percent_text(double fraction) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * fraction);
  return text;
}

std::string undecided(double gain, const std::string& both) {
  if (gain <= kRepeats) return "no difference you could measure: " + both;
  return "nothing is surely better: " + both + "; these " + percent_text(gain) +
         " lie inside the profile's uncertainty";
}

}  // namespace ddpsim::predict
