// The engine's only input: tasks, the resources that they share, and what waits for what. Knows
// nothing about training.
//
// A task lives through: pending (predecessors, gate) -> latency (fixed time) -> work (rate decided
// by sharing), in one part or several -> done. Tasks with the same *kind of flow* (FlowSpec) that
// are active together always run at the same rate, so they share one group in the solver.
#pragma once

#include <cassert>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/units/units.h"

namespace ddpsim::engine {

using TaskId = std::uint32_t;
using ResourceId = std::uint32_t;
using FlowId = std::uint32_t;
using PartId = std::uint32_t;
inline constexpr FlowId kNoFlow = UINT32_MAX;
inline constexpr std::uint32_t kNone = UINT32_MAX;

// A shared capacity in units per picosecond (bytes of a link direction, device-picoseconds of a
// GPU's SMs). With burst > 0 it is a token bucket: `peak` while tokens remain, `rate` once they are
// spent; tokens refill at `rate` while it is used less.
struct Resource {
  double rate = 0;
  double burst = 0;
  double peak = 0;
  bool starts_empty = false;  // no tokens at time 0 (a job that has been running); else full
  double most_held = 1;       // 0..1 of the capacity: what holds take together at most
};

// What one unit of a task's work consumes of a resource.
struct Demand {
  ResourceId resource = 0;
  double per_unit = 1;
};

// While a task holds a share, that share of the resource's capacity is gone for everybody else
// (communication kernels on SMs).
struct Hold {
  ResourceId resource = 0;
  double share = 0;  // 0..1 of the capacity
};

// How tasks of one kind use resources. `weight`: share in max-min fairness (number of equal flows
// that carry one unit of work together).
struct FlowSpec {
  std::uint32_t demand_begin = 0;
  std::uint32_t demand_end = 0;
  double weight = 1;
  double max_rate = 0;  // units per picosecond; 0 = unlimited
  bool whole = false;   // packets: a task takes what it needs from its one resource's token bucket
                        // at once, as far as it goes; the rest comes at the rate
};

struct Task {
  std::int64_t latency = 0;  // ps
  double work = 0;           // of its flow
  FlowId flow = kNoFlow;
  std::uint32_t pending = 0;         // what it waits for
  std::uint32_t first_edge = kNone;  // to those that wait for it
  std::uint32_t last_edge = kNone;
  bool notifies = false;  // the controller hears of its end
  bool holds = false;     // it begins or ends holds
  bool ended = false;     // of a graph that grows while it is played
  PartId last_part = kNone;
};
// More work of a task, which begins when what comes before has ended.
struct Part {
  double work = 0;
  FlowId flow = kNoFlow;
  PartId next = kNone;  // in the order of the task; after the last the first
};
struct Edge {
  TaskId to;
  std::uint32_t next;
};

class TaskGraph {
 public:
  ResourceId add_resource(Resource r);
  // REQUIRES: demands name existing, distinct resources, per_unit > 0; weight > 0; a max_rate or at
  // least one demand.
  FlowId add_flow(std::span<const Demand> demands, double weight = 1, double max_rate = 0);
  // Packets on one resource (FlowSpec::whole).
  FlowId add_packet_flow(ResourceId r);
  // A task of fixed duration.
  TaskId add_fixed(Duration duration) { return add_task(duration, 0, kNoFlow); }
  // `work` units of `flow` after `latency`. REQUIRES: work >= 0.
  TaskId add_task(Duration latency, double work, FlowId flow) {
    assert(latency.ps >= 0 && work >= 0 && (flow != kNoFlow || work == 0));
    tasks_.push_back({.latency = latency.ps, .work = work, .flow = work > 0 ? flow : kNoFlow});
    return static_cast<TaskId>(tasks_.size() - 1);
  }
  // Work of one picosecond a picosecond: a device's.
  TaskId add_task(Duration latency, Duration work, FlowId flow) {
    return add_task(latency, static_cast<double>(work.ps), flow);
  }
  // `to` starts only after `from` ended; nothing to wait for if it has. REQUIRES: both exist,
  // from != to, `to` has not started.
  void add_edge(TaskId from, TaskId to) {
    assert(from != to && from < size() && to < size());
    Task& f = tasks_[from];
    if (f.ended) return;
    // Successors are released in the order in which their edges were added: a queue behind them
    // keeps its order.
    auto edge = static_cast<std::uint32_t>(edges_.size());
    edges_.push_back({to, kNone});
    (f.first_edge == kNone ? f.first_edge : edges_[f.last_edge].next) = edge;
    f.last_edge = edge;
    ++tasks_[to].pending;
  }
  // What another task that waits for this one only would do, at less cost: the part, too, ends at a
  // picosecond of its own. REQUIRES: work > 0, the task has some, it has not started.
  PartId add_part(TaskId task, double work, FlowId flow);
  PartId add_part(TaskId task, Duration work, FlowId flow) {
    return add_part(task, static_cast<double>(work.ps), flow);
  }
  // The task also waits until the controller releases it.
  void add_gate(TaskId task) { ++tasks_[task].pending; }
  // The controller hears of the task's end.
  void notify(TaskId task) { tasks_[task].notifies = true; }
  // Takes `hold` at the start of `first` and gives it back at the end of `last`.
  void add_hold(TaskId first, TaskId last, Hold hold);
  // Makes a task's latency longer (chains of fixed tasks are built as one).
  void lengthen(TaskId task, Duration d) { tasks_[task].latency += d.ps; }
  // A new task that does the first `work` of `task`, and waits in its stead for what it waits for
  // (`edges`: indices of all edges to it, of which the new one is the only one then). REQUIRES:
  // 0 < work < the task's; it has no latency, no gate, no hold and one part.
  TaskId front_of(TaskId task, std::span<const std::uint32_t> edges, double work);
  void reserve(std::size_t tasks, std::size_t edges);
  // Nothing is left but memory, which the next simulation needs: pages that the kernel clears anew
  // for each of many took as long as the rest.
  void clear();
  // Of a graph that grows while it is played: the executor says what has ended. True: released.
  void end(TaskId task) { tasks_[task].ended = true; }
  bool ended(TaskId task) const { return tasks_[task].ended; }
  bool release(TaskId task) { return --tasks_[task].pending == 0; }

  std::size_t size() const { return tasks_.size(); }
  std::size_t edge_count() const { return edges_.size(); }
  std::span<const Resource> resources() const { return resources_; }
  std::span<const FlowSpec> flows() const { return flows_; }
  std::span<const Demand> demands() const { return demands_; }

  // kNone: the task has no more parts. `part` kNone: what the task begins with.
  PartId part_after(TaskId task, PartId part) const {
    const PartId last = tasks_[task].last_part;
    if (last == kNone || part == last) return kNone;
    return parts_[part == kNone ? last : part].next;
  }

  struct HoldEvent {
    TaskId task;
    bool at_end;
    Hold hold;
  };
  // Read by execute().
  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<Part>& parts() const { return parts_; }
  const std::vector<HoldEvent>& holds() const { return holds_; }

 private:
  std::vector<Resource> resources_;
  std::vector<Demand> demands_;
  std::vector<FlowSpec> flows_;
  std::vector<Task> tasks_;
  std::vector<Edge> edges_;
  std::vector<Part> parts_;
  std::vector<HoldEvent> holds_;
};

}  // namespace ddpsim::engine
