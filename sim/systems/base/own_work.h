// A training script's own work in a step: its collectives, its reads of values and what it does to
// tensors besides (Workload::loop).
#pragma once

#include "sim/systems/base/lower.h"

namespace ddpsim::systems {

// Puts it into every step of the Program. In a micro-step it stands between forward and backward,
// where its place within forward decides nothing: the device waits for it, and no other collective
// is in flight but what a system gathers ahead. Once a step it follows the update.
void add_own_work(Program& p, const TimedWorkload& timed, const Plan& plan);

// What a loop's collectives are, each once.
std::vector<Operation> own_operations(const Loop& loop);

std::span<const OpWord> own_words();

}  // namespace ddpsim::systems
