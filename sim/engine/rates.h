// Who is at work on which flow, and what each is at: tasks, and their parts. Internal to
// execute.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/engine/rate_solver.h"

namespace ddpsim::engine {

class Rates {
 public:
  // `grows`: the graph gains flows while it is played.
  Rates(const TaskGraph& graph, bool grows) : s_(graph, grows) {}

  void set_now(std::int64_t now) { s_.now = now; }
  // When a rate changes or a task is done next, if nothing else happens.
  std::int64_t next() const { return s_.events.next(); }
  // A share of the resource's capacity is gone, or (negative) there again.
  void hold(ResourceId r, double share) { s_.hold(r, share); }
  // Rates of all that changed.
  void solve() { solver_.solve(); }
  std::uint64_t solves() const { return s_.solves; }

  // Takes in what the graph has gained.
  void grow() {
    s_.grow();
    if (!s_.g.parts().empty()) at_part_.resize(s_.g.size(), kNone);
  }

  // A task begins its work. `sequence`: of those that end together, who is told first.
  void enter(TaskId t, std::uint32_t sequence) {
    const Task& task = s_.g.tasks()[t];
    enter(t, task.work, task.flow, sequence);
  }

  // What happens now: `end` hears of each task that is done, `parts` of when each part began.
  // `sequence`: of the next one that begins its work. Where one task only is at work, time goes on
  // with its parts, to less than `others` says when something else happens. Returns the time then.
  template <typename Others, typename End>
  std::int64_t pass(std::uint32_t& sequence, std::vector<TimePoint>& parts, Others others,
                    End end) {
    while (s_.events.next() == s_.now) {
      const auto [of_flow, id] = s_.events.take();
      if (!of_flow) {
        s_.drain_bucket(id);
        continue;
      }
      if (!at_part_.empty()) pass_parts(id, others(), parts);
      finish_members(id, end);
    }
    for (TaskId t : going_on_) {
      const Part& part = s_.g.parts()[at_part_[t]];
      parts[at_part_[t]] = TimePoint{s_.now};
      enter(t, part.work, part.flow, sequence++);
    }
    going_on_.clear();
    return s_.now;
  }

 private:
  void enter(TaskId t, double work, FlowId f, std::uint32_t sequence) {
    RateGroup& group = s_.groups[f];
    s_.touch(group);
    if (group.members.empty()) {
      const FlowSpec& spec = s_.g.flows()[f];
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d)
        s_.resources[s_.g.demands()[d].resource].groups.push_back(f);
    }
    group.members.push_back({group.served + work - taken_at_once(f, work), sequence, t});
    std::push_heap(group.members.begin(), group.members.end(), later);
    s_.changed(f);
  }

  // A packet passes as soon as its bucket holds enough; of what is missing it waits for the tokens.
  double taken_at_once(FlowId f, double work) {
    const FlowSpec& spec = s_.g.flows()[f];
    if (!spec.whole) return 0;
    ResourceId r = s_.g.demands()[spec.demand_begin].resource;
    s_.touch(r);
    double taken = std::min(work, s_.resources[r].tokens);
    s_.resources[r].tokens -= taken;
    return taken;
  }

  template <typename End>
  void finish_members(FlowId f, End end) {
    s_.touch(s_.groups[f]);
    s_.groups[f].served = std::max(s_.groups[f].served, s_.groups[f].members.front().target);
    for (;;) {
      std::vector<RateMember>& members = s_.groups[f].members;
      if (members.empty() || members.front().target > s_.groups[f].served) break;
      TaskId t = members.front().task;
      std::pop_heap(members.begin(), members.end(), later);
      members.pop_back();
      if (goes_on(t))
        going_on_.push_back(t);
      else
        end(t, s_.now);  // the graph may grow, and the groups move
    }
    RateGroup& group = s_.groups[f];
    if (group.members.empty()) {
      group.served = 0;
      group.rate = 0;
      const FlowSpec& spec = s_.g.flows()[f];
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        auto& list = s_.resources[s_.g.demands()[d].resource].groups;
        list.erase(std::find(list.begin(), list.end(), f));
      }
    }
    s_.changed(f);
  }

  // The only member of the flow, if nobody shares what it uses: all parts but the last of those
  // that end before anything else happens.
  void pass_parts(FlowId f, std::int64_t others, std::vector<TimePoint>& parts) {
    if (s_.groups[f].members.size() != 1 || !s_.dirty.empty() || !s_.dirty_groups.empty() ||
        !going_on_.empty())
      return;
    const TaskId t = s_.groups[f].members.front().task;
    if (s_.g.tasks()[t].last_part == kNone || rate_alone(f, f) <= 0) return;
    others = std::min(others, s_.events.next());
    for (;;) {
      const PartId next = s_.g.part_after(t, at_part_[t]);
      if (next == kNone) return;
      const Part& part = s_.g.parts()[next];
      const double rate = rate_alone(part.flow, f);
      if (rate <= 0) return;
      const std::int64_t in = ceil_ps(part.work, rate);
      if (in >= others - s_.now) return;
      parts[next] = TimePoint{s_.now};
      s_.now += in;
      at_part_[t] = next;
      ++s_.solves;
    }
  }

  // Of one task of the flow, if it has its one resource for itself; else 0. `leaves`: a flow whose
  // only task leaves it.
  double rate_alone(FlowId f, FlowId leaves) const {
    const FlowSpec& flow = s_.g.flows()[f];
    if (flow.demand_end - flow.demand_begin != 1) return 0;
    const Demand& d = s_.g.demands()[flow.demand_begin];
    const auto& users = s_.resources[d.resource].groups;
    if (s_.g.resources()[d.resource].burst > 0 || users.size() > 1) return 0;
    if (users.size() == 1 && users.front() != leaves) return 0;
    const double x = s_.capacity(d.resource) / d.per_unit;
    return flow.max_rate > 0 && flow.max_rate < x ? flow.max_rate : x;
  }

  // Whether the task has another part.
  bool goes_on(TaskId t) {
    if (s_.g.tasks()[t].last_part == kNone) return false;
    const PartId next = s_.g.part_after(t, at_part_[t]);
    if (next == kNone) return false;
    at_part_[t] = next;
    return true;
  }

  RateState s_;
  RateSolver solver_{s_};
  std::vector<PartId> at_part_;   // by task; kNone: at what it begins with
  std::vector<TaskId> going_on_;  // with another part
};

}  // namespace ddpsim::engine
