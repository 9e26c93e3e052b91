// Work that waits its turn, first come, first served: cores that ranks share, connections that collectives share, links' queues. A policy behind gates (WorkerPool): each
// piece of work is a notified task `due` and a gated task `done`; the graph's controller asks decide() at the end of every notified task.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/collective/messages.h"
#include "sim/strategy/worker_pool.h"

namespace ddpsim::predict {

class Turns {
 public:
  // A place at which `at_once` pieces of work may go on together.
  std::size_t add_place(int at_once) {
    places_.push_back({at_once, 0, {}});
    return places_.size() - 1;
  }
  // Of a hop: one connection, whichever collective's message it is.
  std::size_t place_of_hop(int from, int to) {
    auto [it, fresh] = hops_.try_emplace({from, to}, 0);
    if (fresh) it->second = add_place(1);
    return it->second;
  }
  // Of a link: its queue, whichever connection's segments.
  std::size_t place_of_link(topology::LinkId l) {
    auto [it, fresh] = links_.try_emplace(l, 0);
    if (fresh) it->second = add_place(1);
    return it->second;
  }
  // `work`: the task that does it, the newest of the graph.
  collective::CoreTasks add(engine::TaskGraph& graph, std::size_t place, engine::TaskId due, engine::TaskId work) {
    graph.add_gate(work);
    graph.notify(due);
    graph.notify(work);
    turns_.push_back({{due, work}, place});
    return turns_.back().tasks;
  }
  // True if the task is one of these; `release` gets what may go on now.
  bool decide(engine::TaskId task, std::vector<engine::TaskId>& release) {
    auto t = std::upper_bound(turns_.begin(), turns_.end(), task, [](engine::TaskId id, const Turn& x) { return id < x.tasks.due; });
    if (t == turns_.begin() || task > std::prev(t)->tasks.done) return false;
    --t;
    strategy::WorkerPool& place = places_[t->place];
    if (auto next = task == t->tasks.due ? strategy::enqueue(place, t->tasks.done) : strategy::finished(place)) release.push_back(*next);
    return true;
  }

 private:
  struct Turn {
    collective::CoreTasks tasks;
    std::size_t place;
  };
  std::vector<strategy::WorkerPool> places_;
  std::map<std::pair<int, int>, std::size_t> hops_;
  std::map<topology::LinkId, std::size_t> links_;
  std::vector<Turn> turns_;  // by tasks.due
};

}  // namespace ddpsim::predict
