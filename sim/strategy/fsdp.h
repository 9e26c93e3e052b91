// PyTorch FullyShardedDataParallel: units of parameters whose weights are gathered before they are
// used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/model/workload.h"

namespace ddpsim::strategy {

// One FlatParameter: what a wrapped module holds that no module wrapped inside it holds.
struct Unit {
  std::string name;                  // of the module; "root"
  std::vector<std::size_t> layers;   // of Workload::layers
  std::vector<TensorIndex> tensors;  // in order of registration
  std::int64_t elements = 0;
};
// The root first, then in order of forward. REQUIRES: the workload has layers.
std::vector<Unit> fsdp_units(const Workload& w, const Plan& plan);

}  // namespace ddpsim::strategy
