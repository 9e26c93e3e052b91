#include "sim/play/simulate.h"

#include <algorithm>
#include <deque>

#include "sim/engine/execute.h"
#include "sim/play/job_coordination.h"
#include "sim/units/convert.h"

namespace ddpsim::predict {
namespace {

using collective::Communicator;
using engine::TaskId;

// One job: adds its tasks to the graph, decides for its pools while the graph is played, reads its
// steps off the timeline.
class Simulator {
 public:
  Simulator(Shared& shared, const Program& program, const Communicator& comm,
            const Profile& profile, const std::vector<RankClass>& classes,
            const SimulationOptions& options)
      : job_(shared, program, comm, profile, classes, options) {}

  void build() {
    flows_.make();
    devices_.make();
    const SimulationOptions& options = job_.options;
    const Program& program = job_.program;
    const std::size_t classes = job_.classes.size();
    std::size_t ops = program.steady.ops.size() * options.steady_steps;
    if (options.warmup)
      for (const StepProgram& s : program.warmup) ops += s.ops.size();
    if (options.fidelity == Fidelity::Collective)
      job_.graph.reserve((ops + 64) * classes, 2 * (ops + 64) * classes);
    if (job_.decides()) coordinated_.begin();
    auto counts = [&](std::size_t after) {
      return options.spans && after < static_cast<std::size_t>(options.parts);
    };
    const int steady = options.steady_steps;
    if (options.warmup)
      for (std::size_t k = 0; k < program.warmup.size(); ++k)
        add_step(program.warmup[k], -1, counts(steady + program.warmup.size() - 1 - k));
    for (int k = 0; k < steady; ++k) add_step(program.steady, k, counts(steady - 1 - k));
    // What is decided later is on lanes of its own, which nothing precedes.
    if (job_.decides()) lanes_.clear();
    lanes_.begin();
  }

  bool grows() const { return job_.decides(); }

  void decide(TaskId task, TimePoint now, std::vector<TaskId>& release) {
    if (collectives_.decide(task, release)) return;
    if (job_.decides()) return coordinated_.coordinate(task, now, release);
    lanes_.decide(task, release);
  }

  Simulation read(const engine::Timeline& timeline) {
    Simulation out;
    out.completions = timeline.completions;
    out.complete = timeline.complete();
    for (std::size_t k = 0; k < lanes_.step_ends().size(); ++k) {
      TimePoint end{-1};
      for (TaskId t : lanes_.step_ends()[k]) end = std::max(end, timeline.end[t]);
      out.steps.push_back({kinds_[k], end, {}});
      if (k < step_begins_.size())
        for (std::size_t c = 0; c < job_.classes.size(); ++c)
          out.steps[k].of_class.emplace_back(timeline.end[step_begins_[k][c]],
                                             timeline.end[lanes_.step_ends()[k][c]]);
    }
    if (!job_.options.spans || !out.complete) return out;
    const std::size_t steps = out.steps.size();
    const std::size_t parts = std::min(steps, static_cast<std::size_t>(job_.options.parts));
    for (std::size_t k = steps - parts; k < steps; ++k) sum_up(timeline, k, out);
    return out;
  }

 private:
  // ---- steps

  void add_step(const StepProgram& s, int steady_index, bool record) {
    facts_.prepare_for(s);
    const std::size_t classes = job_.classes.size();
    std::vector<std::vector<Placed>> placed = std::move(spare_);
    placed.resize(classes);
    for (auto& of_class : placed) of_class.resize(s.ops.size());  // each is overwritten
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      if (lanes_.is_exchange(s.ops[i])) {
        lanes_.add_exchange(s, i, placed);
        continue;
      }
      if (is_collective(s.ops[i].kind)) {
        lanes_.add_collective(s, i, placed);
        continue;
      }
      for (std::size_t c = 0; c < classes; ++c) lanes_.add_local(s, i, c, steady_index, placed[c]);
    }
    std::vector<TaskId> ends;
    for (std::size_t c = 0; c < classes; ++c) ends.push_back(placed[c].back().end);
    lanes_.end_step(ends);
    kinds_.push_back(s.kind);
    if (job_.program.servers && job_.program.servers->apart()) {
      step_begins_.emplace_back();
      for (std::size_t c = 0; c < classes; ++c)
        step_begins_.back().push_back(placed[c].front().end);
    }
    if (job_.options.common_start) lanes_.meet(ends);
    if (job_.decides()) return coordinated_.keep(s, std::move(placed));
    if (!record) {
      spare_ = std::move(placed);
      return;
    }
    recorded_.push_back({&s, std::move(placed)});
  }

