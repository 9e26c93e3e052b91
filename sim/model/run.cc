#include "sim/model/run.h"

#include <algorithm>
#include <array>

#include "sim/units/by.h"

namespace ddpsim {

const char* name_of(EvidenceClass e) {
  constexpr By<EvidenceClass, const char*, 5> kNames{"system", "replay", "collective", "kernel",
                                                     "published"};
  return kNames[e];
}

bool is_predicted(const Run& run) {
  return std::none_of(run.skipped.begin(), run.skipped.end(),
                      [](const Skipped& s) { return s.what == "prediction"; });
}

}  // namespace ddpsim
