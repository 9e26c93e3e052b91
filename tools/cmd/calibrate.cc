// ddpsim calibrate: measures links, sums and collectives on hosts of this machine.
#include "calib/calibrate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ostream>
#include <stdexcept>

#include "sim/analysis/compare.h"
#include "tools/cmd/executed.h"

namespace ddpsim::cli {
namespace {

using Flags = ExecutedFlags;

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

Run calibrate_tcp(const Loaded& l, const Flags& flags) {
  calib::CalibrateOptions options;
  options.loopback = flags.loopback;
  return calib::calibrate(*l.fabric, options);
}

Run calibrate_torch(const Terminal& t, const Loaded& l, const Flags& flags) {
  Run run = run_script(t, l, flags, "ddpsim_calibrate.py");
  run.evidence = EvidenceClass::Collective;
  return run;
}

void calibrate_command(Terminal& t, const Flags& flags) {
  bool torch = flags.backend == "torch";
  if (flags.backend != "tcp" && !torch)
    throw InputError{"--backend " + flags.backend, "this build calibrates tcp (links and collectives of hosts of this machine) and torch (PyTorch's collectives and DDP's own work there)"};
  QuestionFlags question = flags.question;
  question.sets.insert(question.sets.begin(), torch ? "plan.backend=gloo" : "plan.backend=tcp");
  if (question.workload.empty()) question.workload = "mlp784-50-10-cpu";  // only the cluster matters
  Loaded l = load(t, question);
  if (!flags.runs.empty()) prepare_runs(flags.runs);
  Run run;
  try {
    run = torch ? calibrate_torch(t, l, flags) : calibrate_tcp(l, flags);
  } catch (const std::runtime_error& e) {
    throw InputError{"calibrate", e.what()};
  }
  run.key = "calibrate@" + l.cluster.name + "/n" + std::to_string(l.scenario.ranks);
  run.scenario = l.scenario_hash;
  run.origin.argv = {"ddpsim", "calibrate", "--backend", flags.backend};
  run.origin.revision = flags.revision;
  if (!flags.runs.empty()) add_to_runs(flags.runs, torch ? "torch-collectives" : "collectives", l, run);
  std::string json = io::write_run(run).dump() + "\n";
  if (flags.output.format == "json") return write_answer(t, flags.output, json);
  if (!flags.output.out.empty()) write_answer(t, flags.output, json);
  for (const Sample& s : run.samples) {
    std::vector<double> us;
    for (Duration d : s.durations) us.push_back(static_cast<double>(d.ps) / 1e6);
    std::string what;
    for (const auto& [name, value] : s.parameters) what += fmt::format(" {}={}", name, value);
    t.out << fmt::format("{:<15}{:<40} median {:>12.1f} us  p90 {:>12.1f} us  ({} samples)\n", s.op, what, analysis::median(us), analysis::percentile(us, 90), us.size());
  }
  t.out << "\n" << links_table(run);
  t.out << (run.origin.hosts == "namespaces" ? std::string("hosts: network namespaces, every link shaped\n") : fmt::format("hosts: plain loopback, NOT shaped: {}\n", run.origin.reason));
}

}  // namespace

void add_calibrate(CLI::App& app, Terminal& t) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("calibrate", "Measure links and collectives on hosts of this machine");
  add_executed_flags(*c, *flags, "tcp: links and collectives over shaped network namespaces; torch: PyTorch's collectives there, and DDP's own work");
  c->callback([&t, flags] { calibrate_command(t, *flags); });
}

}  // namespace ddpsim::cli
