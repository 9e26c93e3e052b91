// ddpsim calibrate: measures links, sums and collectives on hosts of this machine, and kernels and
// collectives of its GPUs.
#include "calib/calibrate.h"

#include <chrono>
#include <ostream>
#include <stdexcept>

#include <fmt/format.h>

#include "calib/cuda/cuda.h"
#include "calib/interrupt.h"
#include "sim/analysis/compare.h"
#include "tools/cmd/calibrate_collectives.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/interrupted.h"

namespace ddpsim::cli {
namespace {

// Each link from the streams: bandwidth is the slope of the two largest, burst what the largest had
// for nothing.
std::string links_table(const Run& run) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::map<std::int64_t, double>> streams;
  std::map<std::pair<std::int64_t, std::int64_t>, double> pings;
  for (const Sample& s : run.samples) {
    if (s.op != "stream" && s.op != "ping") continue;
    std::vector<double> seconds;
    for (Duration d : s.durations) seconds.push_back(static_cast<double>(d.ps) / 1e12);
    std::pair way{s.parameters.at("from"), s.parameters.at("to")};
    (s.op == "ping" ? pings[way] : streams[way][s.parameters.at("bytes")]) =
        analysis::median(seconds);
  }
  std::string out;
  for (const auto& [way, by_bytes] : streams) {
    if (by_bytes.size() < 2) continue;
    auto large = by_bytes.rbegin();
    auto next = std::next(large);
    double rate = static_cast<double>(large->first - next->first) / (large->second - next->second);
    double burst = std::max(0.0, static_cast<double>(large->first) - rate * large->second);
    out += fmt::format(
        "host{} -> host{}: goodput {:.1f} Mb/s, burst about {:.0f} KiB, one byte {:.1f} us\n",
        way.first, way.second, rate * 8 / 1e6, burst / 1024, pings[way] * 1e6);
  }
  return out;
}

Run calibrate_tcp(const Terminal& t, const Loaded& l, const CalibrateFlags& flags) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kQuiet{3};
  calib::CalibrateOptions options;
  options.loopback = flags.loopback;
  auto begun = Clock::now();
  auto said = begun;
  options.progress = [&](std::size_t done, std::size_t all) {
    auto now = Clock::now();
    if (now - said < kQuiet) return;
    said = now;
    t.err << fmt::format("ddpsim: {} of {} points measured after {} s\n", done, all,
                         std::chrono::duration_cast<std::chrono::seconds>(now - begun).count())
          << std::flush;
  };
  return calib::calibrate(*l.fabric, options);
}

Run calibrate_torch(const Terminal& t, const Loaded& l, const CalibrateFlags& flags) {
  calib::TorchOptions options;
  for (const std::string& s : flags.stages) {
    if (s != "collectives" && s != "products")
      throw InputError{"--stage " + s, "backend torch has collectives, products"};
    options.arguments.insert(options.arguments.end(), {"--stage", s});
  }
  options.partial = true;
  Run run = run_script(t, l, flags, "ddpsim_calibrate.py", options);
  run.evidence = EvidenceClass::Collective;
  return run;
}

std::string samples_table(const Run& run) {
  std::string out;
  for (const Sample& s : run.samples) {
    std::vector<double> us;
    for (Duration d : s.durations) us.push_back(static_cast<double>(d.ps) / 1e6);
    std::string what;
    for (const auto& [name, value] : s.parameters) what += fmt::format(" {}={}", name, value);
    out += fmt::format("{:<15}{:<40} median {:>12.1f} us  p90 {:>12.1f} us  ({} samples)\n", s.op,
                       what, analysis::median(us), analysis::percentile(us, 90), us.size());
  }
  return out;
}

// "all_reduce@one-gpu/n2/ring/simple" -> "all_reduce-one-gpu-n2-ring-simple"
std::string file_name(std::string key) {
  for (char& c : key) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '_' || c == '-';
    if (!plain) c = '-';
  }
  return key;
}