  // ---- spans

  struct Recorded {
    const StepProgram* step = nullptr;
    std::vector<std::vector<Placed>> placed;
  };
  // Step k's parts; of the last step the spans, too.
  void sum_up(const engine::Timeline& timeline, std::size_t k, Simulation& out) {
    std::optional<StepProgram> decided;
    Recorded of_live;
    if (job_.decides()) {
      decided = coordinated_.played(k, of_live.placed);
      of_live.step = &*decided;
    }
    const Recorded& r =
        job_.decides() ? of_live : recorded_[recorded_.size() + k - out.steps.size()];
    const bool last = k + 1 == out.steps.size();
    std::vector<Span> spans;
    const TimePoint before = k > 0 ? out.steps[k - 1].end : TimePoint{0};
    if (step_begins_.empty()) {
      for (std::size_t c = 0; c < job_.classes.size(); ++c)
        record_spans(timeline, r, k, c, last, spans);
      out.parts.push_back(analysis::summarize(spans, before, out.steps[k].end - before));
      if (last) out.spans = std::move(spans), out.spans_from = before;
    } else {
      // In steps of their own; what is kept is of the one that ends last.
      TimePoint latest{-1};
      for (std::size_t c = 0; c < job_.classes.size(); ++c) {
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
      const engine::PartId next = job_.graph.part_after(p.end, p.part);
      return next == engine::kNone ? timeline.end[p.end] : timeline.part[next];
    };
    out.reserve(job_.classes.size() * recorded.ops.size());
    for (std::uint32_t i = 0; i < recorded.ops.size(); ++i) {
      const Op& op = recorded.ops[i];
      const Placed& p = record.placed[c][i];
      Span& span = out.emplace_back();
      span.step = static_cast<int>(k);
      span.actor = job_.classes[c].ranks.front();
      span.count = static_cast<int>(job_.classes[c].ranks.size());
      span.lane = op.lane;
      span.kind = op.kind;
      if (job_.options.names && named) {
        span.op = name_of(job_.program, recorded, i);
        span.tensors = tensors_of(job_.program, recorded, i);
      }
      span.bytes = op.bytes;
      span.begin = begin_of(p);
      span.end = end_of(p);
      span.ready = is_collective(op.kind) ? timeline.begin[p.ready] : span.begin;
      if (is_collective(op.kind)) span.algorithm = job_.price_of(op).algorithm;
    }
  }

  Job job_;
  Flows flows_{job_};
  Devices devices_{job_};
  Collectives collectives_{job_, flows_};
  ServerWork servers_{job_, flows_, collectives_};
  StepFacts facts_{job_, flows_};
  Lanes lanes_{job_, flows_, devices_, collectives_, servers_, facts_};
  Coordinated coordinated_{job_, flows_, devices_, facts_, lanes_};
  std::vector<StepKind> kinds_;
  std::vector<std::vector<TaskId>> step_begins_;  // by class, of ranks in steps of their own
  std::vector<Recorded> recorded_;                // the last ones, if spans are wanted
  std::vector<std::vector<Placed>> spare_;        // room for the next step's
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
      shared.memory = shared.graph.add_resource({per_ps(profile.memory.shared_bytes_per_s), 0, 0});
  }
  shared.jobs += others.size();
  std::deque<Simulator> jobs;  // they stay where they are
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
    std::deque<Simulator>& jobs;
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
