#include "tools/cmd/executors.h"

#include <cmath>

#include <fmt/format.h>

#include "calib/cuda/cuda.h"
#include "calib/execute.h"
#include "calib/mpi.h"
#include "calib/testbed.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/record.h"
#include "sim/systems/base/settings.h"

namespace ddpsim::cli {
namespace {

// So that a step's steady state is seen about 6 times, and short steps more often.
int steps_for(Duration step) {
  double seconds = static_cast<double>(step.ps) / 1e12;
  return std::clamp(static_cast<int>(std::lround(2.5 / std::max(seconds, 1e-3))), 6, 12);
}

}  // namespace

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

namespace {

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

}  // namespace

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

namespace {

Duration predicted_from_layers(const Loaded& l, const Run& run) {
  Workload recorded = as_recorded(l.workload, run);
  return predict::predict({recorded, *l.fabric, l.profile, l.scenario}, l.options).summary.step;
}

}  // namespace

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

namespace {

bool runs_horovod(const Loaded& l) {
  return systems::record_of(l.scenario.plan.system).negotiates;
}

}  // namespace

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

// Python must have MPI for it. A step of Horovod is one of the PyTorch that it was built for.
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

}  // namespace ddpsim::cli