void calibrate_gpu(Terminal& t, const CalibrateFlags& flags) {
  std::vector<std::string> known = calib::cuda::stages();
  std::erase_if(known,
                [&](const std::string& s) { return (s == "nccl") != (flags.backend == "nccl"); });
  for (const std::string& s : flags.stages)
    if (std::find(known.begin(), known.end(), s) == known.end())
      throw InputError{"--stage " + s,
                       fmt::format("backend {} has {}", flags.backend, fmt::join(known, ", "))};
  std::vector<std::string> stages = flags.stages.empty() ? known : flags.stages;
  if (!flags.runs.empty()) prepare_runs(flags.runs);
  io::OrderedJson all = io::OrderedJson::array();
  std::string table;
  for (const std::string& stage : stages) {
    calib::cuda::CalibrateOptions options;
    options.stage = stage;
    options.budget_s = flags.seconds;
    options.one_gpu = flags.one_gpu;
    if (!flags.question.ranks.empty()) options.ranks = parse_ranks(flags.question.ranks);
    options.cluster = flags.question.cluster;
    auto keep = [&](Run run) {
      note_origin(t, flags, run);
      std::string name = flags.backend + "-" + (run.collectives ? file_name(run.key) : stage);
      if (flags.one_gpu && !run.collectives) name += "-one-gpu";
      if (!flags.runs.empty()) add_to_runs(flags.runs, name, run);
      return run;
    };
    options.measured = [&](const Run& run) { keep(run); };
    std::vector<Run> runs;
    try {
      runs = calib::cuda::calibrate(options);
    } catch (const std::runtime_error& e) {
      if (calib::interrupted()) break;  // of this stage nothing is kept
      throw InputError{"calibrate, stage " + stage, e.what()};
    }
    table += fmt::format("stage {} on {}\n", stage, runs.front().origin.gpu);
    for (const Run& run : runs) {
      all.push_back(io::write_run(keep(run)));  // again: the first one has what was left out
      if (run.collectives) table += run.key + "\n";
      table += samples_table(run);
    }
    for (const Skipped& s : runs.front().skipped)
      table += fmt::format("skipped {}: {}\n", s.what, s.why);
    if (calib::interrupted()) break;
  }
  if (all.empty()) throw calib::NothingMeasured();
  if (flags.output.format == "json" || !flags.output.out.empty())
    write_answer(t, flags.output, all.dump() + "\n");
  if (flags.output.format != "json") t.out << table;
}

void measure(Terminal& t, const CalibrateFlags& flags) {
  bool gpu = flags.backend == "cuda" || flags.backend == "nccl";
  const bool torch = flags.backend == "torch";
  if (!gpu && ((!torch && !flags.stages.empty()) || flags.one_gpu))
    throw InputError{"--backend " + flags.backend,
                     "--stage is of backends cuda, nccl and torch, --one-gpu of cuda and nccl"};
  if (!(flags.seconds >= 1 && flags.seconds <= 86400))
    throw InputError{"--seconds", "1 to 86400, of one stage"};
  const bool mpi = flags.backend == "mpi";
  if (flags.collectives && flags.backend != "tcp" && flags.backend != "gloo" && !mpi)
    throw InputError{"--collectives", "is of backends tcp, gloo and mpi"};
  if (!flags.collectives && flags.backend == "gloo")
    throw InputError{
        "--backend gloo",
        "measures all-reduces alone: add --collectives (its place in DDP is --backend torch)"};
  if (!flags.collectives && mpi)
    throw InputError{
        "--backend mpi",
        "measures all-reduces alone: add --collectives (its place in steps is ddpsim run)"};
  if (mpi && !flags.algorithms.empty())
    throw InputError{"--algorithms",
                     "is of backends tcp and gloo; Open MPI's is chosen by "
                     "OMPI_MCA_coll_tuned_use_dynamic_rules=1 and "
                     "OMPI_MCA_coll_tuned_allreduce_algorithm (--set)"};
  if (!flags.split.empty() && (!mpi || (flags.split != "fit" && flags.split != "held_out")))
    throw InputError{"--split " + flags.split, "fit or held_out, of --backend mpi"};
  if (!flags.collectives && (!flags.algorithms.empty() || !flags.sizes.empty()))
    throw InputError{"calibrate", "--algorithms and --sizes are of --collectives"};
  if (!(flags.repetitions >= 1 && flags.repetitions <= 1000))
    throw InputError{"--repetitions", "1 to 1000"};
  if (gpu) return calibrate_gpu(t, flags);
  if (mpi) return calibrate_mpi(t, flags);
  if (flags.collectives) return calibrate_collectives(t, flags);
  if (flags.backend != "tcp" && !torch)
    throw InputError{
        "--backend " + flags.backend,
        "expected tcp (links and collectives of hosts of this machine), torch (PyTorch's "
        "collectives and DDP's own work there), cuda (kernels of a GPU) or nccl (its collectives)"};
  QuestionFlags question = flags.question;
  question.sets.insert(question.sets.begin(), torch ? "plan.backend=gloo" : "plan.backend=tcp");
  if (question.workload.empty())
    question.workload = "mlp784-50-10-cpu";  // only the cluster matters
  Loaded l = load(t, question);
  if (!flags.runs.empty()) prepare_runs(flags.runs);
  Run run;
  try {
    run = torch ? calibrate_torch(t, l, flags) : calibrate_tcp(t, l, flags);
  } catch (const std::runtime_error& e) {
    throw InputError{"calibrate", e.what()};
  }
  run.key = "calibrate@" + l.cluster.name + "/n" + std::to_string(l.scenario.ranks);
  run.scenario = l.scenario_hash;
  note_origin(t, flags, run);
  if (!flags.runs.empty())
    add_to_runs(flags.runs, torch ? "torch-collectives" : "collectives", l, run);
  std::string json = io::write_run(run).dump() + "\n";
  if (flags.output.format == "json") return write_answer(t, flags.output, json);
  if (!flags.output.out.empty()) write_answer(t, flags.output, json);
  t.out << samples_table(run);
  t.out << "\n" << links_table(run);
  t.out << (run.origin.hosts == "namespaces"
                ? std::string("hosts: network namespaces, every link shaped\n")
                : fmt::format("hosts: plain loopback, NOT shaped: {}\n", run.origin.reason));
}

