// The event loop: alternates "what can start" and "what finishes next" over a TaskGraph, on a
// virtual clock.
//
// Events are ordered by (time, sequence). All completions of one picosecond are processed before
// rates are solved again, and only the resources connected to a change are solved. The same graph
// gives the same timeline, bit for bit, everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/task_graph.h"

namespace ddpsim::engine {

struct Timeline {
  std::vector<TimePoint> begin;   // start of the task's latency; {-1} = never started
  std::vector<TimePoint> end;     // {-1} = never ended
  std::vector<TimePoint> part;    // start of each part; {-1} = never started
  std::uint64_t completions = 0;  // tasks that ended
  std::uint64_t solves = 0;       // times that rates were solved
  TimePoint makespan;
  bool complete() const { return completions == end.size(); }
};

// Decides while it runs: is told when a notify() task ends, answers with gated tasks to release. A
// plain function and its state, so that the same policy can be driven by other clocks.
struct Controller {
  void* state = nullptr;
  void (*on_end)(void* state, TaskId task, TimePoint now, std::vector<TaskId>& release) = nullptr;
};

// Runs the graph from time 0. A graph with a cycle or an unreleased gate ends with complete() ==
// false; nothing hangs.
Timeline execute(const TaskGraph& graph, Controller controller = {});

// The same of a graph to which the controller may add tasks, edges (also to tasks that have not
// started), flows and holds whenever it is asked. What it adds begins at that moment at the
// earliest: a fixed task is a timer. `graph` is used up.
Timeline execute_growing(TaskGraph& graph, Controller controller);

}  // namespace ddpsim::engine
