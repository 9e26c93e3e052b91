// The answer to "what is on a rank's device, and does it fit" (memory.h finds it).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/memory.h"
#include "sim/units/units.h"

namespace ddpsim::predict {

struct MemoryPoint {
  Duration at;  // from the step's begin
  std::int64_t bytes = 0;
};
struct Memory {
  Held peak{};                 // by what holds it, bytes
  std::int64_t allocated = 0;  // their sum: what torch.cuda.max_memory_allocated() says
  std::string during;          // the operation that is being issued: "bwd/h.11"
  std::string phase;           // "backward"
  bool activations = false;    // they are in it
  std::int64_t frozen = 0;     // parameters that require no gradient, and their bytes, of the model
  std::int64_t frozen_bytes = 0;
  std::string mixed_units;  // what they cost beside trainable ones (systems::mixed_units_sentence)
  // Outside the allocator.
  std::int64_t communicators = 0;  // NCCL's buffers
  std::int64_t context = 0;        // CUDA's, and what the libraries keep
  // On the device: allocated, what the allocator cannot use of what it has, and the two above.
  std::int64_t device_low = 0;
  std::int64_t device = 0;
  std::int64_t device_high = 0;
  std::int64_t capacity = 0;  // 0 = the profile does not say
  bool fits() const { return capacity == 0 || device <= capacity; }
  // After each change, when the device got to the operation (the host allocated earlier); only with
  // spans.
  std::vector<MemoryPoint> over_time;
};

}  // namespace ddpsim::predict
