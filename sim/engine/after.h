// Fixed tasks behind others.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "sim/engine/task_graph.h"

namespace ddpsim::engine {

// A fixed task after others.
TaskId after(TaskGraph& g, Duration d, std::initializer_list<TaskId> deps);

// Of each of `arrive`, `launch` after it.
std::vector<TaskId> launched(TaskGraph& g, Duration launch, std::span<const TaskId> arrive);

}  // namespace ddpsim::engine
