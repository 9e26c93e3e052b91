#include "sim/predict/steady.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "sim/predict/given_program.h"
#include "sim/predict/known_times.h"
#include "sim/predict/lowered.h"
#include "sim/predict/mechanisms.h"
#include "sim/predict/server_places.h"
#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

constexpr int kSteadySteps = 3;
constexpr int kMaxSteadySteps = 8;
constexpr std::size_t kLongestCycle = 3;  // of which 8 steps show two
constexpr double kAlikePeriods = 1e-5;
// What is reduced together differs from step to step where cycles decide it: the mean of the steps
// after the first few.
constexpr int kCoordinatedSteps = 20;
constexpr std::size_t kCoordinatedCounted = 16;

constexpr int kEveryStep = std::numeric_limits<int>::max();

bool settled(const Simulation& s) {
  std::size_t n = s.steps.size();
  return n >= 3 &&
         s.steps[n - 1].end - s.steps[n - 2].end == s.steps[n - 2].end - s.steps[n - 3].end;
}

// The last steps that count, and their mean: where they come round (ranks that run ahead and wait
// by turns), which of them is the last is chance.
struct Counted {
  Duration step;
  std::size_t steps = 1;
};
Counted mean_of_last(const Simulation& s, std::size_t steps) {
  const auto& all = s.steps;
  const Duration sum = all.back().end - all[all.size() - 1 - steps].end;
  return {{sum.ps / static_cast<std::int64_t>(steps)}, steps};
}
Counted counted(const Simulation& s) {
  auto back = [&](std::size_t k) { return s.steps[s.steps.size() - 1 - k].end; };
  auto alike = [&](std::size_t k, std::size_t cycle) {
    auto a = static_cast<double>((back(k) - back(k + 1)).ps);
    auto b = static_cast<double>((back(k + cycle) - back(k + cycle + 1)).ps);
    return std::abs(a - b) <= kAlikePeriods * a;
  };
  for (std::size_t cycle = 1; cycle <= kLongestCycle && 2 * cycle < s.steps.size(); ++cycle) {
    bool round = true;
    for (std::size_t k = 0; k < cycle; ++k) round = round && alike(k, cycle);
    if (round) return mean_of_last(s, cycle);
  }
  return mean_of_last(s, 1);
}

// Every rank computes as long as the slowest of them does: what others wait for it is the same.
std::vector<RankClass> classes_of(const Scenario& s, const Profile& p,
                                  const SimulationOptions& so) {
  std::vector<RankClass> classes = fold_ranks(s, so.fold_links);
  const double factor = straggling(p, s, so.level);
  for (RankClass& c : classes) c.factor *= factor;
  return classes;
}

// One before the steps that count, and these; with a step that counts alone, those before it that
// took exactly as long.
void record(Played& p) {
  const auto& steps = p.simulation.steps;
  auto duration = [&](std::size_t k) {
    return steps[k].end - (k > 0 ? steps[k - 1].end : TimePoint{0});
  };
  std::size_t from = steps.size() - p.counted;
  while (p.counted == 1 && from > 0 && duration(from - 1) == p.step) --from;
  for (std::size_t k = 0; k < steps.size(); ++k)
    if (steps[k].kind != StepKind::Steady || k + 1 >= from)
      p.steps.push_back({steps[k].kind, duration(k)});
}

void count(Played& p, const Counted& c) {
  p.step = c.step;
  p.counted = c.steps;
  const auto& parts = p.simulation.parts;
  if (parts.empty()) return;
  p.summary = analysis::mean_of(std::span(parts).last(c.steps), c.step);
  record(p);
}

void play_alone(Played& p, const Question& q, SimulationOptions so, int steady_steps) {
  const bool coordinated = p.prepared.program.coordination.has_value();
  const bool apart = p.prepared.program.servers && p.prepared.program.servers->apart();
  if (apart) so.fold_links = false;
  so.prices = p.prepared.prices.get();
  const std::vector<RankClass> classes = classes_of(q.scenario, q.profile, so);
  so.steady_steps = apart         ? steps_apart(classes, p.prepared.program.servers->staleness)
                    : coordinated ? kCoordinatedSteps
                                  : steady_steps;
  so.parts = apart                         ? kEveryStep
             : coordinated                 ? static_cast<int>(kCoordinatedCounted)
             : steady_steps > kSteadySteps ? static_cast<int>(kLongestCycle)
                                           : 1;
  p.simulation = ended(simulate(p.prepared.program, p.prepared.comm(), q.profile, classes, so));
  p.steps.clear();
  if (apart) {
    // One may have ended all of its steps before another ended any: it gets as many as it takes.
    if (const std::optional<int> more = steps_to_meet(p.simulation)) {
      const std::size_t ops = p.prepared.program.steady.ops.size() * classes.size();
      const int most = static_cast<int>(kMostAtOnce / std::max<std::size_t>(1, ops));
      so.steady_steps = std::min(*more, std::max(so.steady_steps, most));
      p.simulation = ended(simulate(p.prepared.program, p.prepared.comm(), q.profile, classes, so));
    }
    const std::vector<double> weights = counted_of(p.simulation);
    p.paces = paces_of(p.simulation, classes, weights);
    p.step = p.paces->step;
    if (!so.spans) return;
    p.summary = analysis::mean_of(p.simulation.parts, p.step, weights);
    p.counted = static_cast<std::size_t>(
        std::count_if(weights.begin(), weights.end(), [](double w) { return w > 0; }));
    p.steps.push_back({StepKind::Steady, p.step});
    return;
  }
  if (!coordinated) {
    // Three that have not settled are played again, as eight.
    if (steady_steps == kMaxSteadySteps || settled(p.simulation)) count(p, counted(p.simulation));
    return;
  }
  count(p, mean_of_last(p.simulation, kCoordinatedCounted));
  if (!p.simulation.decided) return;
  p.prepared.undecided = std::move(p.prepared.program.steady);
  p.prepared.program.steady = *p.simulation.decided;
}

