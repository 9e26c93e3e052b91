// Horovod: what its background thread does with tensors that it has decided to reduce together.
#pragma once

#include <vector>

#include "sim/model/program.h"

namespace ddpsim::strategy {

// Appends the operations of one decision to a step that is being played, in the order in which the
// thread issues them. `coordination`: what the ranks' agreement takes. Each fused set becomes a
// Bucket of the step. On a GPU the thread launches: copies on Program::streams' first, the
// all-reduce on Lane::Comm; on a CPU it does all of it itself. Returns the index of the first.
// REQUIRES: the Program is lower_horovod's.
std::uint32_t add_reductions(const Program& program, StepProgram& step, Duration coordination,
                             const std::vector<std::vector<TensorIndex>>& fused);

// Of a step that was played: what was appended goes before the wait for it. `order`: where each
// operation was.
StepProgram in_order(const StepProgram& played, std::vector<std::uint32_t>& order);

}  // namespace ddpsim::strategy
