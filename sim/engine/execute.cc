#include "sim/engine/execute.h"

#include <algorithm>

#include "sim/engine/event_heap.h"
#include "sim/engine/rates.h"

namespace ddpsim::engine {
namespace {

class Executor {
 public:
  // `growing`: the same graph where the controller may add to it, or null.
  Executor(const TaskGraph& graph, TaskGraph* growing, Controller controller)
      : g_(graph), growing_(growing), controller_(controller), rates_(graph, growing != nullptr) {
    if (!growing_)
      for (const Task& t : graph.tasks()) pending_.push_back(t.pending);
    grow();
  }

  Timeline run() {
    for (;;) {
      drain_ready();
      rates_.solve();
      std::int64_t next = rates_.next();
      if (!timed_.empty()) next = std::min(next, timed_.top().time);
      if (next == kForever) break;
      now_ = next;
      rates_.set_now(now_);
      while (!timed_.empty() && timed_.top().time == now_) {
        TaskId t = timed_.top().task;
        timed_.pop();
        enter_work(t);
      }
      now_ = rates_.pass(
          sequence_, timeline_.part, [this] { return next_besides(); },
          [this](TaskId t, std::int64_t now) {
            now_ = now;
            end(t);
          });
    }
    timeline_.makespan = TimePoint{now_};
    timeline_.solves = rates_.solves();
    return std::move(timeline_);
  }

 private:
  // Takes in what the graph has gained.
  void grow() {
    std::size_t known = timeline_.begin.size();
    timeline_.begin.resize(g_.size(), TimePoint{-1});
    timeline_.end.resize(g_.size(), TimePoint{-1});
    timeline_.part.resize(g_.parts().size(), TimePoint{-1});
    rates_.grow();
    for (std::size_t h = holds_known_; h < g_.holds().size(); ++h)
      has_holds_ = has_holds_ || g_.holds()[h].hold.share > 0;
    if (has_holds_ && holds_.size() < g_.holds().size()) index_holds();
    holds_known_ = g_.holds().size();
    for (std::size_t t = known; t < g_.size(); ++t)
      if (g_.tasks()[t].pending == 0) ready_.push_back(static_cast<TaskId>(t));
  }

  // When something happens that Rates do not know of.
  std::int64_t next_besides() const {
    if (!ready_.empty()) return now_;
    return timed_.empty() ? kForever : timed_.top().time;
  }

  void drain_ready() {
    for (std::size_t i = 0; i < ready_.size(); ++i) start(ready_[i]);
    ready_.clear();
  }

  void start(TaskId t) {
    timeline_.begin[t] = TimePoint{now_};
    const Task& task = g_.tasks()[t];
    if (has_holds_ && task.holds) apply_holds(t, false);
    std::int64_t latency = task.latency;
    if (latency > 0)
      timed_.push({now_ + latency, sequence_++, t});
    else
      enter_work(t);
  }

  void enter_work(TaskId t) {
    if (g_.tasks()[t].flow == kNoFlow) return end(t);
    rates_.enter(t, sequence_++);
  }

  void end(TaskId t) {
    timeline_.end[t] = TimePoint{now_};
    ++timeline_.completions;
    if (growing_) growing_->end(t);
    const Task& task = g_.tasks()[t];
    const bool notifies = task.notifies;
    if (has_holds_ && task.holds) apply_holds(t, true);
    for (std::uint32_t e = task.first_edge; e != kNone; e = g_.edges()[e].next)
      release(g_.edges()[e].to);
    if (notifies && controller_.on_end) {
      released_.clear();
      controller_.on_end(controller_.state, t, TimePoint{now_}, released_);
      if (growing_) grow();
      for (TaskId r : released_) release(r);
    }
  }

  void release(TaskId t) {
    if (growing_ ? growing_->release(t) : --pending_[t] == 0) ready_.push_back(t);
  }

  // By task. A graph grows by whole tasks, so what it has gained is mostly in order already.
  void index_holds() {
    auto earlier = [](const auto& a, const auto& b) { return a.task < b.task; };
    std::ptrdiff_t known = holds_.size();
    holds_.insert(holds_.end(), g_.holds().begin() + known, g_.holds().end());
    auto gained = holds_.begin() + known;
    std::stable_sort(gained, holds_.end(), earlier);
    if (gained != holds_.begin() && gained != holds_.end() && earlier(*gained, gained[-1]))
      std::inplace_merge(holds_.begin(), gained, holds_.end(), earlier);
  }

  void apply_holds(TaskId t, bool at_end) {
    auto it = std::lower_bound(holds_.begin(), holds_.end(), t,
                               [](const auto& h, TaskId task) { return h.task < task; });
    for (; it != holds_.end() && it->task == t; ++it) {
      if (it->at_end != at_end) continue;
      rates_.hold(it->hold.resource, at_end ? -it->hold.share : it->hold.share);
    }
  }

  const TaskGraph& g_;
  TaskGraph* growing_;
  Controller controller_;
  std::vector<std::uint32_t> pending_;  // of a graph that does not grow
  std::size_t holds_known_ = 0;
  std::vector<TaskGraph::HoldEvent> holds_;
  bool has_holds_ = false;
  EventHeap timed_;
  Rates rates_;
  std::vector<TaskId> ready_;
  std::vector<TaskId> released_;
  std::uint32_t sequence_ = 0;
  std::int64_t now_ = 0;
  Timeline timeline_;
};

}  // namespace

Timeline execute(const TaskGraph& graph, Controller controller) {
  return Executor(graph, nullptr, controller).run();
}

Timeline execute_growing(TaskGraph& graph, Controller controller) {
  return Executor(graph, &graph, controller).run();
}

}  // namespace ddpsim::engine
