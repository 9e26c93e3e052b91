// What operations of a step become on a job's lanes: tasks behind the lane's last, collectives
// behind every class's, the Gloo workers' queue. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/play/job_devices.h"
#include "sim/play/job_servers.h"
#include "sim/play/job_steps.h"
#include "sim/systems/base/worker_pool.h"

namespace ddpsim::predict {

// Where an operation of one class and step lies in the graph.
struct Placed {
  engine::TaskId ready = kNoTask;  // its begin is when the operation could start
  engine::TaskId begin = kNoTask;
  engine::TaskId end = kNoTask;
  // Within a chain of fixed operations, from its begin; or one of the below.
  std::int64_t begin_offset = 0;
  std::int64_t end_offset = kEnds;
  engine::PartId part = engine::kNone;  // of a chain of kernels; none: what the task begins with
  static constexpr std::int64_t kEnds = -1;    // where the task does
  static constexpr std::int64_t kOfPart = -2;  // where its part begins or ends
};

// Stream lanes are edges from one operation to the next. A collective is, per class, ready ->
// (picked up by a worker) -> wait for all classes -> phases of latency and transfer -> done.
// Consecutive fixed operations, or kernels, that nobody else waits for are built as one task.
class Lanes {
 public:
  using TaskId = engine::TaskId;
  using Price = collective::Price;

  Lanes(Job& job, Flows& flows, Devices& devices, Collectives& collectives, ServerWork& servers,
        StepFacts& facts)
      : job_(job),
        flows_(flows),
        devices_(devices),
        collectives_(collectives),
        servers_(servers),
        facts_(facts) {
    for (const Op& op : job.program.steady.ops)
      if (is_input(op.kind) && number_of(op.lane) >= kLanes) input_lane_ = number_of(op.lane);
    clear();
  }
  // Nothing precedes what follows on any lane.
  void clear() { tails_.assign(job_.classes.size(), std::vector<TaskId>(facts_.lanes(), kNoTask)); }

  // The step's operations are placed: those of class c end with `ends[c]`.
  void end_step(const std::vector<TaskId>& ends) {
    open_.clear();
    step_ends_.push_back(ends);
  }
  const std::vector<std::vector<TaskId>>& step_ends() const { return step_ends_; }

  // Whatever follows waits for every rank's end, but what makes input.
  void meet(const std::vector<TaskId>& ends) {
    TaskId all = job_.graph.add_fixed({});
    for (TaskId t : ends) job_.graph.add_edge(t, all);
    for (auto& lanes : tails_)
      for (TaskId& tail : lanes) {
        if (&tail == lanes.data() + input_lane_) continue;
        if (tail != kNoTask && std::find(ends.begin(), ends.end(), tail) == ends.end())
          job_.graph.add_edge(tail, all);
        tail = all;
      }
  }

  // All is placed, and the graph is about to be played.
  void begin() {
    pools_.assign(job_.classes.size(), {});
    for (auto& pool : pools_) pool.threads = job_.program.worker_threads;
    std::stable_sort(picked_.begin(), picked_.end(),
                     [](const Pooled& a, const Pooled& b) { return a.task < b.task; });
  }
  // A task has ended: which pick-ups its pool lets begin.
  void decide(TaskId task, std::vector<TaskId>& release) {
    auto less = [](const Pooled& a, TaskId t) { return a.task < t; };
    auto q = std::lower_bound(queued_.begin(), queued_.end(), task, less);
    if (q != queued_.end() && q->task == task) {
      if (auto op = systems::enqueue(pools_[q->rank_class], q->pickup)) release.push_back(*op);
      return;
    }
    for (auto e = std::lower_bound(picked_.begin(), picked_.end(), task, less);
         e != picked_.end() && e->task == task; ++e)
      if (auto op = systems::finished(pools_[e->rank_class])) release.push_back(*op);
  }

  void link_deps(const StepProgram& s, std::uint32_t i, const std::vector<Placed>& placed,
                 TaskId task) {
    facts_.for_each_dep(s, i, [&](std::uint32_t d) { job_.graph.add_edge(placed[d].end, task); });
  }