// Ctrl-C ends the measurement: what was measured is written as if it were all.
void calibrate_command(Terminal& t, const CalibrateFlags& flags) {
  calib::Interruptible ctrl_c;
  auto nothing = [&t] {
    t.err << "\nddpsim: " << calib::NothingMeasured().what() << "\n";
    throw Interrupted{};
  };
  try {
    measure(t, flags);
  } catch (const calib::NothingMeasured&) {
    nothing();
  } catch (const InputError&) {
    if (!calib::interrupted()) throw;
    nothing();  // programs that it had asked something got the signal, too
  }
  if (!calib::interrupted()) return;
  keep_files(t);
  std::vector<std::string> places;
  if (!flags.runs.empty()) places.push_back(flags.runs);
  if (!flags.output.out.empty()) places.push_back(flags.output.out);
  t.out << std::flush;
  t.err << fmt::format(
      "\nddpsim: interrupted; what was measured is kept{}, and the Run says what is missing\n",
      places.empty() ? " above (--runs FOLDER, or --out FILE, keeps it as a Run)"
                     : fmt::format(" in {}", fmt::join(places, " and ")));
  throw Interrupted{};
}

}  // namespace

void add_calibrate(Command& app, Terminal& t) {
  auto flags = std::make_shared<CalibrateFlags>();
  Command* c = app.add_subcommand("calibrate",
                                  "Measure links and collectives on hosts of this machine, or "
                                  "kernels and collectives of its GPUs");
  add_executed_flags(
      *c, *flags,
      "tcp: links and collectives over shaped network namespaces; torch: PyTorch's collectives "
      "there, and DDP's own work; cuda, nccl: kernels and collectives of this machine's GPUs");
  c->add_option("--stage", flags->stages,
                "cuda, nccl: what to measure, repeatable: " +
                    fmt::format("{}", fmt::join(calib::cuda::stages(), ", ")) +
                    "; torch: collectives (with DDP's own work), products (of matrices with a few "
                    "columns); default: all of the backend")
      ->allow_extra_args(false);
  c->add_option("--seconds", flags->seconds,
                "cuda, nccl: time for each stage (default 60); what does not fit is left out, and "
                "the Run says so");
  c->add_flag("--collectives", flags->collectives,
              "tcp, gloo (the real library): the all-reduce alone, by algorithm and size, one Run "
              "for each algorithm; mpi (the real Open MPI): as it chooses");
  c->add_option("--algorithms", flags->algorithms,
                "with --collectives: ring, double_binary_tree, recursive_doubling, "
                "halving_doubling, bcube, hierarchical, torus2d, direct; default: all")
      ->delimiter(',');
  c->add_option("--sizes", flags->sizes,
                "with --collectives: bytes of float32, for example 64KiB,4MiB; default: 4KiB to "
                "16MiB by factors of 4")
      ->delimiter(',');
  c->add_option("--split", flags->split,
                "mpi: fit or held_out, whether a fit may see this Run; decide before you look");
  c->add_option("--repetitions", flags->repetitions,
                "with --collectives: of each size, after two that do not count (default 7)");
  c->add_flag(
      "--one-gpu", flags->one_gpu,
      "nccl: all ranks on the first GPU, under a private MPS daemon, over sockets on loopback");
  c->callback([&t, flags] { calibrate_command(t, *flags); });
}

}  // namespace ddpsim::cli
