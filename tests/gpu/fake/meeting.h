// Where the ranks of a communicator meet, in shared memory. Collective number k is slot k modulo
// kSlots: a rank that has said when it is ready waits until all have, so no two ranks are further
// apart than one collective.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/gpu/fake/fake.h"

namespace ddpsim::fake {

struct Slot {
  std::atomic<std::int64_t> said;  // all that ever said something here
  std::atomic<std::int64_t> ready_ps[kRanks];
  std::atomic<std::uint64_t> what[kRanks];
};
struct Meeting {
  std::atomic<int> arrived;
  std::atomic<std::uint64_t> place[kRanks];  // host and device
  Slot slot[kSlots];
};

}  // namespace ddpsim::fake
