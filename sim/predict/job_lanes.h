// What operations of a step become on a job's lanes: tasks behind the lane's last, collectives
// behind every class's, the Gloo workers' queue. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/predict/job_steps.h"

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
struct JobLanes : JobSteps {
  JobLanes(Shared& shared, const Program& program, const Communicator& comm, const Profile& profile,
           const std::vector<RankClass>& classes, const SimulationOptions& options)
      : JobSteps(shared, program, comm, profile, classes, options) {
    for (const Op& op : program.steady.ops)
      if (is_input(op.kind) && number_of(op.lane) >= kLanes) input_lane_ = number_of(op.lane);
  }

  void link_deps(const StepProgram& s, std::uint32_t i, const std::vector<Placed>& placed,
                 TaskId task) {
    for_each_dep(s, i, [&](std::uint32_t d) { graph_.add_edge(placed[d].end, task); });
  }

  void add_local(const StepProgram& s, std::uint32_t i, std::size_t c, int steady_index,
                 std::vector<Placed>& placed) {
    const Op& op = s.ops[i];
    auto lane = static_cast<std::size_t>(op.lane);
    Duration d = duration_of(i, c, steady_index);
    if (i == 0 && program_.servers && step_ends_.empty()) d += head_start(c);
    bool streamed = op.lane != Lane::Callback;
    bool shares_memory = !memory_flow_.empty() && op.traffic > 0;
    bool on_cores = computes_on_cores() && core_share_ > 0 && is_compute(op.kind) && !shares_memory;
    bool shares_device = shares_memory || on_cores ||
                         (!device_[0].empty() && on_device(op.lane) && is_compute(op.kind));
    bool begins = i == 0 && program_.servers;  // its step, with others
    const bool waits = begins || waits_itself(s, i);
    TaskId tail = streamed ? tails_[c][lane] : kNoTask;
    Placed& p = placed[i];
    const bool kernel = shares_device && !shares_memory && !on_cores && d.ps > 0;
    const engine::FlowId flow = kernel ? device_flow_[moves_memory(op)][c] : engine::kNoFlow;
    if (streamed && !waits && (kernel || !shares_device) && tail != kNoTask &&
        is_open(c, lane, tail) && kernel == (graph_.tasks()[tail].flow != engine::kNoFlow)) {
      p.ready = p.begin = p.end = tail;
      if (kernel) {
        p.part = graph_.add_part(tail, static_cast<double>(d.ps), flow);
        p.begin_offset = p.end_offset = Placed::kOfPart;
      } else {
        p.begin_offset = graph_.tasks()[tail].latency;
        graph_.lengthen(tail, d);
        p.end_offset = graph_.tasks()[tail].latency;
      }
    } else {
      TaskId t = shares_memory ? copy(op, d - core_time(op, s, profile_), c)
                 : on_cores    ? compute(d, c)
                 : kernel      ? graph_.add_task({}, static_cast<double>(d.ps), flow)
                               : graph_.add_fixed(d);
      TaskId begin = shares_memory ? after_core(op, s, c, t) : t;
      if (tail != kNoTask) graph_.add_edge(tail, begin);
      // What was made ahead while the first steps lasted is used up sooner or later.
      if (lane == input_lane_ && steady_index == 0 && !step_ends_.empty())
        graph_.add_edge(step_ends_.back()[c], begin);
      link_deps(s, i, placed, begin);
      if (begins) wait_for_clock(begin, step_ends_);
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
    if (awaited_[i] && streamed) close(c, lane);
    if (!streamed) keep_worker(s, op, c, placed, p.end);
  }

  // A future's callback runs on the worker that ended the collective, which picks up nothing until
  // then.
  void keep_worker(const StepProgram& s, const Op& callback, std::size_t c,
                   const std::vector<Placed>& placed, TaskId end) {
    const std::uint32_t before = callback.dep[0];
    if (decides_ || before == kNoOp || s.ops[before].lane != Lane::Worker) return;
    for (auto e = picked_.rbegin(); e != picked_.rend(); ++e) {
      if (e->task != placed[before].end || e->rank_class != c) continue;
      e->task = end;
      graph_.notify(end);
      return;
    }
  }

  // `alone`: its price. What is not memory traffic (hooks, kernels' own time) is not shared.
  TaskId copy(const Op& op, Duration alone, std::size_t c) {
    auto traffic = static_cast<double>(op.traffic);
    Duration moving{ceil_ps(traffic, memory_rate(profile_, options_.level))};
    return graph_.add_task(std::max(Duration{}, alone - moving), traffic, memory_flow_[c]);
  }

  // What computes before it copies needs its core for that, like everyone on the machine. Returns
  // the first of the two tasks.
  TaskId after_core(const Op& op, const StepProgram& s, std::size_t c, TaskId copied) {
    Duration d = core_time(op, s, profile_);
    if (d.ps == 0 || core_flow_.empty()) return copied;
    TaskId t = graph_.add_task({}, static_cast<double>(d.ps), work_flow_[c]);
    graph_.add_edge(t, copied);
    return t;
  }

  // What was measured as `d` while `crowd_` ranks took turns on each core: core time, and the rest,
  // in which it slept.
  TaskId compute(Duration d, std::size_t c) {
    double taken = crowd_ * core_share_ * static_cast<double>(d.ps);
    return graph_.add_task(std::max(Duration{}, Duration{d.ps - static_cast<std::int64_t>(taken)}),
                           taken, core_flow_[c]);
  }

  bool is_open(std::size_t c, std::size_t lane, TaskId t) const {
    std::size_t slot = c * lanes_ + lane;
    return slot < open_.size() && open_[slot] == t;
  }
  void set_open(std::size_t c, std::size_t lane, TaskId t) {
    if (open_.empty()) open_.assign(classes_.size() * lanes_, kNoTask);
    open_[c * lanes_ + lane] = t;
  }
  void close(std::size_t c, std::size_t lane) {
    if (!open_.empty()) open_[c * lanes_ + lane] = kNoTask;
  }

  // ---- parameter servers

  // Ranks that do not wait for one another come to be spread over a step; here they begin so.
  Duration head_start(std::size_t c) const {
    if (!program_.servers->apart()) return {};
    Duration computes;
    for (std::size_t i = 0; i < durations_.size(); ++i)
      if (is_compute(prepared_for_->ops[i].kind)) computes += durations_[i];
    return {computes.ps * static_cast<std::int64_t>(c) /
            static_cast<std::int64_t>(classes_.size())};
  }

  void add_exchange(const StepProgram& s, std::uint32_t i,
                    std::vector<std::vector<Placed>>& placed) {
    const Op& op = s.ops[i];
    std::vector<TaskId> after;
    std::vector<TaskId> done;
    if (is_served(op.kind)) {
      for (std::size_t c = 0; c < classes_.size(); ++c) {
        after.push_back(graph_.add_fixed({}));
        link_deps(s, i, placed[c], after.back());
      }
      done = add_served(op, after);
    } else {
      for (const auto& of_class : placed) after.push_back(of_class[op.dep[0]].end);
      done = add_server_work(s.ops[op.dep[0]].group, durations_[i], after);
    }
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      Placed& p = placed[c][i];
      p.ready = is_served(op.kind) ? after[c] : done[c];
      p.begin = done[c];
      p.end = done[c];
      p.begin_offset = 0;
      p.end_offset = Placed::kEnds;
    }
  }
  bool is_exchange(const Op& op) const {
    return program_.servers && (is_served(op.kind) || is_server_work(op.kind));
  }

