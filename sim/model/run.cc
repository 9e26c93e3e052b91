#include "sim/model/run.h"

#include <algorithm>
#include <array>

namespace ddpsim {

const char* name_of(EvidenceClass e) {
  constexpr std::array<const char*, 5> kNames{"system", "replay", "collective", "kernel", "published"};
  return kNames[static_cast<std::size_t>(e)];
}

bool is_predicted(const Run& run) {
  return std::none_of(run.skipped.begin(), run.skipped.end(), [](const Skipped& s) { return s.what == "prediction"; });
}

bool is_communication(OpKind k) {
  switch (k) {
    case OpKind::RebuildBroadcast:
    case OpKind::RebuildWait:
    case OpKind::BufferBroadcast:
    case OpKind::BufferWait:
    case OpKind::AllReduce:
    case OpKind::UnusedAllReduce:
    case OpKind::UnusedWait:
    case OpKind::BucketWait:
    case OpKind::GradAllReduce:
    case OpKind::GradWait:
      return true;
    default:
      return false;
  }
}

bool is_compute(OpKind k) { return k != OpKind::Launch && k != OpKind::FindUnused && !is_communication(k); }

}  // namespace ddpsim
