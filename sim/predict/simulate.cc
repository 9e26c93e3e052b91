// Stream lanes are edges from one operation to the next. A collective is, per class, ready ->
// (picked up by a worker) -> wait for all classes -> phases of latency and transfer -> done.
// Consecutive fixed operations that nobody else waits for are built as one task.
#include "sim/predict/simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "sim/engine/execute.h"
#include "sim/predict/job_collectives.h"
#include "sim/strategy/cycles.h"
#include "sim/strategy/horovod.h"

namespace ddpsim::predict {
namespace {

using collective::Communicator;
using collective::Price;
using engine::TaskGraph;
using engine::TaskId;

// Where an operation of one class and step lies in the graph.
struct Placed {
  TaskId ready = kNoTask;  // its begin is when the operation could start
  TaskId begin = kNoTask;
  TaskId end = kNoTask;
  std::int64_t begin_offset = 0;  // within a chain task, from its begin; -1 = the task's own end
  std::int64_t end_offset = -1;
};

// One job: adds its tasks to the graph, decides for its pools while the graph is played, reads its
// steps off the timeline.
class Simulator : JobCollectives {
 public:
  Simulator(Shared& shared, const Program& program, const Communicator& comm,
            const Profile& profile, const std::vector<RankClass>& classes,
            const SimulationOptions& options)
      : JobCollectives(shared, program, comm, profile, classes, options),
        lanes_(kLanes + program.streams.size()) {
    for (const Op& op : program.steady.ops)
      if (is_input(op.kind) && op.lane != Lane::Host) input_lane_ = number_of(op.lane);
  }

  void build() {
    make_flows();
    std::size_t ops = program_.steady.ops.size() * static_cast<std::size_t>(options_.steady_steps);
    if (options_.warmup)
      for (const StepProgram& s : program_.warmup) ops += s.ops.size();
    if (options_.fidelity == Fidelity::Collective)
      graph_.reserve((ops + 64) * classes_.size(), 2 * (ops + 64) * classes_.size());
    tails_.assign(classes_.size(), std::vector<TaskId>(lanes_, kNoTask));
    if (program_.coordination) begin_coordination();
    if (options_.warmup)
      for (const StepProgram& s : program_.warmup) add_step(s, -1, false);
    for (int k = 0; k < options_.steady_steps; ++k)
      add_step(program_.steady, k, k + 1 == options_.steady_steps);
    // What is decided later is on lanes of its own, which nothing precedes.
    if (cycles_) tails_.assign(classes_.size(), std::vector<TaskId>(lanes_, kNoTask));
    pools_.assign(classes_.size(), {});
    for (auto& pool : pools_) pool.threads = program_.worker_threads;
    std::stable_sort(picked_.begin(), picked_.end(),
                     [](const Pooled& a, const Pooled& b) { return a.task < b.task; });
  }

  bool grows() const { return cycles_.has_value(); }

  void decide(TaskId task, TimePoint now, std::vector<TaskId>& release) {
    if (connections_.decide(task, release)) return;
    if (cycles_) return coordinate(task, now, release);
    auto less = [](const Pooled& a, TaskId t) { return a.task < t; };
    auto q = std::lower_bound(queued_.begin(), queued_.end(), task, less);
    if (q != queued_.end() && q->task == task) {
      if (auto op = strategy::enqueue(pools_[q->rank_class], q->pickup)) release.push_back(*op);
      return;
    }
    for (auto e = std::lower_bound(picked_.begin(), picked_.end(), task, less);
         e != picked_.end() && e->task == task; ++e)
      if (auto op = strategy::finished(pools_[e->rank_class])) release.push_back(*op);
  }

  Simulation read(const engine::Timeline& timeline) const {
    Simulation out;
    out.completions = timeline.completions;
    out.complete = timeline.complete();
    for (std::size_t k = 0; k < step_ends_.size(); ++k) {
      TimePoint end{-1};
      for (TaskId t : step_ends_[k]) end = std::max(end, timeline.end[t]);
      out.steps.push_back({kinds_[k], end});
    }
    if (!options_.spans || !out.complete) return out;
    if (!cycles_) {
      record_spans(timeline, *recorded_, record_, out);
      return out;
    }
    const Live& last = live_.back();
    std::vector<std::uint32_t> order;
    out.decided = strategy::in_order(last.step, order);
    auto placed = last.placed;
    for (std::size_t c = 0; c < placed.size(); ++c)
      for (std::size_t i = 0; i < order.size(); ++i) placed[c][i] = last.placed[c][order[i]];
    record_spans(timeline, *out.decided, placed, out);
    return out;
  }

