// ddpsim goodput: what of days of training is left by failures, checkpoints and recoveries.
#include "tools/cmd/goodput.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "sim/systems/base/model_memory.h"
#include "sim/systems/base/settings.h"
#include "tools/cmd/amounts.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

using goodput::Failure;
using goodput::Part;
using goodput::Recovery;

struct GoodputFlags {
  QuestionFlags question;
  std::string step, samples;
  std::string horizon = "30d";
  std::string mtbf_per_gpu, mtbf_per_host;
  std::string failure = "process";
  std::vector<std::string> lost, added;
  std::string recovery = "torchrun";
  std::string spares, least_hosts, back;
  std::string checkpoint, size, layout, storage, host_storage, stall;
  bool asynchronous = false;
  std::string snapshot, network, cores;
  std::vector<std::string> phases;
  int courses = 100;
  int seed = 1;
  OutputFlags output;
};

// What --step stands for, or a prediction.
struct Trained {
  std::string subject;
  std::string from;
  Duration step;
  double samples_per_s = 0;
  int ranks = 1;
  bool gpus = true;
  int ranks_per_host = 8;
  std::int64_t state = 0;  // bytes; 0 = not known
  bool sharded = false;    // every rank has a part of it
  double network = 0;      // bytes a second of a host
  std::vector<std::string>
      notes;  // of the prediction: what is beyond the model, and whether it fits
};

Trained given(const GoodputFlags& f) {
  const QuestionFlags& q = f.question;
  for (auto [flag, value] :
       {std::pair{"", &q.scenario}, {"--workload ", &q.workload}, {"--plan ", &q.plan}})
    if (!value->empty())
      throw InputError{flag + *value, "says what is trained, and so does --step; give one of them"};
  if (q.ranks.empty())
    throw InputError{"--ranks", "is needed beside --step: how many GPUs train, --ranks 1024"};
  Trained t;
  t.subject = "a job";
  t.from = "given";
  t.step = positive_duration("--step", f.step);
  t.ranks = parse_ranks(q.ranks);
  if (!f.samples.empty())
    t.samples_per_s = parse_positive("--samples-per-step", f.samples, 1e15) * 1e12 /
                      static_cast<double>(t.step.ps);
  return t;
}

Trained predicted(Terminal& terminal, const GoodputFlags& f) {
  if (!f.samples.empty())
    throw InputError{"--samples-per-step " + f.samples,
                     "is of --step; a workload says its batch (--set workload.batch=64)"};
  const Loaded l = load(terminal, f.question);
  predict::Options options = l.options;
  options.interval = false;
  options.warmup = false;
  const predict::Prediction p = predict::predict(l.question(), options);
  Trained t;
  t.subject = fmt::format("{}, {}, {} on {}", l.workload.name, batch_text(l.workload),
                          precision_text(l.workload, l.scenario.plan), l.cluster.name);
  t.notes = p.extrapolated;
  t.from = "predicted, " + systems::title_of(l.scenario.plan);
  t.step = p.summary.step;
  t.samples_per_s = p.samples_per_s;
  t.ranks = l.scenario.ranks;
  t.gpus = l.cluster.device == DeviceKind::Gpu;
  t.ranks_per_host = std::max(1, l.cluster.devices_per_host);
  const Held held = systems::resident(l.workload, false);
  t.state = std::accumulate(held.begin(), held.end(), std::int64_t{0});
  t.sharded = systems::record_of(l.scenario.plan.system).shards;
  t.network = static_cast<double>(l.cluster.link.bandwidth.bits_per_s) / 8;
  return t;
}

