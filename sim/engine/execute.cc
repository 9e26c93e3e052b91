// served(t) = work done by each member of a group since it was last empty; a member joined at
// served0 with work w ends when served = served0 + w. So a rate change costs one update per group,
// however many members it has.
#include "sim/engine/execute.h"

#include <algorithm>

#include "sim/engine/event_heap.h"
#include "sim/engine/fair_share.h"

namespace ddpsim::engine {
namespace {

struct Member {
  double target;
  std::uint32_t sequence;
  TaskId task;
};
bool later(const Member& a, const Member& b) {
  return a.target != b.target ? a.target > b.target : a.sequence > b.sequence;
}

struct Group {
  double served = 0;
  double rate = 0;
  std::int64_t since = 0;
  std::vector<Member> members;  // heap, earliest target first
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

constexpr double kTokenFloor = 1.0;  // fewer tokens than one unit do not lift the rate: keeps
                                     // rounding from flipping a spent bucket

class Executor {
 public:
  // `growing`: the same graph where the controller may add to it, or null.
  Executor(const TaskGraph& graph, TaskGraph* growing, Controller controller)
      : g_(graph), growing_(growing), controller_(controller) {
    if (!growing_) pending_ = graph.pending();
    grow();
  }

  Timeline run() {
    for (;;) {
      drain_ready();
      solve_dirty();
      std::int64_t next = kForever;
      if (!timed_.empty()) next = timed_.top().time;
      if (!sources_.empty()) next = std::min(next, sources_.top_time());
      if (next == kForever) break;
      now_ = next;
      while (!timed_.empty() && timed_.top().time == now_) {
        TaskId t = timed_.top().task;
        timed_.pop();
        enter_work(t);
      }
      while (!sources_.empty() && sources_.top_time() == now_) {
        std::uint32_t s = sources_.top();
        sources_.remove(s);
        if (s < flow_slots_)
          finish_members(s);
        else
          drain_bucket(static_cast<ResourceId>(s - flow_slots_));
      }
    }
    timeline_.makespan = TimePoint{now_};
    return std::move(timeline_);
  }

 private:
  // Takes in what the graph has gained.
  void grow() {
    std::size_t known = timeline_.begin.size();
    timeline_.begin.resize(g_.size(), TimePoint{-1});
    timeline_.end.resize(g_.size(), TimePoint{-1});
    std::size_t links = resources_.size();
    resources_.resize(g_.resources().size());
    for (std::size_t r = links; r < resources_.size(); ++r)
      resources_[r].tokens = g_.resources()[r].starts_empty ? 0 : g_.resources()[r].burst;
    groups_.resize(g_.flows().size());
    if (groups_.size() > flow_slots_ || links < resources_.size() || known == 0) number_sources();
    for (std::size_t h = holds_known_; h < g_.holds().size(); ++h)
      has_holds_ = has_holds_ || g_.holds()[h].hold.share > 0;
    if (has_holds_ && holds_.size() < g_.holds().size()) index_holds();
    holds_known_ = g_.holds().size();
    for (std::size_t t = known; t < g_.size(); ++t)
      if (g_.pending()[t] == 0) ready_.push_back(static_cast<TaskId>(t));
  }

  // Flows first, then resources: of what happens at one time, this is the order. A graph that grows
  // gets room for twice its flows.
  void number_sources() {
    std::vector<std::pair<std::uint32_t, std::int64_t>> due;
    while (!sources_.empty()) {
      due.push_back({sources_.top(), sources_.top_time()});
      sources_.remove(sources_.top());
    }
    std::size_t before = flow_slots_;
    flow_slots_ = groups_.size();
    if (growing_) flow_slots_ *= 2;
    sources_.resize(flow_slots_ + resources_.size());
    for (auto [s, time] : due)
      sources_.set(static_cast<std::uint32_t>(s < before ? s : s - before + flow_slots_), time);
  }

  void drain_ready() {
    for (std::size_t i = 0; i < ready_.size(); ++i) start(ready_[i]);
    ready_.clear();
  }

  void start(TaskId t) {
    timeline_.begin[t] = TimePoint{now_};
    if (has_holds_ && (g_.notify_flags()[t] & 2)) apply_holds(t, false);
    std::int64_t latency = g_.latency()[t];
    if (latency > 0)
      timed_.push({now_ + latency, sequence_++, t});
    else
      enter_work(t);
  }

  void enter_work(TaskId t) {
    FlowId f = g_.flow()[t];
    if (f == kNoFlow) return end(t);
    Group& group = groups_[f];
    touch(group);
    if (group.members.empty()) {
      const FlowSpec& spec = g_.flows()[f];
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        ResourceId r = g_.demands()[d].resource;
        resources_[r].groups.push_back(f);
      }
    }
    group.members.push_back(
        {group.served + g_.work()[t] - taken_at_once(f, g_.work()[t]), sequence_++, t});
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

  void end(TaskId t) {
    timeline_.end[t] = TimePoint{now_};
    ++timeline_.completions;
    if (growing_) growing_->end(t);
    std::uint8_t flags = g_.notify_flags()[t];
    if (flags & 2) {
      if (has_holds_) apply_holds(t, true);
    }
    for (std::uint32_t e = g_.first_edge()[t]; e != kNone; e = g_.edges()[e].next)
      release(g_.edges()[e].to);
    if ((flags & 1) && controller_.on_end) {
      released_.clear();
      controller_.on_end(controller_.state, t, TimePoint{now_}, released_);
      if (growing_) grow();
      for (TaskId r : released_) release(r);
    }
  }