 private:
  // ---- steps

  void add_step(const StepProgram& s, int steady_index, bool record) {
    if (&s != prepared_for_) {
      prepared_for_ = &s;
      awaited_ = awaited_ops(s);
      extra_deps_ = by_operation(s);
      durations_.clear();
      for (const Op& op : s.ops)
        durations_.push_back(price(op, s, program_, profile_, options_.level));
    }
    std::vector<std::vector<Placed>> placed(classes_.size(), std::vector<Placed>(s.ops.size()));
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      if (is_collective(s.ops[i].kind)) {
        add_collective(s, i, placed);
        continue;
      }
      for (std::size_t c = 0; c < classes_.size(); ++c) add_local(s, i, c, steady_index, placed[c]);
    }
    open_.clear();
    std::vector<TaskId> ends;
    for (std::size_t c = 0; c < classes_.size(); ++c) ends.push_back(placed[c].back().end);
    step_ends_.push_back(ends);
    kinds_.push_back(s.kind);
    if (options_.common_start) meet(ends);
    if (cycles_) return keep(s, std::move(placed));
    if (record && options_.spans) {
      recorded_ = &s;
      record_ = std::move(placed);
    }
  }

  // Whatever follows waits for every rank's end, but what makes input.
  void meet(const std::vector<TaskId>& ends) {
    TaskId all = graph_.add_fixed({});
    for (TaskId t : ends) graph_.add_edge(t, all);
    for (auto& lanes : tails_)
      for (TaskId& tail : lanes) {
        if (&tail == lanes.data() + input_lane_) continue;
        if (tail != kNoTask && std::find(ends.begin(), ends.end(), tail) == ends.end())
          graph_.add_edge(tail, all);
        tail = all;
      }
  }

