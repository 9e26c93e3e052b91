// ddpsim fit: Runs -> Profile.
#include "calib/fit/fit.h"

#include <cmath>
#include <deque>
#include <ostream>

#include <fmt/format.h>

#include "calib/cuda/cuda.h"
#include "calib/fit/kernels.h"
#include "calib/fit/operators.h"
#include "calib/fit/transport.h"
#include "sim/analysis/compare.h"
#include "sim/cost/carry.h"
#include "sim/io/extends.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/flags.h"

namespace ddpsim::cli {
namespace {

struct FitFlags {
  std::string runs;
  std::string kernels;
  std::string base = "testbed.datasheet";
  std::string name = "testbed";
  std::string backend = "tcp";
  std::string split = "fit";
  bool without_noisy = false;
  std::string against;  // folder of another GPU's Runs
  std::string against_base;
  OutputFlags output;
};

struct Executed {
  Run run;
  Loaded loaded;
};

// Runs of `folder` whose split is `split`, and Runs of samples (but not those to hold predictions
// to), each with its scenario.
std::deque<Executed> collect(const Terminal& t, const FitFlags& flags) {
  std::deque<Executed> out;
  for (const std::string& file : one_or_all(flags.runs)) {
    Run run = io::read_run(io::parse_json(io::read_file(file), file), file);
    if (run.kind != RunKind::Measured || run.origin.hosts != "namespaces" ||
        run.origin.backend != flags.backend)
      continue;
    if (run.origin.compute == "real" && run.evidence == EvidenceClass::Replay) continue;
    if (run.evidence == EvidenceClass::Collective && run.split == "held_out")
      continue;  // calibrate --collectives
    if (run.evidence != EvidenceClass::Collective &&
        (run.split != flags.split || !is_predicted(run)))
      continue;
    QuestionFlags q;
    std::string folder =
        flags.runs == file ? file.substr(0, file.find_last_of('/') + 1) + "." : flags.runs;
    q.scenario = folder + "/scenarios/" + run.scenario + ".json";
    out.push_back({std::move(run), load(t, q)});
    Executed& e = out.back();
    if (e.run.layers && layers_problem(e.loaded.workload, e.run).empty())
      e.loaded.workload = as_recorded(e.loaded.workload, e.run);
  }
  return out;
}

void write_fit(Terminal& t, const FitFlags& flags, const std::string& json,
               const std::string& table) {
  io::read_profile(io::parse_json(json, "fit"), "fit");  // what is written can be read
  if (!flags.output.out.empty()) write_output(t, flags.output.out, json);
  t.out << (flags.output.format == "json" ? json : table) << std::flush;
}

Profile base_of(const Terminal& t, const FitFlags& flags) {
  const io::Home home = home_of(t);
  const std::string path = home.find("calib/profiles", flags.base, "profile");
  return io::open_profile(home, path, path);
}

// Does a fit of kernels read it? Runs of ddpsim's own bench, and of PyTorch's operators; on a CPU
// no GPU is named.
bool of_kernels(const Run& run, const std::string& backend) {
  if (run.kind != RunKind::Measured) return false;
  if ((backend == "cpu") != (run.origin.hosts == "cpu")) return false;
  if (run.origin.backend == "cuda") return true;
  return std::any_of(run.samples.begin(), run.samples.end(), [](const Sample& s) {
    return s.op.rfind("torch/", 0) == 0 || s.op.rfind("torch_host/", 0) == 0;
  });
}

// Runs of one GPU's kernels, none of them noisy.
std::deque<Run> kernel_runs(Terminal& t, const FitFlags& flags, const std::string& folder) {
  std::deque<Run> runs;
  auto name = [](const Run& r) { return r.origin.gpu.substr(0, r.origin.gpu.find(" (")); };
  for (const std::string& file : one_or_all(folder)) {
    Run run = io::read_run(io::parse_json(io::read_file(file), file), file);
    if (!of_kernels(run, flags.backend)) continue;
    if (!runs.empty() && name(run) != name(runs.front()))
      throw InputError{file, "is of another GPU (" + run.origin.gpu +
                                 ") than the Runs before it (" + runs.front().origin.gpu +
                                 "); fit them one by one"};
    if (flags.without_noisy && run.quality.verdict == Verdict::Noisy) {
      std::string why = run.quality.reasons.empty() ? "noisy" : run.quality.reasons.front();
      t.err << "ddpsim: left out: " << file << ": " << why << "\n";
      continue;
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

std::vector<const Run*> pointers(const std::deque<Run>& runs) {
  std::vector<const Run*> out;
  for (const Run& run : runs) out.push_back(&run);
  return out;
}

std::string kernel_table(const std::vector<KernelResidual>& rows, const char* fitted) {
  std::string out;
  for (const KernelResidual& r : rows)
    out += fmt::format("{:<14} {:<9} {:>6} {:>10.2e} {:>10.2e} {:>7.2f}% {:>7.2f}%\n", r.kernel,
                       r.held_out ? "held out" : fitted, r.points, r.least, r.most,
                       100 * r.median_error, 100 * r.p90_error);
  return out;
}

// How far this fit is off a GPU that it has not seen, and of which it knows the datasheet.
std::string stranger_table(Terminal& t, const FitFlags& flags, const KernelCosts& costs,
                           const Profile& base) {
  FitFlags other = flags;
  other.base = flags.against_base;
  Profile to = base_of(t, other);
  std::deque<Run> runs = kernel_runs(t, flags, flags.against);
  std::vector<const Run*> all = pointers(runs);
  if (std::string why = calib::refused(to, all); !why.empty())
    throw InputError{"--against " + flags.against, why};
  int sms = 0;
  for (const Run* run : all) sms = std::max(sms, calib::gpu_size(run->origin.gpu).sms);
  Profile from = base;
  from.costs = costs;
  if (sms > 0) to.compute.sms = sms;
  for (const Profile* p : {&from, &to})
    if (p->compute.sms == 0 || p->compute.clock_hz <= 0 || p->compute.capability == 0)
      throw InputError{p->name,
                       "needs compute.compute_capability, sms and clock_hz to be compared with "
                       "another GPU"};
  KernelCosts there = predict::carried(from, to);
  return "\n" + flags.against + ", of which nothing was fitted: these constants with " + to.name +
         "'s rates\n" + kernel_table(calib::judge_operators(there, all), "");
}

// Kernels of one GPU: Runs of samples, without a scenario.
void fit_gpu(Terminal& t, const FitFlags& flags) {
  std::deque<Run> runs = kernel_runs(t, flags, flags.runs);
  std::vector<const Run*> all = pointers(runs);
  Profile base = base_of(t, flags);
  const bool cpu = flags.backend == "cpu";
  if (base.kind != (cpu ? DeviceKind::Cpu : DeviceKind::Gpu))
    throw InputError{"--base " + flags.base,
                     cpu ? "is a profile of GPUs; --backend cpu needs one of a CPU, for example "
                           "--base cpu-generic.datasheet"
                         : "is a profile of CPUs; --backend cuda needs one of a GPU"};
  if (runs.empty())
    throw InputError{
        "--runs " + flags.runs,
        cpu ? "holds no Run of a CPU's operators (tools/python/ddpsim_cpu_ops.py "
              "makes one)"
            : "holds no Run of a GPU's kernels (ddpsim calibrate --backend cuda --runs "
              "DIR makes them)"};
  if (flags.against.empty() != flags.against_base.empty())
    throw InputError{"--against", "needs --against-base, the datasheet profile of that GPU"};
  if (std::string why = calib::refused(base, all); !why.empty())
    throw InputError{"--runs " + flags.runs,
                     why + (why.find("noisy") == why.npos ? "" : " (--without-noisy does)")};
  calib::KernelFit f = calib::fit_kernels(base, flags.name, all);
  const Origin& o = runs.front().origin;
  f.profile.hardware = cpu ? "one core of " + o.cpu : o.gpu;
  std::string table = fmt::format("{:<14} {:<9} {:>6} {:>10} {:>10} {:>8} {:>8}\n", "kernel",
                                  "shapes", "points", "least", "most", "median", "p90");
  table += kernel_table(f.profile.kernels, "fitted");
  for (const std::string& note : f.notes) table += note + "\n";
  table += "1 machine: what another of this kind does was not measured\n";
  if (!flags.against.empty() && f.profile.costs)
    table += stranger_table(t, flags, *f.profile.costs, base);
  write_fit(t, flags, io::write_profile(f.profile, {}).dump(1) + "\n", table);
}

// NCCL's links, from imported tables of nccl-tests.
void fit_nccl_tests(Terminal& t, const FitFlags& flags) {
  Profile base = base_of(t, flags);
  if (base.kind != DeviceKind::Gpu)
    throw InputError{"--base " + flags.base,
                     "is a profile of CPUs; --backend nccl-tests needs that of the tables' GPUs, "
                     "for example --base h100-sxm.datasheet (ddpsim list profiles)"};
  Tables all = load_tables(t, flags.runs);
  for (const std::string& why : all.left_out) t.err << "ddpsim: left out: " << why << "\n";
  std::vector<calib::CollectiveTable> tables;
  for (calib::CollectiveTable& table : all.tables) {
    if (table.profile.name == base.name)
      tables.push_back(std::move(table));
    else
      t.err << "ddpsim: left out: " << table.name << ": is of " << table.profile.name << "\n";
  }
  if (tables.empty())
    throw InputError{flags.runs, "holds no table of collectives of " + base.name +
                                     " (ddpsim import nccl-tests makes them; --base names the "
                                     "profile of their cluster's GPUs)"};
  calib::CollectiveFit f = calib::fit_collectives(base, flags.name, std::move(tables));
  std::vector<io::OrderedJson> rows;
  std::string table =
      fmt::format("{:<48} {:>5} {:>12} {:>12} {:>9} {:>13} {:>12}\n", "table", "ranks", "bytes",
                  "measured", "error", "size left out", "interpolated");
  std::vector<double> errors;
  std::vector<double> before;
  std::vector<double> without;
  std::vector<double> beside;
  auto signed_percent = [](const std::optional<double>& v) {
    return v ? fmt::format("{:+.2f}%", 100 * *v) : std::string("-");
  };
  for (const auto& r : f.residuals) {
    auto rounded = [](double v) { return std::round(v * 1e5) / 1e5; };
    rows.push_back({{"table", r.table},
                    {"ranks", r.ranks},
                    {"bytes", r.bytes},
                    {"measured_ps", r.measured.ps},
                    {"error", rounded(r.error)}});
    if (r.without_size) rows.back()["without_size"] = rounded(*r.without_size);
    if (r.interpolated) rows.back()["interpolated"] = rounded(*r.interpolated);
    table += fmt::format("{:<48} {:>5} {:>12} {:>12} {:>9} {:>13} {:>12}\n", r.table, r.ranks,
                         r.bytes, to_string(r.measured), signed_percent(r.error),
                         signed_percent(r.without_size), signed_percent(r.interpolated));
    errors.push_back(std::abs(r.error));
    before.push_back(std::abs(r.base_error));
    if (r.without_size) without.push_back(std::abs(*r.without_size));
    if (r.interpolated) beside.push_back(std::abs(*r.interpolated));
  }
  auto summary = [&](const char* what, const std::vector<double>& v, const char* is) {
    if (!v.empty())
      table += fmt::format("{:<14} median {:.2f} %, 95th percentile {:.2f} %: {}\n", what,
                           100 * analysis::median(v), 100 * analysis::percentile(v, 95), is);
  };
  summary("error", errors, "what this profile predicts for the sizes that it was fitted to");
  summary("base", before, "what the profile that it was made from predicts for them");
  summary("size left out", without, "what a profile fitted without that size predicts for it");
  summary("interpolated", beside,
          "no profile: the line between the table's own sizes beside it (raw data)");
  table +=
      "A machine of which there is no table: ddpsim validate --collectives (each machine from the "
      "others' tables).\n";
  for (const auto& [name, link] : f.links) {
    const std::string unknown = "not identified";
    table += fmt::format("{}: steps {}, efficiency {} of {}'s\n", name,
                         link.steps_told ? calib::steps_text(name, link) : unknown,
                         link.efficiency_told ? fmt::format("x {:.2f}", link.efficiency) : unknown,
                         base.name);
  }
  io::OrderedJson profile = io::write_profile(f.profile, rows);
  for (const auto& [name, link] : f.links)  // predictions tell it
    if (link.steps_told || link.efficiency_told)
      profile["transports"][name]["table_residual"] =
          std::round(1e4 * analysis::percentile(errors, 80)) / 1e4;
  write_fit(t, flags, profile.dump(1) + "\n", table);
}

std::deque<Run> runs_of(const std::string& folder) {
  std::deque<Run> out;
  for (const std::string& file : run_files(folder))
    out.push_back(io::read_run(io::parse_json(io::read_file(file), file), file));
  return out;
}

// The loopback of several ranks on one GPU, from NCCL's collectives there.
void fit_nccl(Terminal& t, const FitFlags& flags) {
  Profile base = base_of(t, flags);
  if (base.kind != DeviceKind::Gpu)
    throw InputError{"--base " + flags.base,
                     "is a profile of CPUs; --backend nccl needs one of a GPU"};
  // What is not fitted of it is as over sockets between hosts.
  const std::string loopback = calib::cuda::kLoopback;
  if (!base.transports.count(loopback) && base.transports.count("tcp"))
    base.transports[loopback] = base.transports.at("tcp");
  Tables all = load_tables(t, flags.runs, &base);
  for (const std::string& why : all.left_out) t.err << "ddpsim: left out: " << why << "\n";
  std::vector<calib::CollectiveTable> tables;
  for (calib::CollectiveTable& table : all.tables)
    if (nccl::fabric(*table.group).cluster().link.transport == loopback &&
        table.run->evidence == EvidenceClass::Collective)
      tables.push_back(std::move(table));
  const std::deque<Run> runs = runs_of(flags.runs);
  const std::deque<Run> other = flags.kernels.empty() ? std::deque<Run>() : runs_of(flags.kernels);
  std::vector<const Run*> kernels, repeats;
  for (const Run& run : flags.kernels.empty() ? runs : other)
    if (run.kind == RunKind::Measured && run.origin.backend == "cuda") kernels.push_back(&run);
  for (const Run& run : runs)
    if (calib::repeats_transport(run)) repeats.push_back(&run);
  calib::TransportFit f =
      calib::fit_transport(base, flags.name, std::move(tables), kernels, repeats);
  std::vector<io::OrderedJson> rows;
  std::string table = fmt::format("{:<44} {:>5} {:>12} {:>12} {:>9}  {}\n", "table", "ranks",
                                  "bytes", "measured", "error", "sample");
  std::map<bool, std::vector<double>> errors;
  for (const auto& r : f.residuals) {
    const char* sample = r.fitted ? "fitted" : "held out";
    rows.push_back({{"table", r.table},
                    {"ranks", r.ranks},
                    {"bytes", r.bytes},
                    {"measured_ps", r.measured.ps},
                    {"error", std::round(r.error * 1e5) / 1e5},
                    {"sample", sample}});
    table += fmt::format("{:<44} {:>5} {:>12} {:>12} {:>+8.2f}%  {}\n", r.table, r.ranks, r.bytes,
                         to_string(r.measured), 100 * r.error, sample);
    errors[r.fitted].push_back(std::abs(r.error));
  }
  for (const auto& [fitted, v] : errors)
    table += fmt::format("{:<9} {} rows: median {:.2f} %, 90th percentile {:.2f} %\n",
                         fitted ? "fitted" : "held out", v.size(), 100 * analysis::median(v),
                         100 * analysis::percentile(v, 90));
  for (const std::string& note : f.notes) table += note + "\n";
  write_fit(t, flags, io::write_profile(f.profile, rows).dump(1) + "\n", table);
}

void fit_command(Terminal& t, const FitFlags& flags) {
  if (flags.backend != "nccl" && !flags.kernels.empty())
    throw InputError{"--kernels " + flags.kernels, "is of --backend nccl"};
  if (flags.backend == "nccl-tests") return fit_nccl_tests(t, flags);
  if (flags.backend == "nccl") return fit_nccl(t, flags);
  if (flags.backend != "tcp" && flags.backend != "torch" && flags.backend != "mpi" &&
      flags.backend != "cuda" && flags.backend != "cpu")
    throw InputError{
        "--backend " + flags.backend,
        "expected tcp, torch, mpi, cuda, cpu, nccl or nccl-tests: whose Runs are fitted"};
  if (flags.backend == "cuda" || flags.backend == "cpu") return fit_gpu(t, flags);
  if (flags.split != "fit" && flags.split != "held_out")
    throw InputError{"--split " + flags.split, "expected fit or held_out"};
  std::deque<Executed> all = collect(t, flags);
  std::vector<calib::FitCollectives> collectives;
  std::vector<calib::FitStep> steps;
  for (const Executed& e : all) {
    if (e.run.evidence == EvidenceClass::Collective)
      collectives.push_back({&e.run, &*e.loaded.fabric,
                             flags.backend == "torch" ? Backend::Gloo
                             : flags.backend == "mpi" ? Backend::Mpi
                                                      : Backend::Tcp});
    else
      steps.push_back({&e.run, &e.loaded.workload, &*e.loaded.fabric, &e.loaded.scenario});
  }
  calib::Fit f = calib::fit(base_of(t, flags), flags.name, collectives, steps);
  std::vector<io::OrderedJson> rows;
  std::string table = fmt::format("{:>5} {:>10} {:>12} {:>8} {:>13} {:>13}\n", "ranks", "bytes",
                                  "measured", "error", "size left out", "ranks left out");
  auto rounded = [](double v) { return std::round(v * 1e5) / 1e5; };
  for (const auto& r : f.residuals) {
    rows.push_back({{"ranks", r.ranks},
                    {"bytes", r.bytes},
                    {"measured_ps", r.measured.ps},
                    {"error", rounded(r.error)},
                    {"without_size", rounded(r.without_size)},
                    {"without_ranks", rounded(r.without_ranks)}});
    table += fmt::format("{:>5} {:>10} {:>9.3f} ms {:>+7.2f}% {:>+12.2f}% {:>+12.2f}%\n", r.ranks,
                         r.bytes, static_cast<double>(r.measured.ps) / 1e9, 100 * r.error,
                         100 * r.without_size, 100 * r.without_ranks);
  }
  auto summary = [&](const char* what, auto member) {
    std::vector<double> v;
    for (const auto& r : f.residuals) v.push_back(std::abs(r.*member));
    table += fmt::format("{:<16} median {:.2f} %, 95th percentile {:.2f} %\n", what,
                         100 * analysis::median(v), 100 * analysis::percentile(v, 95));
  };
  summary("fitted", &calib::FitResidual::error);
  summary("size left out", &calib::FitResidual::without_size);
  summary("ranks left out", &calib::FitResidual::without_ranks);
  for (const std::string& note : f.notes) table += note + "\n";
  const TransportSection& tcp = f.profile.transports.begin()->second;
  table += fmt::format("identified: {}; {}\n",
                       f.identified ? "true" : "false (one rank count: latency is the base's)",
                       tcp.source);
  write_fit(t, flags, io::write_profile(f.profile, rows).dump(1) + "\n", table);
}

}  // namespace

void add_fit(Command& app, Terminal& t) {
  auto flags = std::make_shared<FitFlags>();
  Command* c =
      app.add_subcommand("fit", "Make a profile from measured Runs, and print what the fit leaves");
  c->add_option("--runs", flags->runs, "folder of Runs, or one Run; default: the shipped ones");
  c->add_option("--kernels", flags->kernels,
                "backend nccl: folder of Runs of the base's GPU, for what collectives take from "
                "computation; default: --runs");
  c->add_option("--base", flags->base,
                "profile that gives what no sample identifies (default testbed.datasheet)");
  c->add_option("--name", flags->name, "name of the new profile (default testbed)");
  c->add_option(
      "--backend", flags->backend,
      "whose Runs: tcp (default), torch, cuda: a GPU's kernels, cpu: a core's operators, nccl: "
      "NCCL between several ranks on one GPU, or nccl-tests: imported tables of NCCL's "
      "collectives (for all four --base names the datasheet profile of that device)");
  c->add_option("--split", flags->split, "executed steps of this split are used (default fit)");
  c->add_flag("--without-noisy", flags->without_noisy,
              "cuda, cpu: leave noisy Runs out (otherwise they are refused)");
  c->add_option("--against", flags->against,
                "cuda: folder of another GPU's Runs; prints how far this fit is off them, with "
                "only the datasheet's rates changed");
  c->add_option("--against-base", flags->against_base, "the datasheet profile of that GPU");
  add_output_flags(*c, flags->output, {"table", "json"});
  c->callback([&t, flags] {
    if (flags->runs.empty())
      flags->runs =
          home_of(t).path() + (flags->backend == "nccl-tests" ? "/calib/published" : "/calib/runs");
    fit_command(t, *flags);
  });
}

}  // namespace ddpsim::cli