std::vector<goodput::HostsAt> hosts_at(const char* flag, const std::vector<std::string>& texts) {
  std::vector<goodput::HostsAt> out;
  for (const std::string& text : texts) {
    goodput::HostsAt h;
    const auto colon = text.find(':');
    h.at = duration_of(flag, text.substr(0, colon));
    if (colon != std::string::npos) h.hosts = count_of(flag, text.substr(colon + 1), 1, 1'000'000);
    out.push_back(h);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  return out;
}

void read_failures(const GoodputFlags& f, GoodputAnswer& a) {
  goodput::Job& job = a.job;
  job.lost = hosts_at("--lose", f.lost);
  job.added = hosts_at("--add", f.added);
  if (!f.mtbf_per_gpu.empty() && !f.mtbf_per_host.empty())
    throw InputError{"--mtbf-per-host " + f.mtbf_per_host,
                     "is said by --mtbf-per-gpu, too; give one of them"};
  if (f.mtbf_per_gpu.empty() && f.mtbf_per_host.empty() && job.lost.empty())
    throw InputError{"--mtbf-per-gpu",
                     "nothing says when anything fails; give --mtbf-per-gpu 50000h (16,384 H100 "
                     "failed 419 times in 54 days: a GPU every 50,700 h; Llama 3, "
                     "arXiv:2407.21783), --mtbf-per-host, or times: --lose 2h:1"};
  if (!f.mtbf_per_gpu.empty())
    job.host_mtbf_s = positive_seconds("--mtbf-per-gpu", f.mtbf_per_gpu) / a.ranks_per_host;
  if (!f.mtbf_per_host.empty())
    job.host_mtbf_s = positive_seconds("--mtbf-per-host", f.mtbf_per_host);
  a.gpu_mtbf_s = job.host_mtbf_s * a.ranks_per_host;
  if (job.host_mtbf_s > 0 && goodput::mtbf_of(job) < 1)
    throw InputError{"--mtbf-per-gpu", fmt::format("{} GPUs would fail more than once a second; "
                                                   "is the unit right?",
                                                   a.ranks)};
}

void read_world(const GoodputFlags& f, GoodputAnswer& a) {
  goodput::Job& job = a.job;
  const bool torchrun = job.recovery == Recovery::Torchrun;
  job.least_hosts = torchrun ? job.hosts : 1;
  if (!f.least_hosts.empty())
    job.least_hosts = count_of("--min-hosts", f.least_hosts, 1, job.hosts);
  if (!f.spares.empty()) job.spares = count_of("--spares", f.spares, 0, 1'000'000);
  if (!f.back.empty()) job.back = positive_duration("--back-after", f.back);
  const bool gone = job.failure == Failure::Host || !job.lost.empty();
  if (torchrun && gone && job.least_hosts == job.hosts && job.spares == 0 && !job.back &&
      job.added.empty())
    throw InputError{"--failure host",
                     "the first lost host would end the job: torchrun waits for all of them; give "
                     "--spares 4, --min-hosts (the world shrinks), --back-after 24h or --add"};
}

constexpr double kStorageOfHost = 1e9;  // bytes a second, where nothing is said

// How long a checkpoint takes to write and to read.
void read_checkpoints(const GoodputFlags& f, const Trained& t, GoodputAnswer& a) {
  goodput::Job& job = a.job;
  const std::string asked = !f.checkpoint.empty()               ? f.checkpoint
                            : job.recovery == Recovery::Torchft ? "none"
                                                                : "best";
  a.checkpoints = asked != "none";
  a.searched = asked == "best";
  if (a.searched && job.host_mtbf_s <= 0)
    throw InputError{"--checkpoint best",
                     "is found by how often something fails, and --lose says when, which nobody "
                     "knows before; give --checkpoint 10min, or --mtbf-per-gpu 50000h too"};
  a.checkpoint_bytes = f.size.empty() ? t.state : bytes_of("--checkpoint-size", f.size);
  const bool sharded = f.layout.empty() ? t.sharded : f.layout == "sharded";
  const auto bytes = static_cast<double>(a.checkpoint_bytes);
  auto& c = job.checkpoints;
  if (!a.checkpoints) {
    c.steps = job.horizon.ps / job.step.ps + 1;
    return;
  }
  const bool needs_read = std::none_of(f.phases.begin(), f.phases.end(),
                                       [](const auto& p) { return p.starts_with("restore="); });
  const bool timed =
      f.asynchronous || f.stall.empty() || (needs_read && job.recovery == Recovery::Torchrun);
  if (timed && bytes <= 0)
    throw InputError{"--checkpoint-size",
                     "how long a checkpoint takes is not known; give --checkpoint-size 14GB (a "
                     "workload says it) and --storage 10GB/s, what the job writes and reads; or "
                     "--checkpoint-stall 5s and --phase restore=20s; or --checkpoint none"};
  const bool assumed = f.storage.empty();
  double write = 0;
  if (timed || !assumed) {
    const double hosts = (t.ranks + t.ranks_per_host - 1) / t.ranks_per_host;
    const double given = assumed ? kStorageOfHost : bytes_per_s("--storage", f.storage);
    const double host =
        f.host_storage.empty() ? given : bytes_per_s("--storage-per-host", f.host_storage);
    const double all = assumed ? hosts * host : given;
    write = sharded ? std::max(bytes / all, bytes / hosts / host) : bytes / std::min(all, host);
    const double read = sharded ? std::max(bytes / all, bytes / hosts / host)
                                : std::max(bytes * hosts / all, bytes / host);
    job.times[Part::Restore] = seconds_as(read);
    a.checkpoint_text = fmt::format("{} {}", to_string(Bytes{a.checkpoint_bytes}),
                                    sharded ? "in shards, each written and read once"
                                            : "written by rank 0, read by every host");
    if (assumed)
      a.checkpoint_text +=
          f.host_storage.empty()
              ? "; storage is assumed: 1 GB/s a host (Llama 3's: 2 TB/s of 2,048 hosts, "
                "arXiv:2407.21783), --storage says yours"
              : "; storage is assumed to give all hosts that at once, --storage says yours";
  }
  c.stalls = seconds_as(write);
  if (f.asynchronous) {
    if (f.snapshot.empty() && f.stall.empty())
      throw InputError{"--snapshot",
                       "the job stands still while a copy is made; give what a GPU copies to its "
                       "host, --snapshot 20GB/s, or --checkpoint-stall 2s"};
    c.writes = seconds_as(write);
    if (!f.snapshot.empty())
      c.stalls =
          seconds_as(bytes / (sharded ? t.ranks : 1) / bytes_per_s("--snapshot", f.snapshot));
  } else if (!f.snapshot.empty()) {
    throw InputError{"--snapshot " + f.snapshot, "is of --asynchronous"};
  }
  if (!f.stall.empty()) c.stalls = duration_of("--checkpoint-stall", f.stall);
  if (a.searched) return;
  if (asked.ends_with("steps")) {
    c.steps = count_of("--checkpoint", asked.substr(0, asked.size() - 5), 1, 1'000'000'000);
  } else {
    const Duration every = positive_duration("--checkpoint", asked);
    c.steps = std::max<std::int64_t>(1, (every.ps + job.step.ps / 2) / job.step.ps);
  }
}

void read_phases(const GoodputFlags& f, const Trained& t, GoodputAnswer& a) {
  goodput::Times& times = a.job.times;
  std::vector<std::string> names;
  for (const goodput::PartRecord& p : goodput::parts())
    if (goodput::has(a.job.recovery, p)) {
      names.emplace_back(p.name);
      a.times.push_back({p.part, p.evidence, p.source});
    }
  if (!f.cores.empty()) {
    const int cores = count_of("--cores-per-host", f.cores, 1, 100'000);
    if (t.ranks_per_host > cores)
      times[Part::ImportTorch] =
          scale(times[Part::ImportTorch], static_cast<double>(t.ranks_per_host) / cores);
  }
  const bool sends = a.job.recovery != Recovery::Torchrun;
  const double network = f.network.empty() ? t.network : bytes_per_s("--network", f.network);
  bool sync_given = false;
  for (const std::string& text : f.phases) {
    const auto equals = text.find('=');
    const std::string name = text.substr(0, equals);
    auto p = std::find(names.begin(), names.end(), name);
    if (equals == std::string::npos || p == names.end()) {
      const std::string hint = io::nearest(name, names);
      throw InputError{"--phase " + text,
                       fmt::format("is no phase of {}{}", goodput::name_of(a.job.recovery),
                                   hint.empty() ? fmt::format("; write NAME=TIME with one of {}",
                                                              fmt::join(names, ", "))
                                                : " (did you mean " + hint + "=...?)")};
    }
    GivenTime& g = a.times[p - names.begin()];
    times[g.part] = duration_of("--phase " + name, text.substr(equals + 1));
    g.evidence = "given";
    g.source = "--phase";
    sync_given = sync_given || g.part == Part::Sync;
  }
  if (!sends || sync_given) return;
  if (network <= 0 || a.checkpoint_bytes <= 0)
    throw InputError{"--network",
                     "a survivor sends the state; give --checkpoint-size 14GB and what a host's "
                     "network carries, --network 400Gb/s, or --phase sync=1s"};
  times[Part::Sync] = seconds_as(static_cast<double>(a.checkpoint_bytes) / network);
}

GoodputAnswer read(Terminal& terminal, const GoodputFlags& f) {
  Trained t = f.step.empty() ? predicted(terminal, f) : given(f);
  if (const std::string& each = f.question.gpus_per_host; !each.empty())
    t.ranks_per_host = count_of("--gpus-per-host", each, 1, 1'000'000);
  GoodputAnswer a;
  a.subject = t.subject;
  a.step_from = t.from;
  a.notes = t.notes;
  a.samples_per_s = t.samples_per_s;
  a.ranks = t.ranks;
  a.gpus = t.gpus;
  a.ranks_per_host = std::min(t.ranks_per_host, t.ranks);
  a.seed = static_cast<std::uint64_t>(f.seed);
  goodput::Job& job = a.job;
  job.step = t.step;
  job.horizon = positive_duration("--for", f.horizon);
  if (job.horizon < job.step)
    throw InputError{"--for " + f.horizon, "is shorter than a step of " + to_string(job.step)};
  job.hosts = (t.ranks + a.ranks_per_host - 1) / a.ranks_per_host;
  job.recovery = f.recovery == "torchrun"  ? Recovery::Torchrun
                 : f.recovery == "torchft" ? Recovery::Torchft
                                           : Recovery::HorovodElastic;
  job.failure = f.failure == "process" ? Failure::Process
                : f.failure == "host"  ? Failure::Host
                                       : Failure::Hang;
  read_failures(f, a);
  read_world(f, a);
  read_checkpoints(f, t, a);
  read_phases(f, t, a);
  return a;
}

void answer(const GoodputFlags& f, GoodputAnswer& a) {
  constexpr int kSearched = 20;  // courses of each interval that is tried
  constexpr int kTried = 18;     // intervals
  constexpr double kMost = 2e8;  // failures that are played: about a minute
  const bool drawn = a.job.host_mtbf_s > 0;
  const int searched = drawn ? std::min(f.courses, kSearched) : 1;
  if (drawn) {
    const double each = static_cast<double>(a.job.horizon.ps) * 1e-12 / goodput::mtbf_of(a.job);
    if (each * (f.courses + kTried * searched) > kMost)
      throw InputError{"--for " + f.horizon,
                       fmt::format("{:.3g} failures a course are too many to play {} courses; ask "
                                   "about less time, or --courses 1",
                                   each, f.courses)};
  }
  if (a.checkpoints && drawn) {
    a.intervals = goodput::best_intervals(a.job, a.seed, searched);
    if (a.searched) a.job.checkpoints.steps = a.intervals->steps;
  }
  a.courses = goodput::play_many(a.job, a.seed, drawn ? f.courses : 1);
  const auto share = [&](goodput::Spent s) { return a.courses.share[s]; };
  if (a.job.recovery == Recovery::Torchft)
    a.no_expected = "survivors go on: nothing is rolled back";
  else if (!drawn || !a.job.lost.empty() || !a.job.added.empty())
    a.no_expected = "failures were given";
  else if (!a.checkpoints)
    a.no_expected = "nothing is saved";
  else if (share(goodput::Spent::Missing) + share(goodput::Spent::Waiting) > 0)
    a.no_expected = "the world is not always whole";
  else
    a.expected = goodput::expected_goodput(a.job);
}

void goodput_command(Terminal& t, const GoodputFlags& f) {
  GoodputAnswer a = read(t, f);
  answer(f, a);
  const std::string& format = f.output.format;
  write_answer(t, f.output,
               format == "json"  ? goodput_json(a).dump(1) + "\n"
               : format == "csv" ? goodput_csv(a)
                                 : goodput_text(a));
}

void add_failure_flags(Command& c, GoodputFlags& f) {
  c.add_option("--mtbf-per-gpu", f.mtbf_per_gpu,
               "mean time between failures of one GPU: 50000h; they come at random");
  c.add_option("--mtbf-per-host", f.mtbf_per_host, "the same of a host, instead");
  c.add_option("--failure", f.failure,
               "what fails: process (it ends, its host is good; the default), host (it is gone), "
               "hang (nothing ends: found out by a timeout)")
      ->one_of({"process", "host", "hang"});
  c.add_option("--lose", f.lost,
               "TIME or TIME:HOSTS, repeatable: hosts are lost then; --failure says how it shows")
      ->allow_extra_args(false);
  c.add_option("--add", f.added, "TIME or TIME:HOSTS, repeatable: hosts come then")
      ->allow_extra_args(false);
  c.add_option("--recovery", f.recovery,
               "torchrun (all workers start again; the default), horovod_elastic (survivors stay, "
               "go back to the last commit), torchft (survivors go on after the step; hosts are "
               "replica groups)")
      ->one_of({"torchrun", "horovod_elastic", "torchft"});
  c.add_option("--spares", f.spares, "hosts that stand by; default 0");
  c.add_option("--min-hosts", f.least_hosts,
               "the world shrinks down to so many; default: all of torchrun's, 1 of the others'");
  c.add_option("--back-after", f.back,
               "a lost host is repaired, or leaves Horovod's blacklist, after 24h; default: never");
}

void add_checkpoint_flags(Command& c, GoodputFlags& f) {
  c.add_option("--checkpoint", f.checkpoint,
               "every 10min, 500steps, best (searched; the default), or none (torchft's default)");
  c.add_option("--checkpoint-size", f.size,
               "14GB; default: the workload's weights, master copies and optimizer state");
  c.add_option("--checkpoint-layout", f.layout,
               "whole (rank 0 writes, every host reads) or sharded; default: as the plan's system")
      ->one_of({"whole", "sharded"});
  c.add_option("--storage", f.storage, "what the whole job writes or reads: 100GB/s");
  c.add_option("--storage-per-host", f.host_storage, "at most this of it by one host");
  c.add_flag("--asynchronous", f.asynchronous,
             "the job goes on while a copy is written; needs --snapshot");
  c.add_option("--snapshot", f.snapshot, "of --asynchronous: what one GPU copies to its host");
  c.add_option("--checkpoint-stall", f.stall, "how long the job stands still for one, instead");
  c.add_option("--network", f.network,
               "of a host, over which a survivor sends the state; default: the cluster's link");
}

}  // namespace

void add_goodput(Command& app, Terminal& t) {
  auto flags = std::make_shared<GoodputFlags>();
  Command* c = app.add_subcommand(
      "goodput",
      "Days of training under failures: what is left of the time, what takes the rest, how often "
      "to save");
  add_question_flags(*c, flags->question);
  c->add_option("--step", flags->step, "a step takes this, instead of a prediction; needs --ranks");
  c->add_option("--samples-per-step", flags->samples, "beside --step, of all ranks together");
  c->add_option("--for", flags->horizon, "how long: 30d (the default), at most 100d");
  add_failure_flags(*c, *flags);
  add_checkpoint_flags(*c, *flags);
  c->add_option("--phase", flags->phases,
                "NAME=TIME, repeatable: of a recovery, import_torch=20s; the answer lists them "
                "with where they are from")
      ->allow_extra_args(false);
  c->add_option("--cores-per-host", flags->cores,
                "fewer than GPUs: their processes import torch in turns");
  c->add_option("--courses", flags->courses, "how many times it is played; default 100")
      ->range(1, 10'000);
  c->add_option("--seed", flags->seed, "of the random failures; default 1")->range(0, INT32_MAX);
  add_output_flags(*c, flags->output, {"table", "json", "csv"});
  c->callback([&t, flags] { goodput_command(t, *flags); });
}

}  // namespace ddpsim::cli
