#include "sim/predict/simulate.h"

#include <algorithm>

#include "sim/engine/execute.h"
#include "sim/predict/job_coordination.h"

namespace ddpsim::predict {
namespace {

using collective::Communicator;
using engine::TaskId;

// One job: adds its tasks to the graph, decides for its pools while the graph is played, reads its
// steps off the timeline.
class Simulator : JobCoordination {
 public:
  using JobCoordination::JobCoordination;

  void build() {
    make_flows();
    std::size_t ops = program_.steady.ops.size() * static_cast<std::size_t>(options_.steady_steps);
    if (options_.warmup)
      for (const StepProgram& s : program_.warmup) ops += s.ops.size();
    if (options_.fidelity == Fidelity::Collective)
      graph_.reserve((ops + 64) * classes_.size(), 2 * (ops + 64) * classes_.size());
    tails_.assign(classes_.size(), std::vector<TaskId>(lanes_, kNoTask));
    if (program_.coordination) begin_coordination();
    auto counts = [&](std::size_t after) {
      return options_.spans && after < static_cast<std::size_t>(options_.parts);
    };
    const auto steady = static_cast<std::size_t>(options_.steady_steps);
    if (options_.warmup)
      for (std::size_t k = 0; k < program_.warmup.size(); ++k)
        add_step(program_.warmup[k], -1, counts(steady + program_.warmup.size() - 1 - k));
    for (std::size_t k = 0; k < steady; ++k)
      add_step(program_.steady, static_cast<int>(k), counts(steady - 1 - k));
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
      if (auto op = systems::enqueue(pools_[q->rank_class], q->pickup)) release.push_back(*op);
      return;
    }
    for (auto e = std::lower_bound(picked_.begin(), picked_.end(), task, less);
         e != picked_.end() && e->task == task; ++e)
      if (auto op = systems::finished(pools_[e->rank_class])) release.push_back(*op);
  }

  Simulation read(const engine::Timeline& timeline) {
    Simulation out;
    out.completions = timeline.completions;
    out.complete = timeline.complete();
    for (std::size_t k = 0; k < step_ends_.size(); ++k) {
      TimePoint end{-1};
      for (TaskId t : step_ends_[k]) end = std::max(end, timeline.end[t]);
      out.steps.push_back({kinds_[k], end, {}});
      if (k < step_begins_.size())
        for (std::size_t c = 0; c < classes_.size(); ++c)
          out.steps[k].of_class.emplace_back(timeline.end[step_begins_[k][c]],
                                             timeline.end[step_ends_[k][c]]);
    }
    if (!options_.spans || !out.complete) return out;
    const std::size_t steps = out.steps.size();
    const std::size_t parts = std::min(steps, static_cast<std::size_t>(options_.parts));
    for (std::size_t k = steps - parts; k < steps; ++k) sum_up(timeline, k, out);
    return out;
  }

 private:
  // ---- steps

