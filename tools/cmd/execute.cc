// ddpsim run: plays a scenario for real, and says what was measured beside what was predicted. ddpsim calibrate: measures links and collectives.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <ostream>

#include "calib/calibrate.h"
#include "calib/execute.h"
#include "sim/analysis/compare.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct Flags {
  QuestionFlags question;
  OutputFlags output;
  std::string backend = "tcp";
  std::string compute = "timed";
  std::string runs;
  std::string revision;
  std::string split;
  int steps = 0;
  bool loopback = false;
};

struct CalibrateFlags {
  QuestionFlags question;
  OutputFlags output;
  std::string backend = "tcp";
  std::string runs;
  std::string revision;
  bool loopback = false;
};

void prepare_runs(const std::string& folder) {
  io::make_folder(folder + "/scenarios");
  io::remove_stale_temporaries(folder);  // of a run that was killed while it wrote
  io::remove_stale_temporaries(folder + "/scenarios");
}

void add_to_runs(const std::string& folder, const std::string& prefix, const Loaded& l, const Run& run) {
  io::write_file(folder + "/scenarios/" + l.scenario_hash + ".json", l.document.dump(1) + "\n");
  std::string day = run.origin.date;
  std::erase_if(day, [](char c) { return c == '-' || c == ':'; });
  io::write_file(fmt::format("{}/{}-{}-{}.json.gz", folder, prefix, l.scenario_hash, day), io::write_run(run).dump() + "\n");
}

// So that a step's steady state is seen about 6 times, and short steps more often.
int steps_for(Duration step) {
  double seconds = static_cast<double>(step.ps) / 1e12;
  return std::clamp(static_cast<int>(std::lround(2.5 / std::max(seconds, 1e-3))), 6, 12);
}

std::string page(const Loaded& l, const Run& run, const predict::Prediction& p, bool mean) {
  auto ms = [](Duration d) { return fmt::format("{:.2f} ms", static_cast<double>(d.ps) / 1e9); };
  Duration measured = analysis::typical_step(run, mean);
  std::string out = fmt::format("{}\n", l.key);
  out += fmt::format("measured   {}  ({} steady steps, spread {:.2f} %, {})\n", ms(measured), std::count_if(run.steps.begin(), run.steps.end(), [](const StepRecord& s) { return s.kind == StepKind::Steady; }),
                     100 * run.quality.spread, run.quality.verdict == Verdict::Clean ? "clean" : "NOISY");
  for (const std::string& why : run.quality.reasons) out += "           " + why + "\n";
  out += fmt::format("predicted  {}  ({:+.2f} %; profile {})\n", ms(p.summary.step), 100 * (static_cast<double>(p.summary.step.ps) / static_cast<double>(measured.ps) - 1), l.profile.name);
  out += run.origin.hosts == "namespaces" ? "hosts      network namespaces, every link shaped\n" : fmt::format("hosts      plain loopback, NOT shaped: {}\n", run.origin.reason);
  return out;
}

void run_command(Terminal& t, Flags flags) {
  if (flags.backend != "tcp") throw InputError{"--backend " + flags.backend, "this build runs tcp (ddpsim's own executor over shaped hosts)"};
  if (flags.compute != "timed" && flags.compute != "real") throw InputError{"--compute " + flags.compute, "expected timed or real"};
  if (!flags.split.empty() && flags.split != "fit" && flags.split != "held_out") throw InputError{"--split " + flags.split, "expected fit or held_out"};
  if (flags.steps != 0 && (flags.steps < 2 || flags.steps > 64)) throw InputError{"--steps " + std::to_string(flags.steps), "2 to 64 steady steps"};
  flags.question.sets.insert(flags.question.sets.begin(), "plan.backend=tcp");
  if (flags.compute == "real") flags.question.sets.push_back("compute=real");
  Loaded l = load(t, flags.question);
  for (const OtherJob& job : l.scenario.other_jobs)
    if (backend_of(job.plan, l.cluster.device) != Backend::Tcp) throw InputError{"other_jobs", "every job's plan needs \"backend\": \"tcp\" to be run by it"};
  predict::Prediction p = predict::predict(l.question(), l.options);
  calib::ExecuteOptions options;
  options.steady_steps = flags.steps != 0 ? flags.steps : steps_for(p.summary.step);
  options.real_compute = l.scenario.real_compute;
  options.loopback = flags.loopback;
  // Each other job plays until this one is done, even if both slow one another down as much as they can.
  for (const OtherJob& job : l.scenario.other_jobs) {
    Scenario theirs = scenario_of(job);
    double alone = static_cast<double>(predict::steady_period({job.workload, *l.fabric, l.profile, theirs}).ps);
    options.other_steps.push_back(3 + static_cast<int>(1.5 * (options.steady_steps + 3) * static_cast<double>(p.summary.step.ps) / std::max(alone, 1.0)));
  }
  options.timeout_s = 60 + 10 * static_cast<double>(p.summary.step.ps) / 1e12 * (options.steady_steps + 4);
  if (!flags.runs.empty()) prepare_runs(flags.runs);
  Run run;
  try {
    run = calib::execute(l.question(), options);
  } catch (const std::runtime_error& e) {
    throw InputError{"run", e.what()};
  }
  run.key = l.key;
  run.scenario = l.scenario_hash;
  run.workload = l.workload_hash;
  run.split = flags.split;
  run.origin.argv = {"ddpsim", "run", "--backend", flags.backend, "--compute", flags.compute};
  run.origin.revision = flags.revision;
  std::string json = io::write_run(run).dump() + "\n";
  if (!flags.runs.empty()) add_to_runs(flags.runs, run.origin.compute == "real" ? "real" : "tcp", l, run);
  bool mean = !l.scenario.other_jobs.empty();
  if (flags.output.format == "json") return write_answer(t, flags.output, json);
  if (!flags.output.out.empty()) write_answer(t, flags.output, json);
  t.out << page(l, run, p, mean) << std::flush;
}

