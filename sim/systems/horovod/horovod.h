// Horovod: what its background thread does with tensors that it has decided to reduce together.
#pragma once

#include <span>
#include <vector>

#include "sim/model/program.h"
#include "sim/systems/base/record.h"
#include "sim/systems/horovod/plan.h"

namespace ddpsim::systems {

// Forward, backward with a request at each gradient, the wait for all, the optimizer. What is
// reduced together is not in the Program: Program::coordination says how it is decided.
Program lower_horovod(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> horovod_words();
Problem validate_horovod(const Plan& p, const Workload& w, DeviceKind device);

// Of Adasum: powers of two of hosts.
inline constexpr std::size_t kMostAdasumLevels = 10;

// What the plan's reductions are on `ranks` ranks, `per_host` of them on a host: hierarchical and
// torus all-reduce are ignored on a single host.
Coordination::Reduces reductions_of(const HorovodPlan& plan, int ranks, int per_host);
// Whether they pass through the memory of hosts.
bool horovod_stages_on_hosts(const Plan& plan, int ranks, int per_host);
std::vector<RankGroups> horovod_groups(const Plan& plan, int ranks, int per_host);
std::vector<Operation> horovod_operations(const Plan& plan);
Problem check_horovod(const Plan& plan, int ranks, int per_host);
// Those of the background thread.
std::span<const OpWord> horovod_reduction_words();

// Appends the operations of one decision to a step that is being played, in the order in which the
// thread issues them. `coordination`: what the ranks' agreement takes. Each fused set becomes a
// Bucket of the step. On a GPU the thread launches: copies on Program::streams' first, the
// collectives on Lane::Comm, or both on another stream; on a CPU it does all of it itself. Returns
// the index of the first.
// REQUIRES: the Program is lower_horovod's.
std::uint32_t add_reductions(const Program& program, StepProgram& step, Duration coordination,
                             const std::vector<std::vector<TensorIndex>>& fused);

// Of a step that was played: what was appended goes before the wait for it. `order`: where each
// operation was.
StepProgram in_order(const StepProgram& played, std::vector<std::uint32_t>& order);

}  // namespace ddpsim::systems
