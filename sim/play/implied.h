// What an operation need not be made to wait for, because it is met anyway.
#pragma once

#include <span>
#include <vector>

#include "sim/model/program.h"

namespace ddpsim::predict {

// A step's extra dependencies, by operation.
std::vector<StepProgram::ExtraDep> by_operation(const StepProgram& s);

// Of each operation, the host's operation of its dependencies that is implied; kNoOp = none. A
// kernel's launch is implied where the kernels before it on its stream, even alone on the device,
// last longer than the host takes from the launch of one of them to its own, without a wait.
// `durations`: of the step's operations, of every rank; a kernel never takes less. `extra`: of
// by_operation().
std::vector<std::uint32_t> implied_launches(const StepProgram& s,
                                            std::span<const Duration> durations,
                                            std::span<const StepProgram::ExtraDep> extra,
                                            std::size_t lanes);

}  // namespace ddpsim::predict
