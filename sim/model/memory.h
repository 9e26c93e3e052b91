// Memory of a rank's device: what holds it, and how it comes and goes in a step. A part of a
// Program; predict/memory.h says what it comes to.
#pragma once

#include <cstdint>

#include "sim/units/by.h"

namespace ddpsim {

enum class Holds : std::uint8_t {
  Parameters,        // or this rank's shards of them
  MasterParameters,  // copies of four bytes beside halves
  Gradients,
  OptimizerState,
  ModelBuffers,  // running statistics and such
  Activations,   // what autograd keeps for backward, with autocast's copies of weights
  Buckets,       // what is communicated lies in them: buckets, fusion buffers, flat gradients
  Gathered,      // whole weights of sharded units
  Temporaries    // of a single operation: gradients of activations, the optimizer's
};
inline constexpr std::size_t kHolds = 9;
inline constexpr By<Holds, const char*, kHolds> kHoldsNames{
    "parameters",  "master_parameters", "gradients", "optimizer_state", "model_buffers",
    "activations", "buckets",           "gathered",  "temporaries"};
constexpr const auto& names_of(Holds) {
  return kHoldsNames;
}
using Held = By<Holds, std::int64_t, kHolds>;  // bytes

// Bytes that an operation allocates or frees (negative). In a device's own order of work memory
// comes and goes as the host issues operations; what another stream still uses is not free before
// it has ended.
struct MemoryChange {
  std::uint32_t op = 0;
  Holds holds = Holds::Temporaries;
  bool at_end = false;  // when the operation has ended; false: when the host issues it
  std::int64_t bytes = 0;
};

}  // namespace ddpsim