  // ---- collectives

  void add_collective(const StepProgram& s, std::uint32_t i,
                      std::vector<std::vector<Placed>>& placed) {
    const Op& op = s.ops[i];
    bool pooled = op.lane == Lane::Worker && !decides_;
    const Price& price = price_of(op);
    const KernelWait wait = kernel_wait(program_, op.group, op.lane, comm_.ranks(), options_.level);
    const bool waits = wait.last.ps > 0 && !device_[0].empty();
    std::vector<TaskId> arrive(classes_.size());
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      TaskId ready = graph_.add_fixed(collective::queued_launch(comm_, profile_));
      link_deps(s, i, placed[c], ready);
      if (pooled && op.dep[0] == kNoOp) after_host(c, ready);
      placed[c][i].ready = ready;
      arrive[c] = pooled ? queue(c, ready) : streamed(c, op.lane, ready);
      if (waits) arrive[c] = after_kernels(wait, c, arrive[c]);
    }
    TaskId first = static_cast<TaskId>(graph_.size());
    bool by_message = options_.fidelity == Fidelity::Message;
    std::vector<TaskId> done = by_message ? add_messages_of_groups(op, price, arrive)
                                          : add_phases(price, op.group, arrive);
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      Placed& p = placed[c][i];
      p.begin = by_message ? arrive[c] : first;
      p.begin_offset = by_message && waits ? Placed::kEnds : 0;
      p.end = done[c];
      p.end_offset = Placed::kEnds;
      if (pooled) {
        picked_.push_back({done[c], static_cast<std::uint32_t>(c), kNoTask});
      } else {
        tails_[c][static_cast<std::size_t>(op.lane)] = done[c];
        close(c, static_cast<std::size_t>(op.lane));
      }
      if (!device_[0].empty() && op.lane != Lane::Compute && op.lane != Lane::Worker)
        for (std::size_t k = 0; k < (profile_.memory_hold ? 2 : 1); ++k)
          graph_.add_hold(arrive[c], done[c], {device_[k][c], hold_of(k, price)});
    }
    if (pooled) {
      if (options_.fidelity == Fidelity::Collective)
        graph_.notify(done[0]);
      else
        for (TaskId t : done) graph_.notify(t);
    }
  }

  // The host hands collectives to the workers in listed order: one that waits for no operation of
  // its step is not there before the step begins.
  void after_host(std::size_t c, TaskId ready) {
    auto host = static_cast<std::size_t>(Lane::Host);
    if (tails_[c][host] == kNoTask) return;
    graph_.add_edge(tails_[c][host], ready);
    close(c, host);
  }

  TaskId streamed(std::size_t c, Lane lane, TaskId ready) {
    TaskId tail = tails_[c][static_cast<std::size_t>(lane)];
    if (tail == kNoTask) return ready;
    TaskId t = graph_.add_fixed({});
    graph_.add_edge(ready, t);
    graph_.add_edge(tail, t);
    return t;
  }

  // Enqueued when `ready` ends; picked up when the policy says so.
  TaskId queue(std::size_t c, TaskId ready) {
    TaskId pickup = graph_.add_fixed({});
    graph_.add_gate(pickup);
    graph_.notify(ready);
    queued_.push_back({ready, static_cast<std::uint32_t>(c), pickup});
    return pickup;
  }

  struct Pooled {
    TaskId task;
    std::uint32_t rank_class;
    TaskId pickup;  // kNoTask: the task is an end
  };

  std::size_t input_lane_ =
      kLanes + kMostStreams;                // that batches are made on; none has this number
  std::vector<std::vector<TaskId>> tails_;  // by class: last task of each lane
  std::vector<TaskId> open_;                // chain that may still grow, by class and lane
  std::vector<std::vector<TaskId>> step_ends_;
  std::vector<Pooled> queued_;
  std::vector<Pooled> picked_;
};

}  // namespace ddpsim::predict