  void add_local(const StepProgram& s, std::uint32_t i, std::size_t c, int steady_index,
                 std::vector<Placed>& placed) {
    const Op& op = s.ops[i];
    auto lane = number_of(op.lane);
    Duration d = facts_.duration_of(i, c, steady_index);
    if (i == 0 && job_.program.servers && step_ends_.empty()) d += head_start(c);
    bool streamed = op.lane != Lane::Callback;
    bool shares_memory = flows_.shares_memory() && op.traffic > 0;
    bool on_cores = flows_.takes_core_time() && is_compute(op.kind) && !shares_memory;
    bool shares_device = shares_memory || on_cores ||
                         (devices_.are_shared() && on_device(op.lane) && is_compute(op.kind));
    bool begins = i == 0 && job_.program.servers;  // its step, with others
    const bool waits = begins || facts_.waits_itself(s, i);
    TaskId tail = streamed ? tails_[c][lane] : kNoTask;
    Placed& p = placed[i];
    const bool kernel = shares_device && !shares_memory && !on_cores && d.ps > 0;
    const engine::FlowId flow = kernel ? devices_.flow(op, c) : engine::kNoFlow;
    if (streamed && !waits && (kernel || !shares_device) && tail != kNoTask &&
        is_open(c, lane, tail) && kernel == (job_.graph.tasks()[tail].flow != engine::kNoFlow)) {
      p.ready = p.begin = p.end = tail;
      if (kernel) {
        p.part = job_.graph.add_part(tail, d, flow);
        p.begin_offset = p.end_offset = Placed::kOfPart;
      } else {
        p.begin_offset = job_.graph.tasks()[tail].latency;
        job_.graph.lengthen(tail, d);
        p.end_offset = job_.graph.tasks()[tail].latency;
      }
    } else {
      TaskId t = shares_memory ? flows_.add_copy(op, d - core_time(op, s, job_.profile), c)
                 : on_cores    ? flows_.add_compute(d, c)
                 : kernel      ? job_.graph.add_task({}, d, flow)
                               : job_.graph.add_fixed(d);
      TaskId begin = shares_memory ? flows_.after_core(op, s, c, t) : t;
      if (tail != kNoTask) job_.graph.add_edge(tail, begin);
      // What was made ahead while the first steps lasted is used up sooner or later.
      if (lane == input_lane_ && steady_index == 0 && !step_ends_.empty())
        job_.graph.add_edge(step_ends_.back()[c], begin);
      link_deps(s, i, placed, begin);
      if (begins) servers_.wait_for_clock(begin, step_ends_);
      p.ready = p.begin = begin;
      p.end = t;
      p.part = engine::kNone;
      p.begin_offset = 0;
      p.end_offset = kernel ? Placed::kOfPart : shares_device ? Placed::kEnds : d.ps;
      if (streamed) tails_[c][lane] = t;
      if (streamed && (kernel || !shares_device)) set_open(c, lane, t);
    }
    // Told from when the host began to wait.
    if (is_input(op.kind) && op.lane == Lane::Host && tail != kNoTask) {
      p.begin = tail;
      p.begin_offset = Placed::kEnds;
    }
    if (facts_.is_awaited(i) && streamed) close(c, lane);
    if (!streamed) keep_worker(s, op, c, placed, p.end);
  }

  // ---- parameter servers

  void add_exchange(const StepProgram& s, std::uint32_t i,
                    std::vector<std::vector<Placed>>& placed) {
    const Op& op = s.ops[i];
    std::vector<TaskId> after;
    std::vector<TaskId> done;
    if (is_served(op.kind)) {
      for (std::size_t c = 0; c < job_.classes.size(); ++c) {
        after.push_back(job_.graph.add_fixed({}));
        link_deps(s, i, placed[c], after.back());
      }
      done = servers_.add_served(op, after);
    } else {
      for (const auto& of_class : placed) after.push_back(of_class[op.dep[0]].end);
      done = servers_.add_server_work(s.ops[op.dep[0]].group, facts_.durations()[i], after);
    }
    for (std::size_t c = 0; c < job_.classes.size(); ++c) {
      Placed& p = placed[c][i];
      p.ready = is_served(op.kind) ? after[c] : done[c];
      p.begin = done[c];
      p.end = done[c];
      p.begin_offset = 0;
      p.end_offset = Placed::kEnds;
    }
  }
  bool is_exchange(const Op& op) const {
    return job_.program.servers && (is_served(op.kind) || is_server_work(op.kind));
  }

  // ---- collectives