  static std::vector<StepProgram::ExtraDep> by_operation(const StepProgram& s) {
    std::vector<StepProgram::ExtraDep> out = s.extra_deps;
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return a.op < b.op; });
    return out;
  }

  // Operations that another one names as a dependency.
  std::vector<std::uint8_t> awaited_ops(const StepProgram& s) const {
    std::vector<std::uint8_t> awaited(s.ops.size(), 0);
    for (const Op& op : s.ops)
      for (std::uint32_t d : op.dep)
        if (d != kNoOp) awaited[d] = 1;
    for (const auto& e : s.extra_deps) awaited[e.dep] = 1;
    awaited.back() = 1;
    if (!cycles_) return awaited;
    for (std::uint32_t made : s.made_by)
      if (made != kNoOp) awaited[made] = 1;
    for (std::size_t i = 0; i < s.ops.size(); ++i)
      if (is_request(s.ops[i].kind) || waits_for_requests(s.ops[i].kind)) awaited[i] = 1;
    return awaited;
  }

  Duration duration_of(std::uint32_t op, std::size_t c, int steady_index) const {
    Duration d = durations_[op];
    if (is_input(prepared_for_->ops[op].kind)) return d;  // no slow rank's
    const RankClass& rc = classes_[c];
    double f = rc.factor;
    if (steady_index >= 0 && static_cast<std::size_t>(steady_index) < rc.step_factors.size())
      f *= rc.step_factors[static_cast<std::size_t>(steady_index)];
    return f == 1 ? d : scale(d, f);
  }

  void link_deps(const StepProgram& s, std::uint32_t i, const std::vector<Placed>& placed,
                 TaskId task) {
    for (std::uint32_t d : s.ops[i].dep)
      if (d != kNoOp) graph_.add_edge(placed[d].end, task);
    if (s.extra_deps.empty()) return;
    bool prepared = &s == prepared_for_;  // what is decided meanwhile is not
    const std::vector<StepProgram::ExtraDep>& deps = prepared ? extra_deps_ : s.extra_deps;
    auto e = !prepared ? deps.begin()
                       : std::lower_bound(deps.begin(), deps.end(), i,
                                          [](const auto& d, auto op) { return d.op < op; });
    for (; e != deps.end() && (!prepared || e->op == i); ++e)
      if (e->op == i) graph_.add_edge(placed[e->dep].end, task);
  }

  void add_local(const StepProgram& s, std::uint32_t i, std::size_t c, int steady_index,
                 std::vector<Placed>& placed) {
    const Op& op = s.ops[i];
    auto lane = static_cast<std::size_t>(op.lane);
    Duration d = duration_of(i, c, steady_index);
    bool streamed = op.lane != Lane::Callback;
    bool shares_memory = !memory_flow_.empty() && op.traffic > 0;
    bool on_cores = computes_on_cores() && core_share_ > 0 && is_compute(op.kind) && !shares_memory;
    bool shares_device = shares_memory || on_cores ||
                         (!device_[0].empty() && on_device(op.lane) && is_compute(op.kind));
    bool waits = op.dep[0] != kNoOp || (cycles_ && waits_for_requests(op.kind));
    TaskId tail = streamed ? tails_[c][lane] : kNoTask;
    Placed& p = placed[i];
    if (streamed && !waits && !shares_device && tail != kNoTask && is_open(c, lane, tail)) {
      p.begin_offset = graph_.latency()[tail];
      graph_.lengthen(tail, d);
      p.end_offset = graph_.latency()[tail];
      p.ready = p.begin = p.end = tail;
    } else {
      TaskId t = shares_memory               ? copy(op, d - division(op, s, profile_), c)
                 : on_cores                  ? compute(d, c)
                 : shares_device && d.ps > 0 ? graph_.add_task({}, static_cast<double>(d.ps),
                                                               device_flow_[moves_memory(op)][c])
                                             : graph_.add_fixed(d);
      TaskId begin = shares_memory ? after_division(op, s, c, t) : t;
      if (tail != kNoTask) graph_.add_edge(tail, begin);
      // What was made ahead while the first steps lasted is used up sooner or later.
      if (lane == input_lane_ && steady_index == 0 && !step_ends_.empty())
        graph_.add_edge(step_ends_.back()[c], begin);
      link_deps(s, i, placed, begin);
      p.ready = p.begin = begin;
      p.end = t;
      p.end_offset = shares_device ? -1 : d.ps;
      if (streamed) tails_[c][lane] = t;
      if (streamed && !shares_device) set_open(c, lane, t);
    }
    // Told from when the host began to wait.
    if (is_input(op.kind) && op.lane == Lane::Host && tail != kNoTask) {
      p.begin = tail;
      p.begin_offset = -1;
    }
    if (awaited_[i] && streamed) close(c, lane);
  }

  // `alone`: its price. What is not memory traffic (hooks, kernels' own time) is not shared.
  TaskId copy(const Op& op, Duration alone, std::size_t c) {
    auto traffic = static_cast<double>(op.traffic);
    Duration moving{ceil_ps(traffic, memory_rate(profile_, options_.level))};
    return graph_.add_task(std::max(Duration{}, alone - moving), traffic, memory_flow_[c]);
  }

  // What divides before it copies needs its core for that, like everyone on the machine. Returns
  // the first of the two tasks.
  TaskId after_division(const Op& op, const StepProgram& s, std::size_t c, TaskId copied) {
    Duration d = division(op, s, profile_);
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

  // ---- collectives

  void add_collective(const StepProgram& s, std::uint32_t i,
                      std::vector<std::vector<Placed>>& placed) {
    const Op& op = s.ops[i];
    bool pooled = op.lane == Lane::Worker && !cycles_;
    const Price& price = price_of(op);
    std::vector<TaskId> arrive(classes_.size());
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      TaskId ready = graph_.add_fixed(collective::queued_launch(comm_, profile_));
      link_deps(s, i, placed[c], ready);
      if (pooled && op.dep[0] == kNoOp) after_host(c, ready);
      placed[c][i].ready = ready;
      arrive[c] = pooled ? queue(c, ready) : streamed(c, op.lane, ready);
    }
    TaskId first = static_cast<TaskId>(graph_.size());
    bool by_message = options_.fidelity == Fidelity::Message;
    std::vector<TaskId> done = by_message ? add_messages_of_groups(op, price, arrive)
                                          : add_phases(price, op.group, arrive);
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      Placed& p = placed[c][i];
      p.begin = by_message ? arrive[c] : first;
      p.begin_offset = 0;
      p.end = done[c];
      p.end_offset = -1;
      if (pooled) {
        picked_.push_back({done[c], static_cast<std::uint32_t>(c), kNoTask});
      } else {
        tails_[c][static_cast<std::size_t>(op.lane)] = done[c];
        close(c, static_cast<std::size_t>(op.lane));
      }
      if (!device_[0].empty() && op.lane != Lane::Compute && !pooled)
        for (std::size_t k = 0; k < (profile_.memory_hold ? 2 : 1); ++k)
          graph_.add_hold(arrive[c], done[c], {device_[k][c], holds_[k]});
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

  // ---- what is decided while it is played

  // A step whose reductions are decided. Its operations are those of the Program, then what was
  // decided, in that order.
  struct Live {
    StepProgram step;
    std::vector<std::vector<Placed>> placed;
    std::uint32_t wait = 0;  // the operation that waits for all requests
    std::size_t left = 0;    // tensors that it waits for and that are not decided
  };
  struct Asked {
    TaskId task;
    std::uint32_t rank_class;
    std::uint32_t live;
    TensorIndex tensor;
  };

  void begin_coordination() {
    const Coordination& c = *program_.coordination;
    auto ranks = static_cast<int>(classes_.size());
    // By names: the requests to rank 0 and its answer.
    Duration agreement = collective::agreement_time(comm_, profile_);
    int local = comm_.fabric->cluster().devices_per_host;
    bool even = comm_.ranks() % local == 0;
    cycles_.emplace(c, ranks, even ? local : 1, c.cache > 0 ? agreement : Duration{},
                    agreement * 2);
    step_of_.assign(c.tensors.size(), 0);
    if (options_.warmup && !program_.warmup.empty()) return;
    std::vector<TensorIndex> order;
    for (const Op& op : program_.steady.ops)
      if (is_request(op.kind)) order.push_back(op.subject);
    cycles_->fusion.remember(order);
  }

  void keep(const StepProgram& s, std::vector<std::vector<Placed>> placed) {
    auto number = static_cast<std::uint32_t>(live_.size());
    std::size_t known = asked_.size();
    Live l{s, std::move(placed), 0, 0};
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      if (waits_for_requests(s.ops[i].kind)) {
        l.wait = i;
        for (auto& of_class : l.placed) graph_.add_gate(of_class[i].begin);
      }
      if (!is_request(s.ops[i].kind)) continue;
      ++l.left;
      for (std::uint32_t c = 0; c < classes_.size(); ++c) {
        graph_.notify(l.placed[c][i].end);
        asked_.push_back({l.placed[c][i].end, c, number, s.ops[i].subject});
      }
    }
    live_.push_back(std::move(l));
    std::sort(asked_.begin() + static_cast<std::ptrdiff_t>(known), asked_.end(),
              [](const Asked& a, const Asked& b) { return a.task < b.task; });
  }

  void coordinate(TaskId task, TimePoint now, std::vector<TaskId>& release) {
    auto a = std::lower_bound(asked_.begin(), asked_.end(), task,
                              [](const Asked& x, TaskId t) { return x.task < t; });
    for (; a != asked_.end() && a->task == task; ++a) {
      step_of_[a->tensor] = a->live;
      if (cycles_->request(static_cast<int>(a->rank_class), a->tensor, now)) wake_all(now);
    }
    if (auto w = wakes_.find(task); w != wakes_.end()) {
      std::uint32_t c = w->second;
      wakes_.erase(w);
      begin_cycle(c, now, release);
    }
    for (auto [at, end] = frees_.equal_range(task); at != end; at = frees_.erase(at)) {
      cycles_->done(static_cast<int>(at->second), now);
      wake(at->second, now);
    }
  }

  void wake(std::uint32_t c, TimePoint now) {
    Duration until = cycles_->next(static_cast<int>(c)) - now;
    TaskId timer = graph_.add_fixed(std::max(Duration{}, until));
    graph_.notify(timer);
    wakes_[timer] = c;
  }
  void wake_all(TimePoint now) {
    for (std::uint32_t c = 0; c < classes_.size(); ++c) wake(c, now);
  }

  void begin_cycle(std::uint32_t c, TimePoint now, std::vector<TaskId>& release) {
    auto decision = cycles_->begin(static_cast<int>(c), now);
    if (!decision) return;
    if (!decision->fused.empty()) return perform(*decision, release);
    if (cycles_->wakes()) wake_all(now);
  }

  void perform(const strategy::Fusion::Decision& decision, std::vector<TaskId>& release) {
    Live& l = live_[step_of_[decision.fused.front().front()]];
    auto from = static_cast<std::uint32_t>(l.step.ops.size());
    strategy::add_reductions(program_, l.step, cycles_->agreement(decision), decision.fused);
    std::uint32_t thread = from;
    std::vector<std::uint32_t> last(l.step.buckets.size(), kNoOp);
    for (auto& of_class : l.placed) of_class.resize(l.step.ops.size());
    for (std::uint32_t i = from; i < l.step.ops.size(); ++i) {
      const Op& op = l.step.ops[i];
      if (is_collective(op.kind))
        add_collective(l.step, i, l.placed);
      else
        for (std::size_t c = 0; c < classes_.size(); ++c) add_decided(l.step, i, c, l.placed[c]);
      if (op.lane == Lane::Worker) thread = i;
      if (of_bucket(op.kind)) last[op.subject] = i;
    }
    for (std::uint32_t c = 0; c < classes_.size(); ++c) {
      TaskId end = l.placed[c][thread].end;
      graph_.notify(end);
      frees_.emplace(end, c);
      for (std::uint32_t op : last)
        if (op != kNoOp) graph_.add_edge(l.placed[c][op].end, l.placed[c][l.wait].begin);
    }
    for (std::uint32_t op : last)
      if (op != kNoOp) l.step.extra_deps.push_back({l.wait, op});
    for (const auto& together : decision.fused) l.left -= together.size();
    if (l.left > 0) return;
    for (auto& of_class : l.placed) release.push_back(of_class[l.wait].begin);
  }

  // On the thread, or on a stream of the device.
  void add_decided(const StepProgram& s, std::uint32_t i, std::size_t c,
                   std::vector<Placed>& placed) {
    const Op& op = s.ops[i];
    Duration d = scale(price(op, s, program_, profile_, options_.level), classes_[c].factor);
    bool shares_memory = !memory_flow_.empty() && op.traffic > 0;
    bool shares_device = !device_[0].empty() && on_device(op.lane) && d.ps > 0;
    TaskId t = shares_memory   ? copy(op, d, c)
               : shares_device ? graph_.add_task({}, static_cast<double>(d.ps),
                                                 device_flow_[moves_memory(op)][c])
                               : graph_.add_fixed(d);
    link_deps(s, i, placed, t);
    placed[i] = {t, t, t, 0, -1};
  }

  // ---- spans

  void record_spans(const engine::Timeline& timeline, const StepProgram& recorded,
                    const std::vector<std::vector<Placed>>& record, Simulation& out) const {
    auto at_offset = [&](TaskId t, std::int64_t offset) {
      return offset < 0 ? timeline.end[t] : TimePoint{timeline.begin[t].ps + offset};
    };
    int step = static_cast<int>(kinds_.size()) - 1;
    out.spans_from = step > 0 ? out.steps[static_cast<std::size_t>(step - 1)].end : TimePoint{0};
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      for (std::uint32_t i = 0; i < recorded.ops.size(); ++i) {
        const Op& op = recorded.ops[i];
        const Placed& p = record[c][i];
        Span span;
        span.step = step;
        span.actor = classes_[c].ranks.front();
        span.count = static_cast<int>(classes_[c].ranks.size());
        span.lane = op.lane;
        span.kind = op.kind;
        if (options_.names) {
          span.op = name_of(program_, recorded, i);
          span.tensors = tensors_of(program_, recorded, i);
        }
        span.bytes = op.bytes;
        span.begin = at_offset(p.begin, p.begin_offset);
        span.end = at_offset(p.end, p.end_offset);
        span.ready = is_collective(op.kind) ? timeline.begin[p.ready] : span.begin;
        if (is_collective(op.kind))
          span.algorithm = prices_.at({op.kind.operation, op.bytes, op.dtype, op.group}).algorithm;
        out.spans.push_back(std::move(span));
      }
    }
  }

  std::size_t lanes_ = kLanes;
  std::size_t input_lane_ =
      kLanes + kMostStreams;                // that batches are made on; none has this number
  std::vector<std::vector<TaskId>> tails_;  // by class: last task of each lane
  std::vector<TaskId> open_;                // chain that may still grow, by class and lane
  std::vector<std::vector<TaskId>> step_ends_;
  std::vector<StepKind> kinds_;
  const StepProgram* prepared_for_ = nullptr;  // the step whose facts follow
  std::vector<std::uint8_t> awaited_;          // by operation: another one names it as a dependency
  std::vector<StepProgram::ExtraDep> extra_deps_;  // by operation
  std::vector<Duration> durations_;                // by operation, before the class's factor
  const StepProgram* recorded_ = nullptr;
  std::vector<std::vector<Placed>> record_;
  std::vector<Pooled> queued_;
  std::vector<Pooled> picked_;
  std::vector<strategy::WorkerPool> pools_;
  std::optional<strategy::Cycles> cycles_;  // of a coordinated Program
  std::deque<Live> live_;
  std::vector<Asked> asked_;                    // by task
  std::vector<std::uint32_t> step_of_;          // by tensor: the step that requested it last
  std::map<TaskId, std::uint32_t> wakes_;       // timers of the classes' threads
  std::multimap<TaskId, std::uint32_t> frees_;  // tasks after which a class's thread goes on
};

}  // namespace

