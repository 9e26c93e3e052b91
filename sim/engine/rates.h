// Who is at work on which flow, and what each is at: tasks, and their parts. Internal to
// execute.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/engine/rate_solver.h"

namespace ddpsim::engine {

class Rates : public RateSolver {
 public:
  using RateSolver::RateSolver;

  // Takes in what the graph has gained.
  void grow() {
    RateSolver::grow();
    if (!g_.parts().empty()) at_part_.resize(g_.size(), kNone);
  }

  // A task begins its work. `sequence`: of those that end together, who is told first.
  void enter(TaskId t, std::uint32_t sequence) {
    const Task& task = g_.tasks()[t];
    enter(t, task.work, task.flow, sequence);
  }

  // What happens now: `end` hears of each task that is done, `parts` of when each part began.
  // `sequence`: of the next one that begins its work. Where one task only is at work, time goes on
  // with its parts, to less than `others` says when something else happens. Returns the time then.
  template <typename Others, typename End>
  std::int64_t pass(std::uint32_t& sequence, std::vector<TimePoint>& parts, Others others,
                    End end) {
    while (events_.next() == now_) {
      const auto [of_flow, id] = events_.take();
      if (!of_flow) {
        drain_bucket(id);
        continue;
      }
      if (!at_part_.empty()) pass_parts(id, others(), parts);
      finish_members(id, end);
    }
    for (TaskId t : going_on_) {
      const Part& part = g_.parts()[at_part_[t]];
      parts[at_part_[t]] = TimePoint{now_};
      enter(t, part.work, part.flow, sequence++);
    }
    going_on_.clear();
    return now_;
  }

 private:
  void enter(TaskId t, double work, FlowId f, std::uint32_t sequence) {
    RateGroup& group = groups_[f];
    touch(group);
    if (group.members.empty()) {
      const FlowSpec& spec = g_.flows()[f];
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d)
        resources_[g_.demands()[d].resource].groups.push_back(f);
    }
    group.members.push_back({group.served + work - taken_at_once(f, work), sequence, t});
    std::push_heap(group.members.begin(), group.members.end(), later);
    changed(f);
  }

  // A packet passes as soon as its bucket holds enough; of what is missing it waits for the tokens.
  double taken_at_once(FlowId f, double work) {
    const FlowSpec& spec = g_.flows()[f];
    if (!spec.whole) return 0;
    ResourceId r = g_.demands()[spec.demand_begin].resource;
    touch(r);
    double taken = std::min(work, resources_[r].tokens);
    resources_[r].tokens -= taken;
    return taken;
  }

  template <typename End>
  void finish_members(FlowId f, End end) {
    touch(groups_[f]);
    groups_[f].served = std::max(groups_[f].served, groups_[f].members.front().target);
    for (;;) {
      std::vector<RateMember>& members = groups_[f].members;
      if (members.empty() || members.front().target > groups_[f].served) break;
      TaskId t = members.front().task;
      std::pop_heap(members.begin(), members.end(), later);
      members.pop_back();
      if (goes_on(t))
        going_on_.push_back(t);
      else
        end(t, now_);  // the graph may grow, and the groups move
    }
    RateGroup& group = groups_[f];
    if (group.members.empty()) {
      group.served = 0;
      group.rate = 0;
      const FlowSpec& spec = g_.flows()[f];
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        auto& list = resources_[g_.demands()[d].resource].groups;
        list.erase(std::find(list.begin(), list.end(), f));
      }
    }
    changed(f);
  }

  // The only member of the flow, if nobody shares what it uses: all parts but the last of those
  // that end before anything else happens.
  void pass_parts(FlowId f, std::int64_t others, std::vector<TimePoint>& parts) {
    if (groups_[f].members.size() != 1 || !dirty_.empty() || !dirty_groups_.empty() ||
        !going_on_.empty())
      return;
    const TaskId t = groups_[f].members.front().task;
    if (g_.tasks()[t].last_part == kNone || rate_alone(f, f) <= 0) return;
    others = std::min(others, events_.next());
    for (;;) {
      const PartId next = g_.part_after(t, at_part_[t]);
      if (next == kNone) return;
      const Part& part = g_.parts()[next];
      const double rate = rate_alone(part.flow, f);
      if (rate <= 0) return;
      const std::int64_t in = ceil_ps(part.work, rate);
      if (in >= others - now_) return;
      parts[next] = TimePoint{now_};
      now_ += in;
      at_part_[t] = next;
      ++solves_;
    }
  }

  // Of one task of the flow, if it has its one resource for itself; else 0. `leaves`: a flow whose
  // only task leaves it.
  double rate_alone(FlowId f, FlowId leaves) const {
    const FlowSpec& flow = g_.flows()[f];
    if (flow.demand_end - flow.demand_begin != 1) return 0;
    const Demand& d = g_.demands()[flow.demand_begin];
    const auto& users = resources_[d.resource].groups;
    if (g_.resources()[d.resource].burst > 0 || users.size() > 1) return 0;
    if (users.size() == 1 && users.front() != leaves) return 0;
    const double x = capacity(d.resource) / d.per_unit;
    return flow.max_rate > 0 && flow.max_rate < x ? flow.max_rate : x;
  }

  // Whether the task has another part.
  bool goes_on(TaskId t) {
    if (g_.tasks()[t].last_part == kNone) return false;
    const PartId next = g_.part_after(t, at_part_[t]);
    if (next == kNone) return false;
    at_part_[t] = next;
    return true;
  }

  std::vector<PartId> at_part_;   // by task; kNone: at what it begins with
  std::vector<TaskId> going_on_;  // with another part
};

}  // namespace ddpsim::engine