  void add_collective(const StepProgram& s, std::uint32_t i,
                      std::vector<std::vector<Placed>>& placed) {
    const Op& op = s.ops[i];
    bool pooled = op.lane == Lane::Worker && !job_.decides();
    const Price& price = job_.price_of(op);
    const KernelWait wait =
        kernel_wait(job_.program, op.group, op.lane, job_.comm.ranks(), job_.options.level);
    const bool waits = wait.last.ps > 0 && devices_.are_shared();
    std::vector<TaskId> arrive(job_.classes.size());
    for (std::size_t c = 0; c < job_.classes.size(); ++c) {
      TaskId ready = job_.graph.add_fixed(collective::queued_launch(job_.comm, job_.profile));
      link_deps(s, i, placed[c], ready);
      if (pooled && op.dep[0] == kNoOp) after_host(c, ready);
      placed[c][i].ready = ready;
      arrive[c] = pooled ? queue(c, ready) : streamed(c, op.lane, ready);
      if (waits) arrive[c] = devices_.after_kernels(wait, c, arrive[c]);
    }
    TaskId first = static_cast<TaskId>(job_.graph.size());
    bool by_message = job_.options.fidelity == Fidelity::Message;
    std::vector<TaskId> done = by_message ? collectives_.add_messages_of_groups(op, price, arrive)
                                          : collectives_.add_phases(price, op.group, arrive);
    for (std::size_t c = 0; c < job_.classes.size(); ++c) {
      Placed& p = placed[c][i];
      p.begin = by_message ? arrive[c] : first;
      p.begin_offset = by_message && waits ? Placed::kEnds : 0;
      p.end = done[c];
      p.end_offset = Placed::kEnds;
      if (pooled) {
        picked_.push_back({done[c], static_cast<std::uint32_t>(c), kNoTask});
      } else {
        tails_[c][number_of(op.lane)] = done[c];
        close(c, number_of(op.lane));
      }
      if (devices_.are_shared() && op.lane != Lane::Compute && op.lane != Lane::Worker)
        devices_.hold(arrive[c], done[c], c, price);
    }
    if (pooled) {
      if (job_.options.fidelity == Fidelity::Collective)
        job_.graph.notify(done[0]);
      else
        for (TaskId t : done) job_.graph.notify(t);
    }
  }

 private:
  // A future's callback runs on the worker that ended the collective, which picks up nothing until
  // then.
  void keep_worker(const StepProgram& s, const Op& callback, std::size_t c,
                   const std::vector<Placed>& placed, TaskId end) {
    const std::uint32_t before = callback.dep[0];
    if (job_.decides() || before == kNoOp || s.ops[before].lane != Lane::Worker) return;
    for (auto e = picked_.rbegin(); e != picked_.rend(); ++e) {
      if (e->task != placed[before].end || e->rank_class != c) continue;
      e->task = end;
      job_.graph.notify(end);
      return;
    }
  }

  bool is_open(std::size_t c, std::size_t lane, TaskId t) const {
    std::size_t slot = c * facts_.lanes() + lane;
    return slot < open_.size() && open_[slot] == t;
  }

  void set_open(std::size_t c, std::size_t lane, TaskId t) {
    if (open_.empty()) open_.assign(job_.classes.size() * facts_.lanes(), kNoTask);
    open_[c * facts_.lanes() + lane] = t;
  }

  void close(std::size_t c, std::size_t lane) {
    if (!open_.empty()) open_[c * facts_.lanes() + lane] = kNoTask;
  }

  // Ranks that do not wait for one another come to be spread over a step; here they begin so.
  Duration head_start(std::size_t c) const {
    if (!job_.program.servers->apart()) return {};
    Duration computes;
    const std::vector<Duration>& durations = facts_.durations();
    for (std::size_t i = 0; i < durations.size(); ++i)
      if (is_compute(facts_.prepared().ops[i].kind)) computes += durations[i];
    return {computes.ps * static_cast<std::int64_t>(c) / std::ssize(job_.classes)};
  }

  // The host hands collectives to the workers in listed order: one that waits for no operation of
  // its step is not there before the step begins.
  void after_host(std::size_t c, TaskId ready) {
    auto host = number_of(Lane::Host);
    if (tails_[c][host] == kNoTask) return;
    job_.graph.add_edge(tails_[c][host], ready);
    close(c, host);
  }

  TaskId streamed(std::size_t c, Lane lane, TaskId ready) {
    TaskId tail = tails_[c][number_of(lane)];
    if (tail == kNoTask) return ready;
    TaskId t = job_.graph.add_fixed({});
    job_.graph.add_edge(ready, t);
    job_.graph.add_edge(tail, t);
    return t;
  }

  // Enqueued when `ready` ends; picked up when the policy says so.
  TaskId queue(std::size_t c, TaskId ready) {
    TaskId pickup = job_.graph.add_fixed({});
    job_.graph.add_gate(pickup);
    job_.graph.notify(ready);
    queued_.push_back({ready, static_cast<std::uint32_t>(c), pickup});
    return pickup;
  }

  struct Pooled {
    TaskId task;
    std::uint32_t rank_class;
    TaskId pickup;  // kNoTask: the task is an end
  };

  Job& job_;
  Flows& flows_;
  Devices& devices_;
  Collectives& collectives_;
  ServerWork& servers_;
  StepFacts& facts_;
  std::size_t input_lane_ =
      kLanes + kMostStreams;                // that batches are made on; none has this number
  std::vector<std::vector<TaskId>> tails_;  // by class: last task of each lane
  std::vector<TaskId> open_;                // chain that may still grow, by class and lane
  std::vector<std::vector<TaskId>> step_ends_;
  std::vector<Pooled> queued_;
  std::vector<Pooled> picked_;
  std::vector<systems::WorkerPool> pools_;  // by class
};

}  // namespace ddpsim::predict