Simulation simulate(const Program& program, const Communicator& comm, const Profile& profile,
                    const std::vector<RankClass>& classes, const SimulationOptions& options,
                    std::span<const NeighbourJob> others) {
  Shared shared;
  shared.link_resource.assign(comm.fabric->links().size(), engine::kNone);
  int cores = comm.fabric->cluster().emulated_on_cores;
  if (cores > 0) {
    shared.cores = shared.graph.add_resource({static_cast<double>(cores), 0, 0});
    shared.core_turns = shared.turns.add_place(cores);
    if (profile.memory.shared_bytes_per_s > 0)
      shared.memory = shared.graph.add_resource({profile.memory.shared_bytes_per_s / 1e12, 0, 0});
  }
  shared.jobs += others.size();
  std::vector<Simulator> jobs;
  jobs.reserve(shared.jobs);
  SimulationOptions own = options;
  own.fold_links = options.fold_links && others.empty();
  jobs.emplace_back(shared, program, comm, profile, classes, own);
  for (const NeighbourJob& other : others) {
    SimulationOptions theirs = own;
    theirs.spans = false;
    theirs.common_start = false;
    theirs.steady_steps = other.steady_steps;
    theirs.warmup = own.warmup && other.warmup;
    jobs.emplace_back(shared, *other.program, *other.comm, profile, *other.classes, theirs);
  }
  for (Simulator& job : jobs) job.build();
  struct Deciders {
    Shared& shared;
    std::vector<Simulator>& jobs;
  } deciders{shared, jobs};
  auto on_end = [](void* state, TaskId task, TimePoint now, std::vector<TaskId>& release) {
    auto& who = *static_cast<Deciders*>(state);
    who.shared.readers.decide(task, release);
    if (who.shared.turns.decide(task, release)) return;
    for (Simulator& job : who.jobs) job.decide(task, now, release);
  };
  bool grows = std::any_of(jobs.begin(), jobs.end(), [](const Simulator& j) { return j.grows(); });
  engine::Controller controller{&deciders, on_end};
  engine::Timeline timeline = grows ? engine::execute_growing(shared.graph, controller)
                                    : engine::execute(shared.graph, controller);
  Simulation out = jobs.front().read(timeline);
  for (std::size_t k = 1; k < jobs.size(); ++k) out.others.push_back(jobs[k].read(timeline).steps);
  return out;
}

}  // namespace ddpsim::predict
