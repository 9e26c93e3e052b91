// A job whose reductions are decided while it is played: requests, cycles of each class's thread,
// and what a cycle performs. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/play/job_lanes.h"
#include "sim/systems/horovod/cycles.h"
#include "sim/systems/horovod/horovod.h"

namespace ddpsim::predict {

class Coordinated {
 public:
  using TaskId = engine::TaskId;

  Coordinated(Job& job, Flows& flows, Devices& devices, StepFacts& facts, Lanes& lanes)
      : job_(job), flows_(flows), devices_(devices), facts_(facts), lanes_(lanes) {}

  // Before the first step.
  void begin() {
    const Coordination& c = *job_.program.coordination;
    auto ranks = static_cast<int>(job_.classes.size());
    // By names: the requests to rank 0 and its answer.
    Duration agreement = collective::agreement_time(job_.comm, job_.profile);
    int local = job_.comm.fabric->cluster().devices_per_host;
    bool even = job_.comm.ranks() % local == 0;
    cycles_.emplace(c, ranks, even ? local : 1, c.cache > 0 ? agreement : Duration{},
                    agreement * 2);
    step_of_.assign(c.tensors.size(), 0);
    if (job_.options.warmup && !job_.program.warmup.empty()) return;
    std::vector<TensorIndex> order;
    for (const Op& op : job_.program.steady.ops)
      if (is_request(op.kind)) order.push_back(op.subject);
    cycles_->fusion.remember(order);
  }

  void keep(const StepProgram& s, std::vector<std::vector<Placed>> placed) {
    auto number = static_cast<std::uint32_t>(live_.size());
    std::size_t known = asked_.size();
    // A group is asked for at once, when the host has got through all of it.
    const auto& tensors = job_.program.coordination->tensors;
    std::map<std::uint32_t, std::uint32_t> last_of_group;
    for (std::uint32_t i = 0; i < s.ops.size(); ++i)
      if (is_request(s.ops[i].kind)) last_of_group[tensors[s.ops[i].subject].group] = i;
    Live l{s, std::move(placed), {}, 0};
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      if (waits_for_requests(s.ops[i].kind)) {
        l.waits.push_back(i);
        for (auto& of_class : l.placed) job_.graph.add_gate(of_class[i].begin);
      }
      if (!is_request(s.ops[i].kind)) continue;
      ++l.left;
      const std::uint32_t group = tensors[s.ops[i].subject].group;
      const std::uint32_t asks = group == kNoSubject ? i : last_of_group[group];
      for (std::uint32_t c = 0; c < job_.classes.size(); ++c) {
        job_.graph.notify(l.placed[c][asks].end);
        asked_.push_back({l.placed[c][asks].end, c, number, s.ops[i].subject});
      }
    }
    live_.push_back(std::move(l));
    std::stable_sort(asked_.begin() + known, asked_.end(),
                     [](const Asked& a, const Asked& b) { return a.task < b.task; });
  }

  void coordinate(TaskId task, TimePoint now, std::vector<TaskId>& release) {
    auto a = std::lower_bound(asked_.begin(), asked_.end(), task,
                              [](const Asked& x, TaskId t) { return x.task < t; });
    for (; a != asked_.end() && a->task == task; ++a) {
      step_of_[a->tensor] = a->live;
      if (cycles_->request(a->rank_class, a->tensor, now)) wake_all(now);
    }
    if (auto w = wakes_.find(task); w != wakes_.end()) {
      std::uint32_t c = w->second;
      wakes_.erase(w);
      begin_cycle(c, now, release);
    }
    for (auto [at, end] = frees_.equal_range(task); at != end; at = frees_.erase(at)) {
      cycles_->done(at->second, now);
      wake(at->second, now);
    }
  }

  // Step k as it was decided, in the order in which it ran, and where its operations lie.
  StepProgram played(std::size_t k, std::vector<std::vector<Placed>>& placed) const {
    const Live& l = live_[k];
    std::vector<std::uint32_t> order;
    StepProgram decided = systems::in_order(l.step, order);
    placed = l.placed;
    for (std::size_t c = 0; c < placed.size(); ++c)
      for (std::size_t i = 0; i < order.size(); ++i) placed[c][i] = l.placed[c][order[i]];
    return decided;
  }

