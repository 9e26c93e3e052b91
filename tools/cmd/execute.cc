// ddpsim run: plays a scenario for real, and says what was measured beside what was predicted.
#include <ostream>

#include <fmt/format.h>

#include "calib/cuda/cuda.h"
#include "sim/analysis/compare.h"
#include "sim/door/given_program.h"
#include "sim/predict/given_program.h"
#include "sim/validation/pairing.h"
#include "tools/cmd/executors.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

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
