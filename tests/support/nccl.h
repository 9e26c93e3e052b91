// NCCL's choice on a system of a test's own, whose table is made for each question.
#pragma once

#include "sim/nccl/fabric/group.h"

namespace ddpsim::nccl {

inline std::vector<Candidate> candidates(const System& s, const Settings& set, Operation op,
                                         std::int64_t bytes) {
  return candidates(s, cost_table(s, op, set.version), set, op, bytes);
}
inline std::optional<Choice> choose(const System& s, const Settings& set, Operation op,
                                    std::int64_t bytes) {
  return choose(s, cost_table(s, op, set.version), set, op, bytes);
}
inline Choice complete(const System& s, const Settings& set, Operation op, Algorithm a, Protocol p,
                       std::int64_t bytes) {
  return complete(s, cost_table(s, op, set.version), set, op, a, p, bytes);
}

}  // namespace ddpsim::nccl
