// PyTorch's size_based_auto_wrap_policy on the modules that names give: which of them are units.
// Source: torch/distributed/fsdp/wrap.py, size_based_auto_wrap_policy and _recursive_wrap (1.12 and
// later). Pinned by tests/oracle/size_based.py, which asks that function.
#pragma once

#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/model/plan.h"
#include "sim/model/workload.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim {

// Of each layer, the module that is its unit; "" = the root's. Modules are what the names of
// parameters say: "h.0.mlp.fc.weight" is of "h.0.mlp.fc", inside "h.0.mlp", inside "h.0", inside
// "h". A layer without parameters is of the innermost module by its own name that has a layer with
// parameters right before or after it. REQUIRES: check_wrapped_by_size has nothing to say.
std::vector<std::string> wrapped_by_size(const Workload& w, const FsdpPlan& plan);

// min_num_params of none; a list that the model does not have; what names do not tell and the
// policy asks; a weight that PyTorch would untie.
Problem check_wrapped_by_size(const Workload& w, const FsdpPlan& plan);

}  // namespace ddpsim