  void add_step(const StepProgram& s, int steady_index, bool record) {
    prepare_for(s);
    std::vector<std::vector<Placed>> placed = std::move(spare_);
    placed.resize(classes_.size());
    for (auto& of_class : placed) of_class.resize(s.ops.size());  // each is overwritten
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      if (is_exchange(s.ops[i])) {
        add_exchange(s, i, placed);
        continue;
      }
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
    if (program_.servers && program_.servers->apart()) {
      step_begins_.emplace_back();
      for (std::size_t c = 0; c < classes_.size(); ++c)
        step_begins_.back().push_back(placed[c].front().end);
    }
    if (options_.common_start) meet(ends);
    if (cycles_) return keep(s, std::move(placed));
    if (!record) {
      spare_ = std::move(placed);
      return;
    }
    recorded_.push_back({&s, std::move(placed)});
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

  // ---- spans

  struct Recorded {
    const StepProgram* step = nullptr;
    std::vector<std::vector<Placed>> placed;
  };
  // Of what was decided while it was played, in the order in which it ran.
  Recorded recorded(std::size_t k, std::optional<StepProgram>& decided) const {
    const Live& l = live_[k];
    std::vector<std::uint32_t> order;
    decided = systems::in_order(l.step, order);
    Recorded out{&*decided, l.placed};
    for (std::size_t c = 0; c < out.placed.size(); ++c)
      for (std::size_t i = 0; i < order.size(); ++i) out.placed[c][i] = l.placed[c][order[i]];
    return out;
  }

  // Step k's parts; of the last step the spans, too.
  void sum_up(const engine::Timeline& timeline, std::size_t k, Simulation& out) {
    std::optional<StepProgram> decided;
    Recorded of_live;
    if (cycles_) of_live = recorded(k, decided);
    const Recorded& r = cycles_ ? of_live : recorded_[recorded_.size() + k - out.steps.size()];
    const bool last = k + 1 == out.steps.size();
    std::vector<Span> spans;
    const TimePoint before = k > 0 ? out.steps[k - 1].end : TimePoint{0};
    if (step_begins_.empty()) {
      for (std::size_t c = 0; c < classes_.size(); ++c)
        record_spans(timeline, r, k, c, last, spans);
      out.parts.push_back(analysis::summarize(spans, before, out.steps[k].end - before));
      if (last) out.spans = std::move(spans), out.spans_from = before;
    } else {
      // In steps of their own; what is kept is of the one that ends last.
      TimePoint latest{-1};
      for (std::size_t c = 0; c < classes_.size(); ++c) {
        const auto [begin, end] = out.steps[k].of_class[c];
        const TimePoint from = k > 0 ? out.steps[k - 1].of_class[c].second : begin;
        spans.clear();
        record_spans(timeline, r, k, c, last, spans);
        out.parts.push_back(analysis::summarize(spans, from, end - from));
        if (last && end > latest) out.spans = spans, out.spans_from = from, latest = end;
      }
    }
    if (last && decided) out.decided = std::move(decided);
  }

  void record_spans(const engine::Timeline& timeline, const Recorded& record, std::size_t k,
                    std::size_t c, bool named, std::vector<Span>& out) {
    const StepProgram& recorded = *record.step;
    auto at_offset = [&](TaskId t, std::int64_t offset) {
      return offset < 0 ? timeline.end[t] : TimePoint{timeline.begin[t].ps + offset};
    };
    auto begin_of = [&](const Placed& p) {
      return p.begin_offset == Placed::kOfPart ? timeline.part[p.part]
                                               : at_offset(p.begin, p.begin_offset);
    };
    auto end_of = [&](const Placed& p) {
      if (p.end_offset != Placed::kOfPart) return at_offset(p.end, p.end_offset);
      const engine::PartId next = graph_.part_after(p.end, p.part);
      return next == engine::kNone ? timeline.end[p.end] : timeline.part[next];
    };
    out.reserve(classes_.size() * recorded.ops.size());
    for (std::uint32_t i = 0; i < recorded.ops.size(); ++i) {
      const Op& op = recorded.ops[i];
      const Placed& p = record.placed[c][i];
      Span& span = out.emplace_back();
      span.step = static_cast<int>(k);
      span.actor = classes_[c].ranks.front();
      span.count = static_cast<int>(classes_[c].ranks.size());
      span.lane = op.lane;
      span.kind = op.kind;
      if (options_.names && named) {
        span.op = name_of(program_, recorded, i);
        span.tensors = tensors_of(program_, recorded, i);
      }
      span.bytes = op.bytes;
      span.begin = begin_of(p);
      span.end = end_of(p);
      span.ready = is_collective(op.kind) ? timeline.begin[p.ready] : span.begin;
      if (is_collective(op.kind)) span.algorithm = price_of(op).algorithm;
    }
  }

  std::vector<StepKind> kinds_;
  std::vector<std::vector<TaskId>> step_begins_;  // by class, of ranks in steps of their own
  std::vector<Recorded> recorded_;                // the last ones, if spans are wanted
  std::vector<std::vector<Placed>> spare_;        // room for the next step's
  std::vector<systems::WorkerPool> pools_;
};

}  // namespace

Simulation simulate(const Program& program, const Communicator& comm, const Profile& profile,
                    const std::vector<RankClass>& classes, const SimulationOptions& options,
                    std::span<const NeighbourJob> others) {
  engine::TaskGraph own_graph;
  Shared shared{1, options.graph ? *options.graph : own_graph};
  shared.graph.clear();
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
    theirs.prices = nullptr;
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
