#include "sim/engine/task_graph.h"

#include <cassert>

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

TaskId TaskGraph::add_fixed(Duration duration) {
  return add_task(duration, 0, kNoFlow);
}

TaskId TaskGraph::add_task(Duration latency, double work, FlowId flow) {
  assert(latency.ps >= 0 && work >= 0 && (flow != kNoFlow || work == 0));
  latency_.push_back(latency.ps);
  work_.push_back(work);
  flow_.push_back(work > 0 ? flow : kNoFlow);
  pending_.push_back(0);
  first_edge_.push_back(kNone);
  last_edge_.push_back(kNone);
  notify_.push_back(0);
  return static_cast<TaskId>(latency_.size() - 1);
}

void TaskGraph::add_edge(TaskId from, TaskId to) {
  assert(from != to && from < size() && to < size());
  if (ended(from)) return;
  // Successors are released in the order in which their edges were added: a queue behind them keeps
  // its order.
  auto edge = static_cast<std::uint32_t>(edges_.size());
  edges_.push_back({to, kNone});
  if (first_edge_[from] == kNone)
    first_edge_[from] = edge;
  else
    edges_[last_edge_[from]].next = edge;
  last_edge_[from] = edge;
  ++pending_[to];
}

void TaskGraph::add_hold(TaskId first, TaskId last, Hold hold) {
  holds_.push_back({first, false, hold});
  holds_.push_back({last, true, hold});
  notify_[first] |= 2;
  notify_[last] |= 2;
}

TaskId TaskGraph::front_of(TaskId task, std::span<const std::uint32_t> edges, double work) {
  assert(work > 0 && work < work_[task] && latency_[task] == 0);
  TaskId front = add_task({}, work, flow_[task]);
  work_[task] -= work;
  for (std::uint32_t e : edges) {
    assert(edges_[e].to == task);
    edges_[e].to = front;
    --pending_[task];
    ++pending_[front];
  }
  add_edge(front, task);
  return front;
}

void TaskGraph::reserve(std::size_t tasks, std::size_t edges) {
  latency_.reserve(tasks);
  work_.reserve(tasks);
  flow_.reserve(tasks);
  pending_.reserve(tasks);
  first_edge_.reserve(tasks);
  last_edge_.reserve(tasks);
  notify_.reserve(tasks);
  edges_.reserve(edges);
}

}  // namespace ddpsim::engine
