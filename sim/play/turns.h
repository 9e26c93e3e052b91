// Work that waits its turn, first come, first served: cores that ranks share, connections that
// collectives share, links' queues. A policy behind gates (WorkerPool): each piece of work is a
// notified task `due` and a gated task `done`; the graph's controller asks decide() at the end of
// every notified task.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/collective/messages.h"
#include "sim/systems/base/worker_pool.h"

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
  collective::CoreTasks add(engine::TaskGraph& graph, std::size_t place, engine::TaskId due,
                            engine::TaskId work) {
    graph.add_gate(work);
    graph.notify(due);
    graph.notify(work);
    turns_.push_back({{due, work}, place});
    return turns_.back().tasks;
  }
  // True if the task is one of these; `release` gets what may go on now.
  bool decide(engine::TaskId task, std::vector<engine::TaskId>& release) {
    auto t = std::upper_bound(turns_.begin(), turns_.end(), task,
                              [](engine::TaskId id, const Turn& x) { return id < x.tasks.due; });
    if (t == turns_.begin() || task > std::prev(t)->tasks.done) return false;
    --t;
    systems::WorkerPool& place = places_[t->place];
    if (auto next = task == t->tasks.due ? systems::enqueue(place, t->tasks.done)
                                         : systems::finished(place))
      release.push_back(*next);
    return true;
  }

 private:
  struct Turn {
    collective::CoreTasks tasks;
    std::size_t place;
  };
  std::vector<systems::WorkerPool> places_;
  std::map<std::pair<int, int>, std::size_t> hops_;
  std::map<topology::LinkId, std::size_t> links_;
  std::vector<Turn> turns_;  // by tasks.due
};

// Receivers of old connections: who reads a message acknowledges its segments as they come; of
// later messages it acknowledges what is there whenever it begins to read one, at the latest
// `delay` after a segment has come.
class Readers {
 public:
  std::size_t add() {
    readers_.emplace_back();
    return readers_.size() - 1;
  }
  void reads(engine::TaskGraph& graph, std::size_t reader, engine::TaskId begin) {
    graph.notify(begin);
    events_.emplace(begin, Event{reader, kBegins, 0});
  }
  engine::TaskId acknowledge(engine::TaskGraph& graph, std::size_t reader, std::size_t message,
                             engine::TaskId there, Duration delay) {
    engine::TaskId late = graph.add_fixed(delay);
    graph.add_edge(there, late);
    engine::TaskId acknowledged = graph.add_fixed({});
    graph.add_gate(acknowledged);
    graph.notify(there);
    graph.notify(late);
    events_.emplace(there, Event{reader, message, acknowledged});
    events_.emplace(late, Event{reader, kLate, acknowledged});
    return acknowledged;
  }
  void decide(engine::TaskId task, std::vector<engine::TaskId>& release) {
    for (auto [it, end] = events_.equal_range(task); it != end; ++it) {
      Reader& r = readers_[it->second.reader];
      if (it->second.message < kLate) r.unread.push_back(it->second.acknowledged);
      if (it->second.message == kBegins) ++r.begun;
      bool late =
          it->second.message == kLate &&
          std::find(r.unread.begin(), r.unread.end(), it->second.acknowledged) != r.unread.end();
      if (!late && it->second.message != kBegins && it->second.message >= r.begun) continue;
      release.insert(release.end(), r.unread.begin(), r.unread.end());
      r.unread.clear();
    }
  }

 private:
  static constexpr std::size_t kBegins = SIZE_MAX;
  static constexpr std::size_t kLate = SIZE_MAX - 1;
  struct Reader {
    std::size_t begun = 0;               // messages
    std::vector<engine::TaskId> unread;  // what has come and is not acknowledged
  };
  struct Event {
    std::size_t reader;
    std::size_t message;  // of a segment that has come; or one of the above
    engine::TaskId acknowledged;
  };
  std::vector<Reader> readers_;
  std::multimap<engine::TaskId, Event> events_;
};

}  // namespace ddpsim::predict
