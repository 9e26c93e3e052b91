#include "sim/model/run.h"

#include <algorithm>
#include <array>

#include "sim/units/by.h"

namespace ddpsim {

bool is_predicted(const Run& run) {
  return std::none_of(run.skipped.begin(), run.skipped.end(),
                      [](const Skipped& s) { return s.what == "prediction"; });
}

}  // namespace ddpsim
