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

// RateState is what is known of flows, resources and those at work, at one time.
struct RateState {
  // `may_grow`: the graph gains flows while it is played.
  RateState(const TaskGraph& graph, bool may_grow) : g(graph), grows(may_grow) {}
  RateState(const RateState&) = delete;

  // A share of the resource's capacity is gone, or (negative) there again.
  void hold(ResourceId r, double share) {
    ResourceState& s = resources[r];
    s.held += share;
    if (s.held < 1e-12) s.held = 0;
    make_dirty(r);
  }

  // Takes in what the graph has gained.
  void grow() {
    std::size_t links = resources.size();
    resources.resize(g.resources().size());
    for (std::size_t r = links; r < resources.size(); ++r)
      resources[r].tokens = g.resources()[r].starts_empty ? 0 : g.resources()[r].burst;
    groups.resize(g.flows().size());
    events.resize(groups.size(), resources.size(), grows);
  }

  void touch(RateGroup& group) {
    if (group.since != now) {
      group.served += group.rate * static_cast<double>(now - group.since);
      group.since = now;
    }
  }

  void touch(ResourceId r) {
    const Resource& spec = g.resources()[r];
    ResourceState& s = resources[r];
    if (spec.burst > 0 && s.since != now) {
      s.tokens += (spec.rate - s.usage) * static_cast<double>(now - s.since);
      s.tokens = std::clamp(s.tokens, 0.0, spec.burst);
    }
    s.since = now;
  }

  // The group's number of members changed.
  void changed(FlowId f) {
    RateGroup& group = groups[f];
    group.stale = true;
    const FlowSpec& spec = g.flows()[f];
    if (spec.demand_begin == spec.demand_end) {
      dirty_groups.push_back(f);
      return;
    }
    for (auto d = spec.demand_begin; d < spec.demand_end; ++d) make_dirty(g.demands()[d].resource);
  }

  void make_dirty(ResourceId r) {
    if (!resources[r].dirty) {
      resources[r].dirty = true;
      dirty.push_back(r);
    }
  }

  void drain_bucket(ResourceId r) {
    touch(r);
    resources[r].tokens = 0;
    make_dirty(r);
  }

  double capacity(ResourceId r) const {
    const Resource& spec = g.resources()[r];
    double c = spec.burst > 0 && resources[r].tokens >= kTokenFloor ? spec.peak : spec.rate;
    double left = 1 - std::min(resources[r].held, spec.most_held);
    return left > 0 ? c * left : 0;
  }

  const TaskGraph& g;
  std::int64_t now = 0;
  std::vector<RateGroup> groups;
  std::vector<ResourceState> resources;
  RateEvents events;
  std::vector<ResourceId> dirty;
  std::vector<FlowId> dirty_groups;
  std::uint64_t solves = 0;
  const bool grows;
};

// RateSolver gives each flow its rate: max-min fair shares of what it uses.
class RateSolver {
 public:
  explicit RateSolver(RateState& state) : s_(state) {}

  // Rates of all that changed.
  void solve() {
    for (FlowId f : s_.dirty_groups) set_rate(f, s_.g.flows()[f].max_rate);
    s_.dirty_groups.clear();
    if (s_.dirty.empty()) return;
    ++mark_;
    for (ResourceId r : s_.dirty) s_.resources[r].dirty = false;
    for (ResourceId seed : s_.dirty) {
      if (s_.resources[seed].mark == mark_) continue;
      if (solve_alone(seed)) continue;
      collect(seed);
      solve_component();
    }
    s_.dirty.clear();
  }

 private:
  // The common case: nobody uses the resource, or one group that uses nothing else.
  bool solve_alone(ResourceId r) {
    const Resource& spec = s_.g.resources()[r];
    const auto& users = s_.resources[r].groups;
    if (spec.burst > 0 || users.size() > 1) return false;
    if (users.empty()) return true;
    FlowId f = users.front();
    const FlowSpec& flow = s_.g.flows()[f];
    if (flow.demand_end - flow.demand_begin != 1) return false;
    ++s_.solves;
    double x = s_.capacity(r) / (static_cast<double>(s_.groups[f].members.size()) *
                                 s_.g.demands()[flow.demand_begin].per_unit);
    set_rate(f, flow.max_rate > 0 && flow.max_rate < x ? flow.max_rate : x);
    return true;
  }

