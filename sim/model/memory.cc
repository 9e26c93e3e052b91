#include "sim/model/memory.h"

#include "sim/units/by.h"

namespace ddpsim {

const char* name_of(Holds h) {
  constexpr By<Holds, const char*, kHolds> kNames{
      "parameters",  "master_parameters", "gradients", "optimizer_state", "model_buffers",
      "activations", "buckets",           "gathered",  "temporaries"};
  return kNames[h];
}

}  // namespace ddpsim
