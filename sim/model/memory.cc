#include "sim/model/memory.h"

namespace ddpsim {

const char* name_of(Holds h) {
  constexpr std::array<const char*, kHolds> kNames{
      "parameters",  "master_parameters", "gradients", "optimizer_state", "model_buffers",
      "activations", "buckets",           "gathered",  "temporaries"};
  return kNames[static_cast<std::size_t>(h)];
}

}  // namespace ddpsim