  // Resources and groups connected to `seed` through active groups.
  void collect(ResourceId seed) {
    component_.clear();
    component_groups_.clear();
    component_.push_back(seed);
    s_.resources[seed].mark = mark_;
    s_.resources[seed].local = 0;
    for (std::size_t i = 0; i < component_.size(); ++i) {
      for (FlowId f : s_.resources[component_[i]].groups) {
        if (s_.groups[f].mark == mark_) continue;
        s_.groups[f].mark = mark_;
        component_groups_.push_back(f);
        const FlowSpec& spec = s_.g.flows()[f];
        for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
          ResourceId r = s_.g.demands()[d].resource;
          if (s_.resources[r].mark == mark_) continue;
          s_.resources[r].mark = mark_;
          s_.resources[r].local = static_cast<std::uint32_t>(component_.size());
          component_.push_back(r);
        }
      }
    }
  }

  void solve_component() {
    ++s_.solves;
    for (ResourceId r : component_) s_.touch(r);
    if (component_groups_.size() == 1) {
      FlowId f = component_groups_[0];
      const FlowSpec& spec = s_.g.flows()[f];
      auto count = static_cast<double>(s_.groups[f].members.size());
      double x = spec.max_rate > 0 ? spec.max_rate : 1e300;
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        const Demand& demand = s_.g.demands()[d];
        x = std::min(x, s_.capacity(demand.resource) / (count * demand.per_unit));
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
    for (ResourceId r : component_) share_.capacity.push_back(s_.capacity(r));
    for (FlowId f : component_groups_) {
      const FlowSpec& spec = s_.g.flows()[f];
      ShareFlow flow;
      flow.demand_begin = static_cast<std::uint32_t>(share_.demands.size());
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        const Demand& demand = s_.g.demands()[d];
        share_.demands.push_back({s_.resources[demand.resource].local, demand.per_unit});
      }
      flow.demand_end = static_cast<std::uint32_t>(share_.demands.size());
      flow.weight = spec.weight;
      flow.max_rate = spec.max_rate;
      flow.count = static_cast<double>(s_.groups[f].members.size());
      share_.flows.push_back(flow);
    }
    share_.solve();
    for (std::size_t i = 0; i < share_.rates.size(); ++i)
      set_rate(component_groups_[i], share_.rates[i]);
  }

  void set_rate(FlowId f, double rate) {
    RateGroup& group = s_.groups[f];
    if (group.members.empty()) {
      group.stale = false;
      return;
    }
    if (rate == group.rate && !group.stale) return;
    s_.touch(group);
    group.rate = rate;
    group.stale = false;
    double left = group.members.front().target - group.served;
    std::int64_t finish = kForever;
    if (rate > 0) {
      std::int64_t in = left > 0 ? ceil_ps(left, rate) : 0;
      if (in < kForever - s_.now) finish = s_.now + in;
    }
    s_.events.set_flow(f, finish);
  }

  void update_bucket(ResourceId r) {
    const Resource& spec = s_.g.resources()[r];
    if (spec.burst <= 0) return;
    ResourceState& s = s_.resources[r];
    s.usage = 0;
    for (FlowId f : s.groups) {
      const FlowSpec& flow = s_.g.flows()[f];
      for (auto d = flow.demand_begin; d < flow.demand_end; ++d) {
        const Demand& demand = s_.g.demands()[d];
        if (demand.resource == r)
          s.usage += s_.groups[f].rate * demand.per_unit *
                     static_cast<double>(s_.groups[f].members.size());
      }
    }
    std::int64_t spent = kForever;
    if (s.tokens >= kTokenFloor && s.usage > spec.rate) {
      const std::int64_t in = ceil_ps(s.tokens, s.usage - spec.rate);
      if (in < kForever - s_.now) spent = s_.now + in;
    }
    s_.events.set_resource(r, spent);
  }

  RateState& s_;
  std::vector<ResourceId> component_;
  std::vector<FlowId> component_groups_;
  ShareProblem share_;
  std::uint32_t mark_ = 0;
};

}  // namespace ddpsim::engine
