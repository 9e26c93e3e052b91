// At what rate those at work on each flow go on, and when the next of them is done. Internal to
// execute.cc.
//
// served(t) = work done by each member of a group since it was last empty; a member joined at
// served0 with work w ends when served = served0 + w. So a rate change costs one update per group,
// however many members it has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/engine/event_heap.h"
#include "sim/engine/fair_share.h"
#include "sim/engine/task_graph.h"

namespace ddpsim::engine {

struct RateMember {
  double target;
  std::uint32_t sequence;
  TaskId task;
};
inline bool later(const RateMember& a, const RateMember& b) {
  return a.target != b.target ? a.target > b.target : a.sequence > b.sequence;
}

// Those at work on one flow.
struct RateGroup {
  double served = 0;
  double rate = 0;
  std::int64_t since = 0;
  std::vector<RateMember> members;  // heap, earliest target first
  std::uint32_t mark = 0;
  std::uint32_t local = 0;
  bool stale = false;  // finish time must be computed again
};

struct ResourceState {
  double held = 0;
  double tokens = 0;
  double usage = 0;
  std::int64_t since = 0;
  std::vector<FlowId> groups;  // active
  std::uint32_t mark = 0;
  std::uint32_t local = 0;
  bool dirty = false;
};

inline constexpr double kTokenFloor = 1.0;  // fewer tokens than one unit do not lift the rate:
                                            // keeps rounding from flipping a spent bucket

// When members of a flow are done, and when a resource's tokens are spent. Flows first, then
// resources: of what happens at one time, this is the order.
class RateEvents {
 public:
  // `grows`: makes room for twice the flows.
  void resize(std::size_t flows, std::size_t resources, bool grows) {
    if (flows <= flows_ && resources == resources_) return;
    std::vector<std::pair<std::uint32_t, std::int64_t>> due;
    while (!heap_.empty()) {
      due.push_back({heap_.top(), heap_.top_time()});
      heap_.remove(heap_.top());
    }
    const std::size_t before = flows_;
    flows_ = grows ? 2 * flows : flows;
    resources_ = resources;
    heap_.resize(flows_ + resources_);
    for (auto [s, time] : due)
      heap_.set(static_cast<std::uint32_t>(s < before ? s : s - before + flows_), time);
  }
  std::int64_t next() const { return heap_.empty() ? kForever : heap_.top_time(); }
  // The first of them, which is no longer among them: a flow, or (false) a resource.
  std::pair<bool, std::uint32_t> take() {
    const std::uint32_t s = heap_.top();
    heap_.remove(s);
    return s < flows_ ? std::pair{true, s}
                      : std::pair{false, static_cast<std::uint32_t>(s - flows_)};
  }
  // kForever: never.
  void set_flow(FlowId f, std::int64_t time) { set(f, time); }
  void set_resource(ResourceId r, std::int64_t time) {
    set(static_cast<std::uint32_t>(flows_ + r), time);
  }

 private:
  void set(std::uint32_t source, std::int64_t time) {
    if (time == kForever)
      heap_.remove(source);
    else
      heap_.set(source, time);
  }
  SourceHeap heap_;
  std::size_t flows_ = 0;  // sources before those of resources
  std::size_t resources_ = 0;
};

// Protected: what Rates, which knows who is at work, needs of it.
class RateSolver {
 public:
  // `grows`: the graph gains flows while it is played.
  RateSolver(const TaskGraph& graph, bool grows) : g_(graph), grows_(grows) {}

  void set_now(std::int64_t now) { now_ = now; }

  // When a rate changes or a task is done next, if nothing else happens.
  std::int64_t next() const { return events_.next(); }

  // A share of the resource's capacity is gone, or (negative) there again.
  void hold(ResourceId r, double share) {
    ResourceState& s = resources_[r];
    s.held += share;
    if (s.held < 1e-12) s.held = 0;
    make_dirty(r);
  }

