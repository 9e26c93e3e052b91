// The step of an answer is found by steady.h; here is what is said of it.
#include "sim/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/collective/backend/sockets.h"
#include "sim/cost/roofline.h"
#include "sim/model/gpu_name.h"
#include "sim/model/version.h"
#include "sim/play/prices.h"
#include "sim/play/staleness.h"
#include "sim/predict/joint_spread.h"
#include "sim/predict/known_times.h"
#include "sim/predict/left_out.h"
#include "sim/predict/link_use.h"
#include "sim/predict/lowered.h"
#include "sim/predict/measured_step.h"
#include "sim/predict/mechanisms.h"
#include "sim/predict/memory.h"
#include "sim/predict/message_range.h"
#include "sim/predict/steady.h"
#include "sim/predict/step_error.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/knobs.h"
#include "sim/topology/survey.h"
#include "sim/units/convert.h"
#include "sim/units/random.h"

namespace ddpsim::predict {
namespace {

Options steady_only(Options options) {
  options.warmup = false;
  return options;
}

// Sum of 12 uniforms less 6: standard normal to 2 % in the tails that matter here, without exp or
// log.
double normal(SplitMix64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

// A rank's compute is slower or faster by one factor for a whole step. Within a step the slowest
// member of a class is the one that every collective waits for; that the others may start the next
// step earlier is left out. The first step of a stretch only leads to the next.
std::vector<Duration> play_jitter(const Prepared& r, const Question& q, Level level,
                                  const Options& options) {
  const Jitter& j = *q.scenario.jitter;
  Program program = r.program;
  if (r.undecided) program.steady = *r.undecided;
  SimulationOptions so = simulation_options(q, level, options);
  auto classes = fold_ranks(q.scenario, so.fold_links);
  so.spans = false;
  so.warmup = false;
  SplitMix64 random{j.seed};
  std::vector<double> factors(q.scenario.ranks);
  const std::size_t of_a_step =
      std::max<std::size_t>(1, r.program.steady.ops.size() * classes.size());
  const int stretch =
      static_cast<int>(std::clamp<std::size_t>(kMostAtOnce / of_a_step, 2, 1'000'000));
  std::vector<Duration> out;
  while (std::ssize(out) < j.samples) {
    so.steady_steps = std::min(stretch, j.samples - static_cast<int>(out.size()) + 1);
    for (RankClass& c : classes) c.step_factors.clear();
    for (int k = 0; k < so.steady_steps; ++k) {
      for (double& f : factors) f = std::max(1 + j.cv * normal(random), 0.05);
      for (RankClass& c : classes) {
        double worst = 0;
        for (int rank : c.ranks) worst = std::max(worst, factors[rank]);
        c.step_factors.push_back(worst);
      }
    }
    Simulation s = ended(simulate(program, r.comm(), q.profile, classes, so));
    for (std::size_t k = 1; k < s.steps.size(); ++k)
      out.push_back(s.steps[k].end - s.steps[k - 1].end);
  }
  return out;
}

// REQUIRES: not empty.
Duration mean(const std::vector<Duration>& steps) {
  Duration sum;
  for (Duration d : steps) sum += d;
  return {sum.ps / std::ssize(steps)};
}

// A step that is a round has an update a batch.
StepTimes of_round(const Plan& plan, StepTimes t) {
  auto* const updates = systems::record_of(plan.system).updates;
  if (!updates) return t;
  t.optimizer = t.optimizer * updates(plan);
  if (t.host) t.host->optimizer = t.host->optimizer * updates(plan);
  return t;
}

Duration work_of_others(const Question& q, const StepTimes& t) {
  auto* const work = systems::record_of(q.scenario.plan.system).work_of_others;
  return work ? work(q.workload, t, q.scenario.ranks) : Duration{};
}

// On the fastest rank.
Duration single_rank_step(const Question& q, const StepTimes& t) {
  bool all_named = std::ssize(q.scenario.slow_ranks) == q.scenario.ranks;
  double fastest = all_named ? 1e300 : 1;
  for (const auto& [rank, factor] : q.scenario.slow_ranks) fastest = std::min(fastest, factor);
  const int micro_steps = q.scenario.plan.accumulation_steps;
  StepTimes fed = of_round(q.scenario.plan, t);
  if (!q.scenario.input) return one_rank_step(fed, micro_steps, fastest);
  const systems::BatchTimes batch = batch_times(q);
  fed.forward += scale(batch.copied, 1 / fastest);
  return std::max(one_rank_step(fed, micro_steps, fastest), batch.made * micro_steps);
}

// Whether computation takes what it takes; on emulated hosts it may be slept to the picosecond.
bool computes(const Question& q) {
  return q.scenario.real_compute || q.fabric.cluster().emulated_on_cores == 0;
}

// The interval of the step and of the efficiency. Executed steps that a profile was held to, or
// published ones of a family, say better how far they were off than the spread of parts does; of
// how a capture's passes varied they say nothing. Where messages cost what they did on one occasion
// or another, that error is on either side of what the step takes with the least and most of it.
void find_interval(const Question& q, const Options& options, Prediction& out) {
  Duration step = out.summary.step;
  MessageRange seen{step, step, {}};
  if (auto range = message_range(q, step, options)) seen = std::move(*range);
  if (!seen.sentence.empty()) out.extrapolated.push_back(std::move(seen.sentence));
  out.step_low = seen.low;
  out.step_high = seen.high;
  double efficiency = fraction(out.single_rank_step, seen.low);
  out.efficiency_low = fraction(out.single_rank_step, seen.high);
  out.efficiency_high = efficiency;
  double residual = q.profile.step_residual;
  if (residual > 0) {
    out.step_low = scale(seen.low, 1 - residual);
    out.step_high = scale(seen.high, 1 + residual);
    out.efficiency_low /= 1 + residual;
    out.efficiency_high = std::max(efficiency, std::min(1.0, efficiency / (1 - residual)));
  }
  if (residual > 0 ? !interval_from_levels(q) : !options.interval) return;
  Profile joint = with_joint_spread(q.workload, q.profile, q.scenario.ranks);
  if (const StepError* family = step_error(q)) joint = widened(q, *family, out);
  Question together{q.workload, q.fabric, joint, q.scenario};
  for (Level level : {Level::High, Level::Low}) {
    Duration end = steady_period(together, level, options);
    out.step_low = std::min(out.step_low, end);
    out.step_high = std::max(out.step_high, end);
    double there = fraction(single_rank_step(together, step_times(q.workload, joint, level,
                                                                  gathered_in(q.scenario.plan))),
                            end);
    out.efficiency_low = std::min(out.efficiency_low, there);
    out.efficiency_high = std::max(out.efficiency_high, there);
    // Of which computation's range cancels, and that of ranks does not.
    double by_ranks = efficiency * straggling(q.profile, q.scenario, Level::Mid) /
                      straggling(q.profile, q.scenario, level);
    out.efficiency_low = std::min(out.efficiency_low, by_ranks);
    out.efficiency_high = std::max(out.efficiency_high, by_ranks);
  }
}

LinkUse busiest_link(const Prepared& r, const Question& q, Duration step) {
  LinkUse best;
  for (const LinkBusy& l : link_use(r.program, r.comm(), q.profile, step, *r.prices))
    if (l.busy > best.busy * (1 + 1e-9))
      best = {q.fabric.link_name(l.link), q.fabric.links()[l.link].bandwidth, l.busy};
  return best;
}

// Why this workload's times are none of the question's devices; "" = they may be. An emulated GPU
// takes as long as the workload says, whatever it was captured on.
std::string workload_problem(const Workload& w, const Question& q) {
  if (auto m = roofline_problem(w, q.profile, gathered_in(q.scenario.plan)); !m.empty()) return m;
  bool timed = w.basis == Basis::Captured && w.device == DeviceKind::Gpu;
  if (!timed || q.fabric.cluster().emulated_on_cores > 0) return {};
  if (!names_differ(w.device_name, q.profile.hardware)) return {};
  return "workload \"" + w.name + "\" was captured on a GPU named " + w.device_name +
         ", but profile \"" + q.profile.name + "\" is of " + q.profile.hardware +
         "; its times cannot be carried over (capture it there, or use a described workload, which "
         "ddpsim describe writes)";
}

// Of a step whose reductions are decided while it is played the changes are those of the step as it
// was lowered, in the host's order.
void find_memory(const Question& q, const Prepared& r, const Options& options, Prediction& out) {
  Program lowered;
  const Program* program = &r.program;
  std::span<const Span> spans(out.run.spans);
  if (r.undecided) {
    lowered = r.program;
    lowered.steady = *r.undecided;
    program = &lowered;
    spans = {};
  }
  Memory m = memory_of(q, *program, r.comm(), spans);
  if (!m.fits()) {
    std::string fit = options.names ? in_words(what_fits(q, options)) : "";
    if (!fit.empty()) fit = "; it would with " + fit;
    out.extrapolated.push_back("it does not fit: " + to_string(Bytes{m.device}) +
                               " at the peak, in " + m.phase + ", and the device has " +
                               to_string(Bytes{m.capacity}) + fit);
  }
  if (!m.mixed_units.empty()) out.extrapolated.push_back(m.mixed_units);
  out.memory = std::move(m);
}

void fill_run(const Question& q, const Options& options, Played& played, Run& run) {
  const Prepared& r = played.prepared;
  Simulation& s = played.simulation;
  run.simulator_version = kVersion;
  run.profile = q.profile.name;
  run.fidelity = name_of(options.fidelity);
  if (options.names) {
    run.tensor_names = r.program.tensor_names;
    run.tensor_bytes = r.program.tensor_bytes;
  }
  run.steps = played.steps;
  run.spans = std::move(s.spans);
  for (Span& span : run.spans) span.step = static_cast<int>(run.steps.size()) - 1;
  run.spans_from = s.spans_from;
  run.streams = r.program.streams;
}

// How much longer the rank of the summary computes than it would undisturbed.
// REQUIRES: the summary is there.
void find_slowed(const Question& q, const StepTimes& times, Prediction& out) {
  double slowest = 1;
  if (auto it = q.scenario.slow_ranks.find(out.summary.actor); it != q.scenario.slow_ranks.end())
    slowest = it->second;
  Duration undisturbed = scale((times.forward + times.backward + work_of_others(q, times)) *
                                       q.scenario.plan.accumulation_steps +
                                   of_round(q.scenario.plan, times).optimizer + times.loop,
                               slowest);
  const Duration computed = out.summary.forward + out.summary.backward + out.summary.optimizer;
  const double straggle = straggling(q.profile, q.scenario, Level::Mid);
  const Duration as_slowest = scale(undisturbed, straggle);
  out.slowed = std::max(Duration{}, computed - as_slowest);
  if (straggle > 1)
    out.stragglers = {q.scenario.ranks, q.profile.rank_cv->mid, straggle, as_slowest - undisturbed};
}

// Sentences that a reader of the prediction has to know. REQUIRES: the summary is there.
void add_sentences(const Question& q, const Prepared& r, const Options& options, Prediction& out) {
  if (std::string nics = topology::unused_nics_sentence(q.fabric, devices_of(q.scenario));
      !nics.empty())
    out.extrapolated.push_back(std::move(nics));
  out.extrapolated.insert(out.extrapolated.end(), q.profile.unknown.begin(),
                          q.profile.unknown.end());
  if (r.program.backend == Backend::Nccl && q.scenario.ranks > 1 && !nccl_group(r.comm()))
    out.extrapolated.push_back(
        "the profile names no compute capability, so NCCL's choice is not known: a ring, at the "
        "profile's own latencies");
  if (auto* const warnings = systems::record_of(q.scenario.plan.system).warnings)
    for (std::string& warning : warnings(q.scenario.plan))
      out.extrapolated.push_back(std::move(warning));
  // A Program that is given says itself what its servers take.
  if (const auto servers = servers_of(q.scenario.plan);
      servers && !server_memory(q, *servers, Level::Mid))
    out.extrapolated.push_back(
        "what servers take to sum and to update is left out: cluster \"" + q.fabric.cluster().name +
        "\" does not say its hosts' memory (--set cluster.host_memory=300GB/s)");
  if (by_sockets(r.comm()))
    if (std::string assumed = collective::socket_assumptions(q.profile); !assumed.empty())
      out.extrapolated.push_back(std::move(assumed));
  std::string one_occasion = seen_on_one_occasion(q, out.summary.step, options);
  if (!one_occasion.empty()) out.extrapolated.push_back(std::move(one_occasion));
  if (out.beside && !out.beside->complete)
    out.extrapolated.push_back(
        "steps of this job and of another differ too much to simulate two of the longer with all "
        "of the shorter: what they share is in this number only in part");
  for (std::string& left : what_is_left_out(q.workload, q.scenario.plan))
    out.extrapolated.push_back(std::move(left));
}

}  // namespace

// Made and copied ahead, batches take what the slower of the two takes.
systems::BatchTimes batch_times(const Question& q, Level level) {
  const InputPipeline& in = *q.scenario.input;
  systems::BatchTimes out;
  if (in.samples_per_s > 0) out.made = {ceil_ps(q.workload.batch, per_ps(in.samples_per_s))};
  if (in.bytes_per_sample == 0) return out;
  const Duration copy = host_memory(q, level).copy(in.bytes_per_sample * q.workload.batch);
  if (in.ahead)
    out.made = std::max(out.made, copy);
  else
    out.copied = copy;
  return out;
}

const char* name_of(Fidelity f) {
  return f == Fidelity::Collective ? "collective" : "message";
}

Problem check(const Question& q, Communicators* known) {
  if (auto m = workload_problem(q.workload, q); !m.empty()) return {"/workload", m};
  if (auto p = validate(q.scenario.plan, q.workload, q.profile.kind)) return p;
  if (auto p = validate(q.scenario, q.fabric.devices())) return p;
  if (q.scenario.ranks > 1)
    if (auto m = collective::missing_transport(q.fabric, q.profile); !m.empty())
      return {"/cluster", "the cluster uses transport \"" + m + "\", which profile \"" +
                              q.profile.name + "\" does not have"};
  for (std::size_t k = 0; k < q.scenario.other_jobs.size(); ++k) {
    const OtherJob& job = q.scenario.other_jobs[k];
    std::string path = "/other_jobs/" + std::to_string(k);
    if (auto m = workload_problem(job.workload, q); !m.empty()) return {path + "/workload", m};
    if (auto p = validate(job.plan, job.workload, q.profile.kind))
      return {path + p.path, p.message};
    if (auto p = topology::check_reachable(q.fabric, job.rank_order)) return p;
    if (auto p = check_nccl(job.plan, q, job.rank_order, known)) return {path + p.path, p.message};
  }
  if (auto p = topology::check_reachable(q.fabric, devices_of(q.scenario))) return p;
  if (auto p = check_servers(q)) return p;
  const systems::SystemRecord& system = systems::record_of(q.scenario.plan.system);
  if (system.on_several_hosts && !topology::on_one_host(q.fabric, devices_of(q.scenario)))
    return {"/ranks", std::string(system.title) +
                          " is one process, which has the GPUs of one host: at most " +
                          std::to_string(q.fabric.cluster().devices_per_host) + " ranks here (" +
                          system.on_several_hosts + " trains on several hosts)"};
  if (system.check)
    if (auto p = system.check(q.scenario.plan, q.workload, q.profile.kind, q.scenario.ranks,
                              q.fabric.cluster().devices_per_host))
      return p;
  if (stages_collectives(q.scenario.plan, q.profile.kind) &&
      q.fabric.cluster().emulated_on_cores > 0)
    return {"/plan/backend",
            "gloo with CUDA tensors is modelled on GPUs of their own hosts, and this cluster "
            "emulates them; leave backend out"};
  if (auto p = check_host_memory(q)) return p;
  return check_nccl(q.scenario.plan, q, devices_of(q.scenario), known);
}

std::optional<std::pair<int, double>> slowest_rank(const Scenario& s) {
  constexpr double kNoticed = 1.02;
  double fastest = std::ssize(s.slow_ranks) == s.ranks ? 1e300 : 1;
  std::optional<std::pair<int, double>> slowest;
  for (const auto& [rank, factor] : s.slow_ranks) {
    fastest = std::min(fastest, factor);
    if (!slowest || factor > slowest->second) slowest = {rank, factor};
  }
  return slowest && slowest->second > kNoticed * fastest ? slowest : std::nullopt;
}

bool interval_from_levels(const Question& q) {
  const StepTimes& t = q.workload.times;
  bool varied = q.workload.basis == Basis::Captured && !q.workload.measured_step &&
                (t.quick < 1 || t.slow > 1);
  // Which exchanges of threads that negotiate take turns is chance: no step that a profile was held
  // to says it.
  const bool chance = systems::record_of(q.scenario.plan.system).negotiates &&
                      backend_of(q.scenario.plan, q.fabric.cluster().device) == Backend::Mpi;
  return q.profile.step_residual <= 0 || (varied && computes(q)) || chance;
}

Duration steady_period(const Question& q, Level level, const Options& given) {
  Kept own;
  const Options options = steady_only(keeping(given, own));
  if (!options.jitter || !q.scenario.jitter) return play(q, level, options, false).step;
  return mean(
      play_jitter(prepare(q, level, systems::Steps::SteadyOnly, options), q, level, options));
}

SteadyStep steady_step(const Question& q, Level level, const Options& given) {
  Kept own;
  Played p = play(q, level, steady_only(keeping(given, own)), true);
  return {std::move(p.prepared.program), std::move(p.simulation), p.step, std::move(p.summary),
          p.counted};
}

Prediction predict(const Question& q, const Options& given) {
  Prediction out;
  Kept own;
  const Options options = keeping(given, own);
  Played played = play(q, Level::Mid, options, true);
  const Prepared& r = played.prepared;
  fill_run(q, options, played, out.run);
  out.summary = std::move(played.summary);
  out.counted = played.counted;
  out.beside = played.beside;
  out.paces = played.paces;
  Duration step = out.summary.step;
  if (q.scenario.jitter) out.jitter_steps = play_jitter(r, q, Level::Mid, options);
  Duration typical = out.jitter_steps.empty() ? step : mean(out.jitter_steps);
  const std::int64_t with_inputs = q.scenario.ranks - ranks_without_inputs(q.scenario.plan);
  double samples = static_cast<double>(q.workload.batch) * q.scenario.plan.accumulation_steps *
                   static_cast<double>(with_inputs);
  out.samples_per_s = samples / seconds(typical);
  find_slowed(q, r.times, out);
  out.clock = r.times.clock;
  out.single_rank_step = single_rank_step(q, r.times);
  constexpr Duration kLeast =
      kMicrosecond;  // of computation: not even a kernel's launch is as short
  bool idle = r.times.forward + r.times.backward < kLeast;
  out.scaling_efficiency = idle ? 0 : fraction(out.single_rank_step, typical);
  find_interval(q, options, out);
  for (double* e : {&out.efficiency_low, &out.efficiency_high}) *e *= fraction(step, typical);
  if (!options.program) find_memory(q, r, options, out);
  out.measured_step = q.workload.measured_step;
  if (out.measured_step)
    if (std::string why = doubt(*out.measured_step); !why.empty())
      out.extrapolated.push_back(std::move(why));
  out.measured = q.profile.measured();
  out.fitted = q.profile.step_residual > 0;
  out.common_start = options.common_start;
  if (q.scenario.ranks > 1 || r.program.servers) out.busiest_link = busiest_link(r, q, step);
  add_sentences(q, r, options, out);
  return out;
}

}  // namespace ddpsim::predict
