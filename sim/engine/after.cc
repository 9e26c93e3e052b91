#include "sim/engine/after.h"

namespace ddpsim::engine {

TaskId after(TaskGraph& g, Duration d, std::initializer_list<TaskId> deps) {
  TaskId t = g.add_fixed(d);
  for (TaskId dep : deps) g.add_edge(dep, t);
  return t;
}

std::vector<TaskId> launched(TaskGraph& g, Duration launch, std::span<const TaskId> arrive) {
  std::vector<TaskId> out;
  out.reserve(arrive.size());
  for (TaskId a : arrive) out.push_back(after(g, launch, {a}));
  return out;
}

}  // namespace ddpsim::engine
