// ddpsim run: plays a scenario for real, and says what was measured beside what was predicted.
#include "calib/execute.h"

#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include "calib/cuda/cuda.h"
#include "calib/mpi.h"
#include "calib/testbed.h"
#include "sim/analysis/compare.h"
#include "sim/predict/given_program.h"
#include "sim/systems/base/settings.h"
#include "sim/validation/pairing.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/given_program.h"

namespace ddpsim::cli {
namespace {

struct ExecuteFlags : ExecutedFlags {
  std::string compute;
  std::string split;
  std::vector<std::string> record;
  int steps = 0;
  bool one_gpu = false;
  double timeout_s = 0;  // backends nccl and torch; 0 = by the predicted step
};

struct Executed {
  Run run;
  Duration predicted;  // from the workload's own times
  std::string basis;
  std::optional<Duration> from_layers;  // from the layer profile that the Run brought
  std::string note;                     // why the two cannot be compared
};

constexpr int kMostSteps = 64;

// So that a step's steady state is seen about 6 times, and short steps more often.
int steps_for(Duration step) {
  double seconds = static_cast<double>(step.ps) / 1e12;
  return std::clamp(static_cast<int>(std::lround(2.5 / std::max(seconds, 1e-3))), 6, 12);
}

std::string page(const Loaded& l, const Executed& e, bool mean) {
  const Run& run = e.run;
  auto ms = [](Duration d) { return fmt::format("{:.2f} ms", static_cast<double>(d.ps) / 1e9); };
  Duration measured = analysis::typical_step(run, mean);
  std::string out = fmt::format("{}\n", l.key);
  out += fmt::format(
      "measured   {}  ({} steady steps, spread {:.2f} %, {})\n", ms(measured),
      std::count_if(
          run.steps.begin(), run.steps.end(),
          [](const StepRecord& s) { return s.kind == StepKind::Steady && !s.instrumented; }),
      100 * run.quality.spread, run.quality.verdict == Verdict::Clean ? "clean" : "NOISY");
  for (const std::string& why : run.quality.reasons) out += "           " + why + "\n";
  auto off = [&](Duration d) { return 100 * (d / measured - 1); };
  out += fmt::format("predicted  {}  ({:+.2f} %; {}profile {})\n", ms(e.predicted),
                     off(e.predicted), e.basis, l.profile.name);
  if (e.from_layers)
    out += fmt::format(
        "           {}  ({:+.2f} %; from this run's layer profile, taken before without "
        "communication)\n",
        ms(*e.from_layers), off(*e.from_layers));
  if (!e.note.empty()) out += "           " + e.note + "\n";
  if (!run.origin.software.empty()) out += fmt::format("software   {}\n", run.origin.software);
  if (run.origin.hosts == "gpus") {
    out += fmt::format("gpus       {}\n", run.origin.gpu);
    for (const Skipped& k : run.skipped) out += fmt::format("skipped    {}: {}\n", k.what, k.why);
    return out;
  }
  out += run.origin.hosts == "namespaces"
             ? "hosts      network namespaces, every link shaped\n"
             : fmt::format("hosts      plain loopback, NOT shaped: {}\n", run.origin.reason);
  return out;
}

// Hosts of this machine play a cluster of one-device hosts whose computation can be slept, and no
// other: what they did would be shown beside a prediction of something else.
void check_hosts(const Loaded& l, const ExecuteFlags& flags) {
  if (flags.loopback) return;
  const char* remedy =
      "; take a testbed (ddpsim list clusters), or --loopback to play the schedule without hosts, "
      "which measures nothing of this cluster";
  std::string place = "--cluster " + l.cluster.name;
  if (l.cluster.device == DeviceKind::Gpu && l.cluster.emulated_on_cores == 0)
    throw InputError{place,
                     std::string("is of GPUs, which hosts of this machine cannot play") + remedy};
  if (Problem p = calib::emulation_problem(l.cluster))
    throw InputError{
        place, "cannot be played by hosts of this machine: " + p.path + ": " + p.message + remedy};
}

Executed execute_tcp(const Loaded& l, const ExecuteFlags& flags) {
  for (const OtherJob& job : l.scenario.other_jobs)
    if (backend_of(job.plan, l.cluster.device) != Backend::Tcp)
      throw InputError{"other_jobs", "every job's plan needs \"backend\": \"tcp\" to be run by it"};
  Executed out;
  predict::Prediction p = predict::predict(l.question(), l.options);
  out.predicted = p.summary.step;
  calib::ExecuteOptions options;
  options.steady_steps = flags.steps != 0 ? flags.steps : steps_for(p.summary.step);
  // A mean of as many steps as the prediction's, as far as the executor plays.
  if (p.beside && flags.steps == 0)
    options.steady_steps = std::clamp(p.beside->steps + 1, options.steady_steps, kMostSteps);
  if (p.beside && p.beside->steps >= options.steady_steps)
    out.note = fmt::format(
        "the prediction is the mean of {} steps, in which the other jobs' come round; {} need not "
        "meet them",
        p.beside->steps, options.steady_steps - 1);
  options.program = l.options.program;
  options.real_compute = l.scenario.real_compute;
  options.loopback = flags.loopback;
  // Each other job plays until this one is done, even if both slow one another down as much as they
  // can.
  for (const OtherJob& job : l.scenario.other_jobs) {
    Scenario theirs = scenario_of(job);
    predict::Question other{job.workload, *l.fabric, l.profile, theirs};
    predict::Options usual;
    usual.fidelity = predict::usual_fidelity(other);
    auto alone = static_cast<double>(predict::steady_period(other, Level::Mid, usual).ps);
    options.other_steps.push_back(3 + static_cast<int>(1.5 * (options.steady_steps + 3) *
                                                       static_cast<double>(p.summary.step.ps) /
                                                       std::max(alone, 1.0)));
  }
  options.timeout_s =
      60 + 10 * static_cast<double>(p.summary.step.ps) / 1e12 * (options.steady_steps + 4);
  out.run = calib::execute(l.question(), options);
  return out;
}

// The ranks drive GPUs of this machine, and hosts are not made.
bool on_gpus(const Loaded& l, const ExecuteFlags& flags) {
  if (flags.backend == "nccl") return true;
  return flags.backend == "torch" && l.cluster.device == DeviceKind::Gpu &&
         l.cluster.emulated_on_cores == 0;
}

// What goes over loopback is no NVLink, and the other way round.
void check_links(const Loaded& l, const ExecuteFlags& flags) {
  bool loopback = l.cluster.link.transport == calib::cuda::kLoopback;
  if (flags.one_gpu && l.scenario.ranks > 1 && !loopback)
    throw InputError{"--one-gpu", fmt::format("ranks on one GPU talk over sockets on loopback, and "
                                              "cluster {} has other links; use --cluster {}",
                                              l.cluster.name, calib::cuda::kOneGpuCluster)};
  if (!flags.one_gpu && loopback)
    throw InputError{"--cluster " + l.cluster.name,
                     "has all ranks on one GPU; add --one-gpu, or name the cluster of the GPUs"};
}

// What the recorder cannot do, said before anything starts.
void check_torch(const Loaded& l, const ExecuteFlags& flags) {
  const Scenario& s = l.scenario;
  if (systems::setting_of(s.plan, "outer_optimizer") == "nesterov")
    throw InputError{"--backend torch",
                     "DiLoCo's outer step is torchft's, not PyTorch's own, and is not recorded; "
                     "--plan local_sgd is"};
  if (on_gpus(l, flags)) {
    if (backend_of(s.plan, l.cluster.device) != Backend::Nccl)
      throw InputError{"--backend torch", "runs over nccl on GPUs"};
    if (s.real_compute)
      throw InputError{"--compute real",
                       "is of hosts of CPUs: on a GPU computation is always real"};
    if (!s.slow_ranks.empty())
      throw InputError{"slow_ranks",
                       "real computation cannot be slowed down, and on a GPU "
                       "computation is always real"};
    if (!s.other_jobs.empty()) throw InputError{"other_jobs", "--backend torch runs one job"};
    if (s.jitter)
      throw InputError{"jitter", "--backend torch runs what there is; leave jitter out"};
    return check_links(l, flags);
  }
  if (backend_of(s.plan, l.cluster.device) != Backend::Gloo)
    throw InputError{"--backend torch",
                     "runs over gloo on hosts of CPUs, and over nccl on this "
                     "machine's GPUs; " +
                         l.cluster.name + " is neither"};
  if (!s.other_jobs.empty()) throw InputError{"other_jobs", "--backend torch runs one job"};
  if (s.jitter) throw InputError{"jitter", "--backend torch runs what there is; leave jitter out"};
  if (s.real_compute && !s.slow_ranks.empty())
    throw InputError{"slow_ranks", "real computation cannot be slowed down; use --compute timed"};
  if (!s.real_compute && l.workload.basis != Basis::Captured)
    throw InputError{"--workload " + l.workload.name,
                     "timed layers need a captured workload (ddpsim list workloads)"};
}

Duration predicted_from_layers(const Loaded& l, const Run& run) {
  Workload recorded = as_recorded(l.workload, run);
  return predict::predict({recorded, *l.fabric, l.profile, l.scenario}, l.options).summary.step;
}

Executed execute_torch(const Terminal& t, const Loaded& l, const ExecuteFlags& flags) {
  Executed out;
  out.predicted = predict::predict(l.question(), l.options).summary.step;
  out.basis = "from the workload's times; ";
  calib::TorchOptions options;
  options.workload = l.documents.workload.dump();
  bool gpus = on_gpus(l, flags);
  bool slow = out.predicted > Duration{2'000'000'000'000};  // fewer of long steps: they differ less
  int usual = slow ? 4 : steps_for(out.predicted);
  if (gpus) usual = l.scenario.ranks > 1 ? 40 : 10;  // as tools/gpu_calibrate
  int steps = flags.steps != 0 ? flags.steps : usual;
  bool real = gpus || l.scenario.real_compute;
  io::Json plan = l.document.value("plan", io::Json::object());
  if (plan.is_object()) {
    plan.erase("environment");                         // the ranks have it in theirs
    plan["system"] = name_of(l.scenario.plan.system);  // "ddp"
  }
  options.arguments = {"--spans",   slow ? "2" : "3",
                       "--passes",  slow ? "3" : gpus ? "6" : real ? "9" : "5",
                       "--compute", real ? "real" : "timed",
                       "--steps",   std::to_string(steps),
                       "--plan",    plan.dump(),
                       "--device",  gpus ? "cuda" : "cpu"};
  std::optional<calib::cuda::OneGpu> one_gpu;
  if (flags.one_gpu && l.scenario.ranks > 1) one_gpu.emplace();
  options.gpus = gpus;
  if (gpus)
    options.environment = [&](int rank) {
      std::vector<std::pair<std::string, std::string>> variables;
      if (one_gpu) {
        variables = one_gpu->environment(rank, l.scenario.ranks);
        variables.insert(variables.end(), {{"LOCAL_RANK", "0"}, {"DDPSIM_ONE_GPU", "1"}});
      }
      const auto& asked = l.scenario.plan.environment;
      variables.insert(variables.end(), asked.begin(), asked.end());
      return variables;
    };
  // A factory lies beside the question, or beside its workload, wherever the command is started.
  for (const std::string& file : {flags.question.scenario, l.workload_file})
    if (auto slash = file.rfind('/');
        slash != std::string::npos && l.stored["workload"] != l.document["workload"])
      options.arguments.insert(options.arguments.end(), {"--import-from", file.substr(0, slash)});
  for (const std::string& knob : flags.record)
    options.arguments.insert(options.arguments.end(), {"--record", knob});
  options.slow_ranks = l.scenario.slow_ranks;
  options.timeout_s = 180 + 10 * static_cast<double>(out.predicted.ps) / 1e12 * (steps + 20);
  if (flags.timeout_s > 0) options.timeout_s = flags.timeout_s;
  out.run = run_script(t, l, flags, "ddpsim_record.py", options);
  if (!flags.record.empty())
    out.basis = "without " + flags.record.front() + ", which is recorded and not predicted; ";
  else if (out.run.layers)
    out.from_layers = predicted_from_layers(l, out.run);
  return out;
}

bool runs_horovod(const Loaded& l) {
  return systems::record_of(l.scenario.plan.system).negotiates;
}

// What runs over MPI here, said before anything starts.
void check_mpi(const Loaded& l) {
  const Scenario& s = l.scenario;
  if (!systems::record_of(s.plan.system).executed_by_mpi)
    throw InputError{"--plan " + std::string(name_of(s.plan.system)),
                     "--backend mpi averages gradients by hand with mpi4py (--plan averaging), or "
                     "runs Horovod (--plan horovod); PyTorch has its process group of MPI only "
                     "where it was built with it"};
  if (systems::setting_of(s.plan, "async_op") == "true")
    throw InputError{"async_op", "mpi4py's Allreduce blocks; leave async_op out"};
  if (!s.other_jobs.empty()) throw InputError{"other_jobs", "--backend mpi runs one job"};
  if (s.jitter) throw InputError{"jitter", "--backend mpi runs what there is; leave jitter out"};
  if (s.real_compute)
    throw InputError{"--compute real", "--backend mpi sleeps computation: --compute timed"};
  if (l.workload.basis != Basis::Captured)
    throw InputError{"--workload " + l.workload.name,
                     "timed layers need a captured workload (ddpsim list workloads)"};
  if (s.ranks < 2) throw InputError{"--ranks", "two ranks at least for --backend mpi"};
}

// What Python must have for it. A step of Horovod is one of the PyTorch that it was built for.
void complete_mpi(const Terminal& t, ExecuteFlags& flags, Loaded& l) {
  try {
    if (!runs_horovod(l)) return calib::require_mpi4py(flags.python);
    calib::require_horovod(flags.python);
    flags.question.sets.insert(flags.question.sets.begin(),
                               "plan.pytorch=" + calib::torch_version(flags.python));
  } catch (const std::runtime_error& e) {
    throw InputError{"run", e.what()};
  }
  l = load(t, flags.question);
}

Executed execute_mpi(const Terminal& t, const Loaded& l, const ExecuteFlags& flags) {
  Executed out;
  out.predicted = predict::predict(l.question(), l.options).summary.step;
  int steps = flags.steps != 0 ? flags.steps : steps_for(out.predicted);
  calib::MpiOptions options =
      mpi_options(t, flags, runs_horovod(l) ? "ddpsim_horovod.py" : "ddpsim_mpi.py");
  io::Json plan = l.document.value("plan", io::Json::object());
  if (plan.is_object()) plan.erase("environment");
  options.workload = l.documents.workload.dump();
  options.environment = l.scenario.plan.environment;
  options.arguments = {"--plan", plan.is_object() ? plan.dump() : "{}", "--steps",
                       std::to_string(steps)};
  for (const auto& [rank, factor] : l.scenario.slow_ranks)
    options.arguments.insert(options.arguments.end(),
                             {"--slow", fmt::format("{}={}", rank, factor)});
  options.timeout_s = flags.timeout_s > 0
                          ? flags.timeout_s
                          : 120 + 20 * static_cast<double>(out.predicted.ps) / 1e12 * (steps + 4);
  out.run = calib::record_mpi(l.cluster, hosts_of(l), options);
  if (out.run.layers) out.from_layers = predicted_from_layers(l, out.run);
  return out;
}

Executed execute_nccl(const Loaded& l, const ExecuteFlags& flags) {
  if (l.cluster.device != DeviceKind::Gpu)
    throw InputError{"--backend nccl", "needs a cluster of GPUs; this one has CPUs"};
  if (l.scenario.real_compute)
    throw InputError{"--compute real", "is of hosts of CPUs: on a GPU computation is always real"};
  check_links(l, flags);
  Executed out;
  out.predicted = predict::predict(l.question(), l.options).summary.step;
  calib::cuda::ExecuteOptions options;
  options.steady_steps = flags.steps != 0 ? flags.steps : 12;
  options.one_gpu = flags.one_gpu;
  double expected_s = static_cast<double>(out.predicted.ps) / 1e12 * (options.steady_steps + 8);
  options.timeout_s = flags.timeout_s > 0 ? flags.timeout_s : 120 + 20 * expected_s;
  out.run = calib::cuda::execute(l.question(), options);
  return out;
}

// What of --program nothing here plays, before anything is loaded.
void check_program_flags(const ExecuteFlags& flags) {
  if (flags.question.program.empty()) return;
  if (flags.backend != "tcp")
    throw InputError{"--backend " + flags.backend,
                     "runs a framework or GPUs, and a program is played by --backend tcp"};
  if (!flags.runs.empty())
    throw InputError{"--runs " + flags.runs,
                     "keeps Runs of scenarios, which a program is none of; use --out"};
}

void run_command(Terminal& t, ExecuteFlags flags) {
  const bool mpi = flags.backend == "mpi";
  if (flags.backend != "tcp" && flags.backend != "torch" && flags.backend != "nccl" && !mpi)
    throw InputError{"--backend " + flags.backend,
                     "expected tcp (ddpsim's own executor over shaped hosts), torch (the real "
                     "PyTorch on the same hosts, or on this machine's GPUs), mpi (the real Open "
                     "MPI, or Horovod over it, on the same hosts) or nccl (ddpsim's own executor "
                     "on this machine's GPUs)"};
  if (flags.one_gpu && (flags.backend == "tcp" || mpi))
    throw InputError{"--one-gpu", "is of --backend nccl or torch"};
  check_program_flags(flags);
  if (flags.timeout_s != 0) {
    if (flags.backend == "tcp") throw InputError{"--timeout", "is of --backend nccl, torch or mpi"};
    if (!(flags.timeout_s >= 1 && flags.timeout_s <= 86400))
      throw InputError{"--timeout", "1 to 86400 seconds"};
  }
  if (!flags.compute.empty() && flags.compute != "timed" && flags.compute != "real")
    throw InputError{"--compute " + flags.compute, "expected timed or real"};
  if (!flags.split.empty() && flags.split != "fit" && flags.split != "held_out")
    throw InputError{"--split " + flags.split, "expected fit or held_out"};
  if (!flags.record.empty() && flags.backend != "torch")
    throw InputError{"--record " + flags.record.front(), "is of --backend torch"};
  if (flags.steps != 0 && (flags.steps < 2 || flags.steps > kMostSteps))
    throw InputError{"--steps " + std::to_string(flags.steps), "2 to 64 steady steps"};
  bool torch = flags.backend == "torch";
  try {
    if (torch)
      flags.question.sets.insert(flags.question.sets.begin(),
                                 "plan.pytorch=" + calib::torch_version(flags.python));
    else if (mpi)
      say_mpi(flags.question);
    else if (flags.backend == "tcp")
      flags.question.sets.insert(flags.question.sets.begin(), "plan.backend=tcp");
  } catch (const std::runtime_error& e) {
    throw InputError{"run", e.what()};
  }
  if (flags.one_gpu)
    for (const char* name : {"NCCL_MIN_CTAS=", "NCCL_MAX_CTAS="})
      flags.question.sets.insert(flags.question.sets.begin(),
                                 name + std::to_string(calib::cuda::kOneGpuChannels));
  if (!flags.compute.empty()) flags.question.sets.push_back("compute=" + flags.compute);
  Loaded l;
  try {
    l = load(t, flags.question);
  } catch (const InputError& e) {  // of what was put in just now
    if (flags.one_gpu && e.where.starts_with("--set NCCL_"))
      throw InputError{"--one-gpu", "needs a cluster of GPUs, and a plan whose backend is nccl"};
    throw;
  }
  if (l.program)
    if (std::string why = predict::unplayable(l.program->program); !why.empty())
      throw InputError{l.program->file, why};
  if (l.scenario.input)
    throw InputError{"#/input",
                     "what executes a step has its input at hand; leave the input pipeline out "
                     "(--set input=null)"};
  if (torch) check_torch(l, flags);
  if (mpi) {
    check_mpi(l);
    complete_mpi(t, flags, l);
  }
  if (!on_gpus(l, flags)) check_hosts(l, flags);
  if (!flags.runs.empty()) prepare_runs(flags.runs);
  Executed e;
  try {
    e = torch                     ? execute_torch(t, l, flags)
        : mpi                     ? execute_mpi(t, l, flags)
        : flags.backend == "nccl" ? execute_nccl(l, flags)
                                  : execute_tcp(l, flags);
  } catch (const std::runtime_error& why) {
    throw InputError{"run", why.what()};
  }
  Run& run = e.run;
  run.key = l.key;
  if (!l.program) run.scenario = l.scenario_hash;
  run.workload = l.workload_hash;
  run.split = flags.split;
  note_origin(t, flags, run);
  std::string json = io::write_run(run).dump() + "\n";
  if (!flags.runs.empty())
    add_to_runs(flags.runs,
                flags.backend != "tcp"         ? flags.backend
                : run.origin.compute == "real" ? "real"
                                               : "tcp",
                l, run);
  const bool mean = validation::steps_differ(l.scenario);
  if (flags.output.format == "json") return write_answer(t, flags.output, json);
  if (!flags.output.out.empty()) write_answer(t, flags.output, json);
  t.out << page(l, e, mean) << std::flush;
}

}  // namespace

void add_run(Command& app, Terminal& t) {
  auto flags = std::make_shared<ExecuteFlags>();
  Command* c = app.add_subcommand(
      "run", "Execute a scenario on hosts of this machine, and show it beside its prediction");
  add_executed_flags(
      *c, *flags,
      "tcp: ddpsim's own executor, a process per rank, real TCP over shaped network namespaces; "
      "torch: the real PyTorch over Gloo on the same hosts, or over NCCL where the cluster is of "
      "GPUs, on this machine's; mpi: averaging by the real Open MPI and mpi4py, or the real "
      "Horovod "
      "over it, on the same hosts; "
      "nccl: ddpsim's own executor on this machine's GPUs");
  add_program_flags(*c, flags->question);
  c->add_flag("--one-gpu", flags->one_gpu,
              "on GPUs: all ranks on the first one, under a private MPS daemon, over sockets "
              "on loopback (--cluster one-gpu)");
  c->add_option(
      "--timeout", flags->timeout_s,
      "backends nccl, torch and mpi: seconds of wall clock after which ranks that hang are "
      "ended; default: two or three minutes and a multiple of what is predicted");
  c->add_option("--compute", flags->compute,
                "timed (computation is slept) or real (it keeps a core busy); default: the "
                "scenario's, which is timed if it does not say");
  c->add_option("--record", flags->record,
                "backend torch: what is recorded and not predicted, repeatable: "
                "zero_redundancy_optimizer=true")
      ->allow_extra_args(false);
  c->add_option("--steps", flags->steps,
                "steady steps to play; default by the predicted step, 6 to 12");
  c->add_option("--split", flags->split,
                "fit or held_out: whether a fit may see this Run; decide before you look at it");
  c->callback([&t, flags] { run_command(t, *flags); });
}

}  // namespace ddpsim::cli