void play_among_others(Played& p, const Question& q, Level level, const SimulationOptions& so,
                       const Options& options) {
  struct Other {
    Prepared prepared;
    std::vector<RankClass> classes;
  };
  std::vector<Other> others(q.scenario.other_jobs.size());
  std::vector<NeighbourJob> jobs;
  for (std::size_t k = 0; k < others.size(); ++k) {
    const OtherJob& job = q.scenario.other_jobs[k];
    Scenario theirs = scenario_of(job);
    theirs.stragglers = q.scenario.stragglers;
    Options lowered = options;
    lowered.program = nullptr;
    others[k] = {
        prepare({job.workload, q.fabric, q.profile, theirs}, level, systems::Steps::All, lowered),
        classes_of(theirs, q.profile, so)};
    jobs.push_back(
        {&others[k].prepared.program, others[k].prepared.communicator, &others[k].classes});
  }
  auto classes = classes_of(q.scenario, q.profile, so);
  SimulationOptions every = so;
  every.parts = kEveryStep;
  PlayedBeside played = play_beside({&p.prepared.program, p.prepared.communicator, &classes},
                                    q.profile, every, std::move(jobs));
  p.simulation = ended(std::move(played.simulation));
  p.beside = played.told;
  const std::size_t steps = played.told.steps;
  count(p, {played.told.mean, steps});
}

// Of a job alone whose answer is found without them: how long its first steps take.
void add_first_steps(Played& p, const Question& q, Level level, const SimulationOptions& given,
                     const Options& options) {
  const Prepared all = prepare(q, level, systems::Steps::All, options);
  if (all.program.warmup.empty()) return;
  SimulationOptions so = given;
  so.spans = false;
  so.steady_steps = 2;
  so.prices = all.prices.get();
  const std::vector<RankClass> classes = classes_of(q.scenario, q.profile, so);
  const Simulation s = ended(simulate(all.program, all.comm(), q.profile, classes, so));
  std::vector<StepRecord> first;
  TimePoint previous{0};
  for (const SimulatedStep& step : s.steps) {
    if (step.kind != StepKind::Steady) first.push_back({step.kind, step.end - previous});
    previous = step.end;
  }
  p.steps.insert(p.steps.begin(), first.begin(), first.end());
}

bool coordinated(const Question& q, const Options& options) {
  return options.program ? options.program->coordination.has_value()
                         : systems::record_of(q.scenario.plan.system).negotiates;
}

}  // namespace

Prepared prepare(const Question& q, Level level, systems::Steps steps, const Options& options) {
  Prepared r;
  r.times = step_times(options.times, q.workload, q.profile, level, gathered_in(q.scenario.plan));
  if (options.program) {
    r.program = *options.program;
    if (steps == systems::Steps::SteadyOnly) r.program.warmup.clear();
  } else {
    r.program = lowered(q, r.times, steps, level);
  }
  if (options.without) alter(*options.without, r.program, q.scenario.plan.system);
  if (q.scenario.input && !options.program) systems::feed(r.program, batch_times(q, level));
  r.communicator = &options.known->get(q, r.program);
  r.prices = std::make_unique<Prices>(r.comm(), q.profile, level);
  return r;
}

SimulationOptions simulation_options(const Question& q, Level level, const Options& options) {
  SimulationOptions so;
  so.fidelity = options.fidelity;
  so.level = level;
  so.fold_links = options.fold && options.fidelity == Fidelity::Collective &&
                  !q.scenario.real_compute && !goes_apart(q.scenario.plan);
  so.real_compute = q.scenario.real_compute;
  so.common_start = options.common_start;
  so.graph = options.graph;
  return so;
}

Options keeping(const Options& options, Kept& own) {
  Options out = options;
  if (!out.known) out.known = &own.known;
  if (!out.graph) out.graph = &own.graph;
  return out;
}

Simulation ended(Simulation s) {
  if (!s.complete) throw std::logic_error("the simulation came to a standstill");
  return s;
}

Played play(const Question& q, Level level, const Options& options, bool spans) {
  SimulationOptions so = simulation_options(q, level, options);
  so.spans = spans;
  so.names = options.names;
  Played p;
  if (!q.scenario.other_jobs.empty()) {
    p.prepared = prepare(q, level, systems::Steps::All, options);
    play_among_others(p, q, level, so, options);
    return p;
  }
  if (options.fidelity == Fidelity::Collective && !coordinated(q, options)) {
    p.prepared = prepare(q, level, systems::Steps::SteadyOnly, options);
    play_alone(p, q, so, kSteadySteps);
    if (p.paces || settled(p.simulation)) {
      if (options.warmup && spans) add_first_steps(p, q, level, so, options);
      return p;
    }
  }
  // What steps that do not settle at once come to depends on how they began.
  p.prepared = prepare(q, level, systems::Steps::All, options);
  play_alone(p, q, so, kSteadySteps);
  if (!p.paces && !settled(p.simulation) && !p.prepared.program.coordination)
    play_alone(p, q, so, kMaxSteadySteps);
  return p;
}

}  // namespace ddpsim::predict