 private:
  // A step whose reductions are decided. Its operations are those of the Program, then what was
  // decided, in that order.
  struct Live {
    StepProgram step;
    std::vector<std::vector<Placed>> placed;
    std::vector<std::uint32_t> waits;  // the operations that wait for all requests
    std::size_t left = 0;              // tensors that they wait for and that are not decided
  };
  struct Asked {
    TaskId task;
    std::uint32_t rank_class;
    std::uint32_t live;
    TensorIndex tensor;
  };

  void wake(std::uint32_t c, TimePoint now) {
    Duration until = cycles_->next(c) - now;
    TaskId timer = job_.graph.add_fixed(std::max(Duration{}, until));
    job_.graph.notify(timer);
    wakes_[timer] = c;
  }
  void wake_all(TimePoint now) {
    for (std::uint32_t c = 0; c < job_.classes.size(); ++c) wake(c, now);
  }

  void begin_cycle(std::uint32_t c, TimePoint now, std::vector<TaskId>& release) {
    auto decision = cycles_->begin(c, now);
    if (!decision) return;
    if (!decision->fused.empty()) return perform(*decision, release);
    if (cycles_->wakes()) wake_all(now);
  }

  void perform(const systems::Fusion::Decision& decision, std::vector<TaskId>& release) {
    Live& l = live_[step_of_[decision.fused.front().front()]];
    auto from = l.step.next_op();
    const auto first_bucket = l.step.next_bucket();
    facts_.set_decided(l.step.extra_deps.size());
    systems::add_reductions(job_.program, l.step, cycles_->agreement(decision), decision.fused);
    std::uint32_t thread = from;
    std::vector<std::uint32_t> last(l.step.buckets.size() - first_bucket, kNoOp);
    for (auto& of_class : l.placed) of_class.resize(l.step.ops.size());
    for (std::uint32_t i = from; i < l.step.ops.size(); ++i) {
      const Op& op = l.step.ops[i];
      if (is_collective(op.kind))
        lanes_.add_collective(l.step, i, l.placed);
      else
        for (std::size_t c = 0; c < job_.classes.size(); ++c)
          add_decided(l.step, i, c, l.placed[c]);
      if (op.lane == Lane::Worker) thread = i;
      if (of_bucket(op.kind)) last[op.subject - first_bucket] = i;
    }
    for (std::uint32_t c = 0; c < job_.classes.size(); ++c) {
      TaskId end = l.placed[c][thread].end;
      job_.graph.notify(end);
      frees_.emplace(end, c);
    }
    for (std::uint32_t wait : l.waits) {
      const bool launched =
          job_.program.coordination->async_completion && l.step.ops[wait].lane == Lane::Host;
      const std::vector<std::uint32_t>& awaited = launched ? std::vector{thread} : last;
      for (std::uint32_t op : awaited) {
        if (op == kNoOp) continue;
        for (auto& of_class : l.placed) job_.graph.add_edge(of_class[op].end, of_class[wait].begin);
        l.step.extra_deps.push_back({wait, op});
      }
    }
    for (const auto& together : decision.fused) l.left -= together.size();
    if (l.left > 0) return;
    for (auto& of_class : l.placed)
      for (std::uint32_t wait : l.waits) release.push_back(of_class[wait].begin);
  }

  // On the thread, or on a stream of the device.
  void add_decided(const StepProgram& s, std::uint32_t i, std::size_t c,
                   std::vector<Placed>& placed) {
    const Op& op = s.ops[i];
    Duration d =
        scale(price(op, s, job_.program, job_.profile, job_.options.level), job_.classes[c].factor);
    bool shares_memory = flows_.shares_memory() && op.traffic > 0;
    bool shares_device = devices_.are_shared() && on_device(op.lane) && d.ps > 0;
    TaskId t = shares_memory   ? flows_.add_copy(op, d, c)
               : shares_device ? job_.graph.add_task({}, d, devices_.flow(op, c))
                               : job_.graph.add_fixed(d);
    lanes_.link_deps(s, i, placed, t);
    placed[i] = {t, t, t, 0, -1};
  }

  Job& job_;
  Flows& flows_;
  Devices& devices_;
  StepFacts& facts_;
  Lanes& lanes_;
  std::optional<systems::Cycles> cycles_;  // of a coordinated Program
  std::deque<Live> live_;
  std::vector<Asked> asked_;                    // by task
  std::vector<std::uint32_t> step_of_;          // by tensor: the step that requested it last
  std::map<TaskId, std::uint32_t> wakes_;       // timers of the classes' threads
  std::multimap<TaskId, std::uint32_t> frees_;  // tasks after which a class's thread goes on
};

}  // namespace ddpsim::predict