  // Rates of all that changed.
  void solve() {
    for (FlowId f : dirty_groups_) set_rate(f, g_.flows()[f].max_rate);
    dirty_groups_.clear();
    if (dirty_.empty()) return;
    ++mark_;
    for (ResourceId r : dirty_) resources_[r].dirty = false;
    for (ResourceId seed : dirty_) {
      if (resources_[seed].mark == mark_) continue;
      if (solve_alone(seed)) continue;
      collect(seed);
      solve_component();
    }
    dirty_.clear();
  }

  std::uint64_t solves() const { return solves_; }

 protected:
  // Takes in what the graph has gained.
  void grow() {
    std::size_t links = resources_.size();
    resources_.resize(g_.resources().size());
    for (std::size_t r = links; r < resources_.size(); ++r)
      resources_[r].tokens = g_.resources()[r].starts_empty ? 0 : g_.resources()[r].burst;
    groups_.resize(g_.flows().size());
    events_.resize(groups_.size(), resources_.size(), grows_);
  }

  void touch(RateGroup& group) {
    if (group.since != now_) {
      group.served += group.rate * static_cast<double>(now_ - group.since);
      group.since = now_;
    }
  }

  void touch(ResourceId r) {
    const Resource& spec = g_.resources()[r];
    ResourceState& s = resources_[r];
    if (spec.burst > 0 && s.since != now_) {
      s.tokens += (spec.rate - s.usage) * static_cast<double>(now_ - s.since);
      s.tokens = std::clamp(s.tokens, 0.0, spec.burst);
    }
    s.since = now_;
  }

  // The group's number of members changed.
  void changed(FlowId f) {
    RateGroup& group = groups_[f];
    group.stale = true;
    const FlowSpec& spec = g_.flows()[f];
    if (spec.demand_begin == spec.demand_end) {
      dirty_groups_.push_back(f);
      return;
    }
    for (auto d = spec.demand_begin; d < spec.demand_end; ++d) make_dirty(g_.demands()[d].resource);
  }

  void make_dirty(ResourceId r) {
    if (!resources_[r].dirty) {
      resources_[r].dirty = true;
      dirty_.push_back(r);
    }
  }

  void drain_bucket(ResourceId r) {
    touch(r);
    resources_[r].tokens = 0;
    make_dirty(r);
  }

  double capacity(ResourceId r) const {
    const Resource& spec = g_.resources()[r];
    double c = spec.burst > 0 && resources_[r].tokens >= kTokenFloor ? spec.peak : spec.rate;
    double left = 1 - std::min(resources_[r].held, spec.most_held);
    return left > 0 ? c * left : 0;
  }

  const TaskGraph& g_;
  std::int64_t now_ = 0;
  std::vector<RateGroup> groups_;
  std::vector<ResourceState> resources_;
  RateEvents events_;
  std::vector<ResourceId> dirty_;
  std::vector<FlowId> dirty_groups_;
  std::uint64_t solves_ = 0;

 private:
  // The common case: nobody uses the resource, or one group that uses nothing else.
  bool solve_alone(ResourceId r) {
    const Resource& spec = g_.resources()[r];
    const auto& users = resources_[r].groups;
    if (spec.burst > 0 || users.size() > 1) return false;
    if (users.empty()) return true;
    FlowId f = users.front();
    const FlowSpec& flow = g_.flows()[f];
    if (flow.demand_end - flow.demand_begin != 1) return false;
    ++solves_;
    double x = capacity(r) / (static_cast<double>(groups_[f].members.size()) *
                              g_.demands()[flow.demand_begin].per_unit);
    set_rate(f, flow.max_rate > 0 && flow.max_rate < x ? flow.max_rate : x);
    return true;
  }