// Each link from the streams: bandwidth is the slope of the two largest, burst what the largest had for nothing.
std::string links_table(const Run& run) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::map<std::int64_t, double>> streams;
  std::map<std::pair<std::int64_t, std::int64_t>, double> pings;
  for (const Sample& s : run.samples) {
    if (s.op != "stream" && s.op != "ping") continue;
    std::vector<double> seconds;
    for (Duration d : s.durations) seconds.push_back(static_cast<double>(d.ps) / 1e12);
    std::pair way{s.parameters.at("from"), s.parameters.at("to")};
    (s.op == "ping" ? pings[way] : streams[way][s.parameters.at("bytes")]) = analysis::median(seconds);
  }
  std::string out;
  for (const auto& [way, by_bytes] : streams) {
    if (by_bytes.size() < 2) continue;
    auto large = by_bytes.rbegin();
    auto next = std::next(large);
    double rate = static_cast<double>(large->first - next->first) / (large->second - next->second);
    double burst = std::max(0.0, static_cast<double>(large->first) - rate * large->second);
    out += fmt::format("host{} -> host{}: goodput {:.1f} Mb/s, burst about {:.0f} KiB, one byte {:.1f} us\n", way.first, way.second, rate * 8 / 1e6, burst / 1024, pings[way] * 1e6);
  }
  return out;
}

void calibrate_command(Terminal& t, const CalibrateFlags& flags) {
  if (flags.backend != "tcp") throw InputError{"--backend " + flags.backend, "this build calibrates tcp (links and collectives of hosts of this machine)"};
  QuestionFlags question = flags.question;
  question.sets.insert(question.sets.begin(), "plan.backend=tcp");
  if (question.workload.empty()) question.workload = "mlp784-50-10-cpu";  // only the cluster matters
  Loaded l = load(t, question);
  if (!flags.runs.empty()) prepare_runs(flags.runs);
  calib::CalibrateOptions options;
  options.loopback = flags.loopback;
  Run run;
  try {
    run = calib::calibrate(*l.fabric, options);
  } catch (const std::runtime_error& e) {
    throw InputError{"calibrate", e.what()};
  }
  run.key = "calibrate@" + l.cluster.name + "/n" + std::to_string(l.scenario.ranks);
  run.scenario = l.scenario_hash;
  run.origin.argv = {"ddpsim", "calibrate", "--backend", flags.backend};
  run.origin.revision = flags.revision;
  if (!flags.runs.empty()) add_to_runs(flags.runs, "collectives", l, run);
  std::string json = io::write_run(run).dump() + "\n";
  if (flags.output.format == "json") return write_answer(t, flags.output, json);
  if (!flags.output.out.empty()) write_answer(t, flags.output, json);
  for (const Sample& s : run.samples) {
    std::vector<double> us;
    for (Duration d : s.durations) us.push_back(static_cast<double>(d.ps) / 1e6);
    std::string what;
    for (const auto& [name, value] : s.parameters) what += fmt::format(" {}={}", name, value);
    t.out << fmt::format("{:<10}{:<32} median {:>12.1f} us  p90 {:>12.1f} us  ({} samples)\n", s.op, what, analysis::median(us), analysis::percentile(us, 90), us.size());
  }
  t.out << "\n" << links_table(run);
  t.out << (run.origin.hosts == "namespaces" ? std::string("hosts: network namespaces, every link shaped\n") : fmt::format("hosts: plain loopback, NOT shaped: {}\n", run.origin.reason));
}

}  // namespace

void add_calibrate(CLI::App& app, Terminal& t) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* c = app.add_subcommand("calibrate", "Measure links and collectives on hosts of this machine");
  add_question_flags(*c, flags->question);
  add_output_flags(*c, flags->output, {"table", "json"});
  c->add_option("--backend", flags->backend, "tcp: links and collectives over shaped network namespaces");
  c->add_option("--runs", flags->runs, "folder of Runs: adds the Run and its scenario there");
  c->add_option("--revision", flags->revision, "git revision to note in the Run");
  c->add_flag("--loopback", flags->loopback, "make no hosts: plain loopback, not shaped");
  c->callback([&t, flags] { calibrate_command(t, *flags); });
}

void add_run(CLI::App& app, Terminal& t) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("run", "Execute a scenario on hosts of this machine, and show it beside its prediction");
  add_question_flags(*c, flags->question);
  add_output_flags(*c, flags->output, {"table", "json"});
  c->add_option("--backend", flags->backend, "tcp: ddpsim's own executor, a process per rank, real TCP over shaped network namespaces");
  c->add_option("--compute", flags->compute, "timed (computation is slept) or real (it keeps a core busy)");
  c->add_option("--steps", flags->steps, "steady steps to play; default by the predicted step, 6 to 12");
  c->add_option("--runs", flags->runs, "folder of Runs: adds the Run and its scenario there");
  c->add_option("--revision", flags->revision, "git revision to note in the Run");
  c->add_option("--split", flags->split, "fit or held_out: whether a fit may see this Run; decide before you look at it");
  c->add_flag("--loopback", flags->loopback, "make no hosts: plain loopback, not shaped");
  c->callback([&t, flags] { run_command(t, *flags); });
}

}  // namespace ddpsim::cli
