#include "tools/cmd/calibrate_collectives.h"

#include <ostream>
#include <stdexcept>

#include <fmt/format.h>

#include "calib/collectives.h"
#include "calib/gloo/gloo.h"
#include "calib/interrupt.h"
#include "calib/mpi.h"
#include "sim/analysis/compare.h"
#include "sim/play/alone.h"

namespace ddpsim::cli {
namespace {

Algorithm read_algorithm(const std::string& name) {
  std::vector<std::string> known;
  for (Algorithm a : kTcpAlgorithms) known.push_back(name_of(a));
  if (std::find(known.begin(), known.end(), name) != known.end()) return *parse_algorithm(name);
  std::string near = io::nearest(name, known);
  throw InputError{"--algorithms " + name,
                   fmt::format("expected one of {}{}", fmt::join(known, ", "),
                               near.empty() ? "" : " (did you mean " + near + "?)")};
}

std::vector<std::int64_t> read_sizes(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> out;
  for (const std::string& text : texts) {
    auto bytes = parse_bytes(text);
    if (!bytes.value) throw InputError{"--sizes " + text, bytes.error};
    if (bytes.value->count < 4 || bytes.value->count > 1024 * kMiB)
      throw InputError{"--sizes " + text, "4B to 1024MiB"};
    out.push_back(bytes.value->count / 4 * 4);
  }
  if (out.empty())
    for (std::int64_t b = 4 * kKiB; b <= 16 * kMiB; b *= 4) out.push_back(b);
  return out;
}

}  // namespace

void calibrate_collectives(Terminal& t, const CalibrateFlags& flags) {
  std::vector<Algorithm> algorithms;
  bool gloo = flags.backend == "gloo";
  for (const std::string& name : flags.algorithms) algorithms.push_back(read_algorithm(name));
  if (algorithms.empty() && gloo) algorithms = {Algorithm::Ring, Algorithm::Bcube};
  if (algorithms.empty()) algorithms.assign(kTcpAlgorithms.begin(), kTcpAlgorithms.end());
  for (Algorithm a : algorithms)
    if (gloo && a != Algorithm::Ring && a != Algorithm::Bcube)
      throw InputError{std::string("--algorithms ") + name_of(a), "Gloo has ring and bcube"};
  calib::CollectiveOptions options;
  options.bytes = read_sizes(flags.sizes);
  options.repetitions = flags.repetitions;
  options.loopback = flags.loopback;
  if (!flags.runs.empty()) prepare_runs(flags.runs);
  io::OrderedJson all = io::OrderedJson::array();
  std::string table;
  for (Algorithm a : algorithms) {
    if (calib::interrupted()) break;
    QuestionFlags question = flags.question;
    std::vector<std::string> sets{"plan.backend=" + flags.backend};
    if (a != Algorithm::Ring)
      sets.push_back(std::string(gloo ? "plan.gloo_algorithm=" : "plan.algorithm=") + name_of(a));
    question.sets.insert(question.sets.begin(), sets.begin(), sets.end());
    if (question.workload.empty())
      question.workload = "mlp784-50-10-cpu";  // only the cluster matters
    Loaded l = load(t, question);
    Run run;
    try {
      run = gloo ? calib::gloo_library::measure_all_reduce(*l.fabric, devices_of(l.scenario), a,
                                                           options)
                 : calib::measure_all_reduce(*l.fabric, devices_of(l.scenario), a, options);
    } catch (const calib::NothingMeasured&) {
      break;
    } catch (const std::runtime_error& e) {
      throw InputError{std::string("calibrate, algorithm ") + name_of(a), e.what()};
    }
    run.key = fmt::format("all_reduce+{}@{}/n{}", name_of(a), l.cluster.name, l.scenario.ranks);
    run.scenario = l.scenario_hash;
    run.split = "held_out";  // to hold predictions to; `fit` has measurements of its own
    note_origin(t, flags, run);
    if (gloo) run.origin.backend = "gloo";
    if (!flags.runs.empty())
      add_to_runs(flags.runs, std::string(gloo ? "allreduce-gloo-" : "allreduce-") + name_of(a), l,
                  run);
    all.push_back(io::write_run(run));
    table += fmt::format("{}, {}\n", run.key,
                         run.origin.hosts == "namespaces"
                             ? "every link shaped"
                             : "plain loopback, NOT shaped: " + run.origin.reason);
    collective::Communicator comm = collective::make_communicator(
        *l.fabric, devices_of(l.scenario), gloo ? Backend::Gloo : Backend::Tcp, a);
    for (const Sample& s : run.samples) {
      std::vector<double> us;
      for (Duration d : s.durations) us.push_back(static_cast<double>(d.ps) / 1e6);
      double median = analysis::median(us);
      double plays_before = options.warmups + options.repetitions / 2;
      double predicted =
          static_cast<double>(predict::all_reduce_alone(comm, l.profile, {s.parameters.at("bytes")},
                                                        predict::Fidelity::Message, Level::Mid,
                                                        plays_before)
                                  .ps) /
          1e6;
      table += fmt::format(
          "  {:>12} bytes  median {:>12.1f} us  best {:>12.1f} us  predicted {:>12.1f} us  "
          "{:+6.1f} %\n",
          s.parameters.at("bytes"), median, *std::min_element(us.begin(), us.end()), predicted,
          (predicted / median - 1) * 100);
    }
  }
  if (all.empty()) throw calib::NothingMeasured();
  if (flags.output.format == "json" || !flags.output.out.empty())
    write_answer(t, flags.output, all.dump() + "\n");
  if (flags.output.format != "json") t.out << table;
}

void calibrate_mpi(Terminal& t, const CalibrateFlags& flags) {
  QuestionFlags question = flags.question;
  calib::MpiOptions options = mpi_options(t, flags, "ddpsim_mpi.py");
  Loaded l;
  Run run;
  try {
    say_mpi(question);
    calib::require_mpi4py(flags.python);
    if (question.workload.empty()) question.workload = "mlp784-50-10-cpu";  // only the cluster
    l = load(t, question);
    if (l.scenario.ranks < 2) throw InputError{"--ranks", "two ranks at least"};
    std::vector<std::int64_t> sizes = read_sizes(flags.sizes);
    options.arguments = {"--repetitions", std::to_string(flags.repetitions), "--sizes",
                         fmt::format("{}", fmt::join(sizes, ","))};
    options.environment = l.scenario.plan.environment;
    if (!flags.runs.empty()) prepare_runs(flags.runs);
    run = calib::record_mpi(l.cluster, hosts_of(l), options);
  } catch (const std::runtime_error& e) {
    throw InputError{"calibrate", e.what()};
  }
  run.key = fmt::format("all_reduce+mpi@{}/n{}", l.cluster.name, l.scenario.ranks);
  run.scenario = l.scenario_hash;
  run.split = flags.split;
  note_origin(t, flags, run);
  if (!flags.runs.empty()) add_to_runs(flags.runs, "allreduce-mpi", l, run);
  std::string json = io::write_run(run).dump() + "\n";
  if (flags.output.format == "json") return write_answer(t, flags.output, json);
  if (!flags.output.out.empty()) write_answer(t, flags.output, json);
  predict::Communicators communicators;
  const collective::Communicator& comm = communicators.get(l.question(), Backend::Mpi);
  for (const Sample& s : run.samples) {
    std::vector<double> us;
    for (Duration d : s.durations) us.push_back(static_cast<double>(d.ps) / 1e6);
    const Bytes bytes{s.parameters.at("bytes")};
    const double predicted =
        static_cast<double>(predict::all_reduce_alone(comm, l.profile, bytes,
                                                      predict::Fidelity::Message, Level::Mid)
                                .ps) /
        1e6;
    const double median = analysis::median(us);
    t.out << fmt::format(
        "{:>12} bytes  {:<18} median {:>12.1f} us  {:>12.1f} to {:>12.1f} us  predicted {:>12.1f} "
        "us  {:+6.1f} %\n",
        bytes.count, collective::all_reduce(comm, l.profile, Level::Mid, bytes).algorithm, median,
        *std::min_element(us.begin(), us.end()), *std::max_element(us.begin(), us.end()), predicted,
        (predicted / median - 1) * 100);
  }
  t.out << (run.origin.hosts == "namespaces"
                ? std::string("hosts: network namespaces, every link shaped\n")
                : fmt::format("hosts: plain loopback, NOT shaped: {}\n", run.origin.reason));
}

}  // namespace ddpsim::cli