  // Resources and groups connected to `seed` through active groups.
  void collect(ResourceId seed) {
    component_.clear();
    component_groups_.clear();
    component_.push_back(seed);
    resources_[seed].mark = mark_;
    resources_[seed].local = 0;
    for (std::size_t i = 0; i < component_.size(); ++i) {
      for (FlowId f : resources_[component_[i]].groups) {
        if (groups_[f].mark == mark_) continue;
        groups_[f].mark = mark_;
        component_groups_.push_back(f);
        const FlowSpec& spec = g_.flows()[f];
        for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
          ResourceId r = g_.demands()[d].resource;
          if (resources_[r].mark == mark_) continue;
          resources_[r].mark = mark_;
          resources_[r].local = static_cast<std::uint32_t>(component_.size());
          component_.push_back(r);
        }
      }
    }
  }

  void solve_component() {
    ++solves_;
    for (ResourceId r : component_) touch(r);
    if (component_groups_.size() == 1) {
      FlowId f = component_groups_[0];
      const FlowSpec& spec = g_.flows()[f];
      auto count = static_cast<double>(groups_[f].members.size());
      double x = spec.max_rate > 0 ? spec.max_rate : 1e300;
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        const Demand& demand = g_.demands()[d];
        x = std::min(x, capacity(demand.resource) / (count * demand.per_unit));
      }
      set_rate(f, x);
    } else if (!component_groups_.empty()) {
      solve_shared();
    }
    for (ResourceId r : component_) update_bucket(r);
  }

  void solve_shared() {
    // Fixed order of summation: groups by id.
    std::sort(component_groups_.begin(), component_groups_.end());
    share_.clear();
    for (ResourceId r : component_) share_.capacity.push_back(capacity(r));
    for (FlowId f : component_groups_) {
      const FlowSpec& spec = g_.flows()[f];
      ShareFlow flow;
      flow.demand_begin = static_cast<std::uint32_t>(share_.demands.size());
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        const Demand& demand = g_.demands()[d];
        share_.demands.push_back({resources_[demand.resource].local, demand.per_unit});
      }
      flow.demand_end = static_cast<std::uint32_t>(share_.demands.size());
      flow.weight = spec.weight;
      flow.max_rate = spec.max_rate;
      flow.count = static_cast<double>(groups_[f].members.size());
      share_.flows.push_back(flow);
    }
    share_.solve();
    for (std::size_t i = 0; i < share_.rates.size(); ++i)
      set_rate(component_groups_[i], share_.rates[i]);
  }

  void set_rate(FlowId f, double rate) {
    RateGroup& group = groups_[f];
    if (group.members.empty()) {
      group.stale = false;
      return;
    }
    if (rate == group.rate && !group.stale) return;
    touch(group);
    group.rate = rate;
    group.stale = false;
    double left = group.members.front().target - group.served;
    std::int64_t finish = kForever;
    if (rate > 0) {
      std::int64_t in = left > 0 ? ceil_ps(left, rate) : 0;
      if (in < kForever - now_) finish = now_ + in;
    }
    events_.set_flow(f, finish);
  }

  void update_bucket(ResourceId r) {
    const Resource& spec = g_.resources()[r];
    if (spec.burst <= 0) return;
    ResourceState& s = resources_[r];
    s.usage = 0;
    for (FlowId f : s.groups) {
      const FlowSpec& flow = g_.flows()[f];
      for (auto d = flow.demand_begin; d < flow.demand_end; ++d) {
        const Demand& demand = g_.demands()[d];
        if (demand.resource == r)
          s.usage +=
              groups_[f].rate * demand.per_unit * static_cast<double>(groups_[f].members.size());
      }
    }
    std::int64_t spent = kForever;
    if (s.tokens >= kTokenFloor && s.usage > spec.rate) {
      const std::int64_t in = ceil_ps(s.tokens, s.usage - spec.rate);
      if (in < kForever - now_) spent = now_ + in;
    }
    events_.set_resource(r, spent);
  }

  const bool grows_;
  std::vector<ResourceId> component_;
  std::vector<FlowId> component_groups_;
  ShareProblem share_;
  std::uint32_t mark_ = 0;
};

}  // namespace ddpsim::engine