  void release(TaskId t) {
    if (growing_ ? growing_->release(t) : --pending_[t] == 0) ready_.push_back(t);
  }

  void touch(Group& group) {
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
    Group& group = groups_[f];
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

  void finish_members(FlowId f) {
    touch(groups_[f]);
    groups_[f].served = std::max(groups_[f].served, groups_[f].members.front().target);
    for (;;) {
      std::vector<Member>& members = groups_[f].members;
      if (members.empty() || members.front().target > groups_[f].served) break;
      TaskId t = members.front().task;
      std::pop_heap(members.begin(), members.end(), later);
      members.pop_back();
      end(t);  // the graph may grow, and the groups move
    }
    Group& group = groups_[f];
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

  void drain_bucket(ResourceId r) {
    touch(r);
    resources_[r].tokens = 0;
    make_dirty(r);
  }

  double capacity(ResourceId r) const {
    const Resource& spec = g_.resources()[r];
    double c = spec.burst > 0 && resources_[r].tokens >= kTokenFloor ? spec.peak : spec.rate;
    double left = 1 - resources_[r].held;
    return left > 0 ? c * left : 0;
  }

  void solve_dirty() {
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

  // The common case: nobody uses the resource, or one group that uses nothing else.
  bool solve_alone(ResourceId r) {
    const Resource& spec = g_.resources()[r];
    const auto& users = resources_[r].groups;
    if (spec.burst > 0 || users.size() > 1) return false;
    if (users.empty()) return true;
    FlowId f = users.front();
    const FlowSpec& flow = g_.flows()[f];
    if (flow.demand_end - flow.demand_begin != 1) return false;
    ++timeline_.solves;
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
    ++timeline_.solves;
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
    flows_.clear();
    demands_.clear();
    capacities_.clear();
    for (ResourceId r : component_) capacities_.push_back(capacity(r));
    for (FlowId f : component_groups_) {
      const FlowSpec& spec = g_.flows()[f];
      ShareFlow flow;
      flow.demand_begin = static_cast<std::uint32_t>(demands_.size());
      for (auto d = spec.demand_begin; d < spec.demand_end; ++d) {
        const Demand& demand = g_.demands()[d];
        demands_.push_back({resources_[demand.resource].local, demand.per_unit});
      }
      flow.demand_end = static_cast<std::uint32_t>(demands_.size());
      flow.weight = spec.weight;
      flow.max_rate = spec.max_rate;
      flow.count = static_cast<double>(groups_[f].members.size());
      flows_.push_back(flow);
    }
    rates_.resize(flows_.size());
    fair_share(flows_, demands_, capacities_, rates_, scratch_);
    for (std::size_t i = 0; i < flows_.size(); ++i) set_rate(component_groups_[i], rates_[i]);
  }

  void set_rate(FlowId f, double rate) {
    Group& group = groups_[f];
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
    if (finish == kForever)
      sources_.remove(f);
    else
      sources_.set(f, finish);
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
    auto source = static_cast<std::uint32_t>(flow_slots_ + r);
    if (s.tokens >= kTokenFloor && s.usage > spec.rate) {
      std::int64_t in = ceil_ps(s.tokens, s.usage - spec.rate);
      if (in < kForever - now_) return sources_.set(source, now_ + in);
    }
    sources_.remove(source);
  }

  void index_holds() {
    holds_.assign(g_.holds().begin(), g_.holds().end());
    std::stable_sort(holds_.begin(), holds_.end(),
                     [](const auto& a, const auto& b) { return a.task < b.task; });
  }

  void apply_holds(TaskId t, bool at_end) {
    auto it = std::lower_bound(holds_.begin(), holds_.end(), t,
                               [](const auto& h, TaskId task) { return h.task < task; });
    for (; it != holds_.end() && it->task == t; ++it) {
      if (it->at_end != at_end) continue;
      ResourceState& s = resources_[it->hold.resource];
      s.held += at_end ? -it->hold.share : it->hold.share;
      if (s.held < 1e-12) s.held = 0;
      make_dirty(it->hold.resource);
    }
  }

  const TaskGraph& g_;
  TaskGraph* growing_;
  Controller controller_;
  std::vector<std::uint32_t> pending_;  // of a graph that does not grow
  std::size_t flow_slots_ = 0;          // sources before those of resources
  std::size_t holds_known_ = 0;
  std::vector<Group> groups_;
  std::vector<ResourceState> resources_;
  std::vector<TaskGraph::HoldEvent> holds_;
  bool has_holds_ = false;
  EventHeap timed_;
  SourceHeap sources_;
  std::vector<TaskId> ready_;
  std::vector<TaskId> released_;
  std::vector<ResourceId> dirty_;
  std::vector<FlowId> dirty_groups_;
  std::vector<ResourceId> component_;
  std::vector<FlowId> component_groups_;
  std::vector<ShareFlow> flows_;
  std::vector<ShareDemand> demands_;
  std::vector<double> capacities_;
  std::vector<double> rates_;
  ShareScratch scratch_;
  std::uint32_t mark_ = 0;
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
