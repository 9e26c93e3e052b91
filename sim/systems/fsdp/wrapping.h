// Which modules FSDP wraps together: repeated blocks, several to a unit, and what is before and
// after them.
#pragma once

#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/model/plan.h"
#include "sim/model/workload.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim {

// A block that has parameters, in order of forward: "transformer.h.0" of list "transformer.h".
struct WrappedBlock {
  std::string name;
  std::string list;
  std::int64_t number = 0;
};
std::vector<WrappedBlock> wrapped_blocks(const Workload& w);

// The units that they make; none where the model is one.
std::vector<std::vector<WrappedBlock>> blocks_by_unit(const Workload& w, const FsdpPlan& plan);

// Of each layer, the unit that it belongs to; "" = the root's. A unit of several blocks is called
// after the first and the last: "transformer.h.0-1"; it never reaches into another list, and what
// has no parameters goes with the block before it. What is apart at the ends is called after its
// first layer. Of size_based: modules, one inside another perhaps (size_based.h).
std::vector<std::string> wrapped_units(const Workload& w, const FsdpPlan& plan);

// The first layers of a workload, up to the first block, and its last ones: [0, first) and
// [last, end). Without blocks: none.
struct ModelEnds {
  std::size_t first = 0;
  std::size_t last = 0;
};
ModelEnds ends_of(const Workload& w);

// What size_based cannot tell (size_based.h), counts that are none, blocks of a model that is one
// unit, ends that share a weight with others.
Problem check_wrapping(const FsdpPlan& plan, const Workload& w);

// FSDP, of a model with frozen parameters: units that PyTorch refuses, or asserts against.
Problem check_frozen_units(const Plan& plan, const Workload& w);

}  // namespace ddpsim
