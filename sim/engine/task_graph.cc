#include "sim/engine/task_graph.h"

#include <cassert>
#include <utility>

namespace ddpsim::engine {

ResourceId TaskGraph::add_resource(Resource r) {
  assert(r.rate > 0 && (r.burst == 0 || r.peak >= r.rate));
  resources_.push_back(r);
  return static_cast<ResourceId>(resources_.size() - 1);
}

FlowId TaskGraph::add_flow(std::span<const Demand> demands, double weight, double max_rate) {
  assert(weight > 0 && (max_rate > 0 || !demands.empty()));
  FlowSpec f;
  f.demand_begin = static_cast<std::uint32_t>(demands_.size());
  demands_.insert(demands_.end(), demands.begin(), demands.end());
  f.demand_end = static_cast<std::uint32_t>(demands_.size());
  f.weight = weight;
  f.max_rate = max_rate;
  flows_.push_back(f);
  return static_cast<FlowId>(flows_.size() - 1);
}

FlowId TaskGraph::add_packet_flow(ResourceId r) {
  Demand d{r, 1};
  FlowId f = add_flow(std::span(&d, 1));
  flows_[f].whole = true;
  return f;
}

void TaskGraph::add_hold(TaskId first, TaskId last, Hold hold) {
  holds_.push_back({first, false, hold});
  holds_.push_back({last, true, hold});
  tasks_[first].holds = true;
  tasks_[last].holds = true;
}

PartId TaskGraph::add_part(TaskId task, double work, FlowId flow) {
  Task& t = tasks_[task];
  assert(work > 0 && flow != kNoFlow && t.flow != kNoFlow && !t.ended);
  const auto part = static_cast<PartId>(parts_.size());
  parts_.push_back({work, flow, part});
  if (t.last_part != kNone) std::swap(parts_[part].next, parts_[t.last_part].next);
  t.last_part = part;
  return part;
}

TaskId TaskGraph::front_of(TaskId task, std::span<const std::uint32_t> edges, double work) {
  assert(work > 0 && work < tasks_[task].work && tasks_[task].latency == 0 &&
         tasks_[task].last_part == kNone);
  TaskId front = add_task({}, work, tasks_[task].flow);
  tasks_[task].work -= work;
  for (std::uint32_t e : edges) {
    assert(edges_[e].to == task);
    edges_[e].to = front;
    --tasks_[task].pending;
    ++tasks_[front].pending;
  }
  add_edge(front, task);
  return front;
}

void TaskGraph::clear() {
  resources_.clear();
  demands_.clear();
  flows_.clear();
  tasks_.clear();
  edges_.clear();
  parts_.clear();
  holds_.clear();
}

void TaskGraph::reserve(std::size_t tasks, std::size_t edges) {
  tasks_.reserve(tasks);
  edges_.reserve(edges);
}

}  // namespace ddpsim::engine
