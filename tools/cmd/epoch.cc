// ddpsim epoch: how a DistributedSampler deals a data set out to the ranks.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "sim/units/number.h"
#include "tools/cmd/epoch_text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct EpochFlags {
  QuestionFlags question;
  std::string samples, batch, accumulation, rank;
  std::string epoch = "0";
  std::string seed = "0";
  std::string limit = "20";
  bool drop_last = false;
  bool drop_last_batch = false;
  bool no_shuffle = false;
  OutputFlags output;
};

struct Answer {
  Sampling sampling;
  Epoch epoch;
  Duration step;  // of a whole step; 0 = no workload was named
  std::string subject;
  std::optional<int> rank;
  std::vector<std::int64_t> indices;  // of `rank`
  std::size_t limit = 20;
};

std::int64_t whole(const char* flag, const std::string& text, std::int64_t least,
                   std::int64_t most) {
  auto v = parse_integer(text);
  if (!v || *v < least || *v > most)
    throw InputError{std::string(flag) + " " + text,
                     fmt::format("expected a whole number, {} to {}", least, most)};
  return *v;
}

Answer read(Terminal& t, const EpochFlags& f) {
  constexpr std::int64_t kMost = 1'000'000'000'000'000;
  constexpr int kMostSteps = 1'000'000;
  Answer a;
  Sampling& s = a.sampling;
  if (f.samples.empty())
    throw InputError{"--epoch-samples",
                     "how many samples has the data set? --epoch-samples 1281167 (ImageNet)"};
  s.samples = whole("--epoch-samples", f.samples, 1, kMost);
  s.drop_last = f.drop_last;
  s.drop_last_batch = f.drop_last_batch;
  const QuestionFlags& q = f.question;
  const bool named = !q.scenario.empty() || !q.workload.empty();
  if (named) {
    const Loaded l = load(t, q);
    s.ranks = l.scenario.ranks;
    s.batch = l.workload.batch;
    s.accumulation = l.scenario.plan.accumulation_steps;
    a.step = predict::steady_period(l.question(), Level::Mid, l.options);
    a.subject = fmt::format("{} on {}", l.workload.name, l.cluster.name);
  } else if (q.ranks.empty() || f.batch.empty()) {
    throw InputError{q.ranks.empty() ? "--ranks" : "--batch",
                     "give --ranks 8 --batch 32, or a workload and a cluster, which say both"};
  } else {
    if (!q.gpus_per_host.empty())
      throw InputError{"--gpus-per-host " + q.gpus_per_host,
                       "places ranks on a cluster; name a workload and a cluster, or leave it out"};
    s.ranks = parse_ranks(q.ranks);
  }
  if (!f.batch.empty()) {
    if (named)
      throw InputError{"--batch " + f.batch,
                       "is the workload's here: --set workload.batch=" + f.batch};
    s.batch = whole("--batch", f.batch, 1, kMost);
  }
  if (!f.accumulation.empty()) {
    if (named)
      throw InputError{"--accumulation " + f.accumulation,
                       "is the plan's here: --set accumulation_steps=" + f.accumulation};
    s.accumulation = static_cast<int>(whole("--accumulation", f.accumulation, 1, kMostSteps));
  }
  a.epoch = epoch_of(s);
  a.limit = static_cast<std::size_t>(whole("--limit", f.limit, 1, kMost));
  const auto seed = static_cast<std::uint64_t>(whole("--seed", f.seed, 0, UINT32_MAX) +
                                               whole("--epoch", f.epoch, 0, UINT32_MAX));
  if (f.rank.empty()) return a;
  a.rank = static_cast<int>(whole("--rank", f.rank, 0, s.ranks - 1));
  if (s.samples >= kMostPermuted)
    throw InputError{"--rank " + f.rank,
                     fmt::format("of a data set of at most {} samples", kMostPermuted - 1)};
  a.indices = samples_of(s, *a.rank, f.no_shuffle ? std::nullopt : std::optional(seed));
  return a;
}

double seconds(const Answer& a) {
  return static_cast<double>(a.step.ps) * 1e-12 * static_cast<double>(a.epoch.steps);
}

std::string table(const Answer& a) {
  const Sampling& s = a.sampling;
  std::string out = fmt::format(
      "{}{} samples on {} rank{}, {} a micro-step{}\n\n", a.subject.empty() ? "" : a.subject + ": ",
      s.samples, s.ranks, s.ranks == 1 ? "" : "s", s.batch,
      s.accumulation > 1 ? fmt::format(", {} micro-steps a step", s.accumulation) : "");
  out += epoch_sentence(s, a.epoch) + "\n";
  if (a.step.ps > 0 && a.epoch.steps > 0)
    out += fmt::format("an epoch takes {:.1f} s: {} each, the last one counted as a whole one\n",
                       seconds(a), to_string(a.step));
  if (!a.rank) return out;
  out += fmt::format("\nrank {} sees\n", *a.rank);
  const auto batch = static_cast<std::size_t>(std::min<std::int64_t>(s.batch, a.epoch.per_rank));
  for (std::size_t from = 0, n = 0; n < static_cast<std::size_t>(a.epoch.batches);
       from += batch, ++n) {
    if (from >= a.limit) return out + "  ... (--limit)\n";
    const std::size_t to = std::min(from + batch, a.indices.size());
    const std::size_t shown = std::min(to, a.limit);
    out += fmt::format("  batch {}: {}{}\n", n,
                       fmt::join(a.indices.begin() + static_cast<std::ptrdiff_t>(from),
                                 a.indices.begin() + static_cast<std::ptrdiff_t>(shown), " "),
                       shown < to ? " ..." : "");
  }
  return out;
}

io::OrderedJson json(const Answer& a) {
  io::OrderedJson j = epoch_json(a.sampling, a.epoch);
  j["schema"] = "ddpsim.epoch/1";
  if (a.step.ps > 0) {
    j["step_ps"] = a.step.ps;
    j["epoch_s"] = seconds(a);
  }
  if (a.rank) {
    j["rank"] = *a.rank;
    j["indices"] = a.indices;
  }
  return j;
}

}  // namespace

std::string epoch_sentence(const Sampling& s, const Epoch& e) {
  std::string out = fmt::format("{} samples a rank", e.per_rank);
  if (e.padding > 0) out += fmt::format(" ({} that somebody has already are repeated)", e.padding);
  if (e.dropped > 0) out += fmt::format(" ({} are left out)", e.dropped);
  if (e.batches == 0) return out + "; no step: not one whole batch";
  out += fmt::format("; {} step{} an epoch", e.steps, e.steps == 1 ? "" : "s");
  if (e.last_step < s.accumulation)
    out += fmt::format(", the last of {} of {} micro-steps", e.last_step, s.accumulation);
  out += e.last_batch == s.batch
             ? ", every batch whole"
             : fmt::format(", the last batch has {} of {} samples on every rank", e.last_batch,
                           s.batch);
  return out;
}

io::OrderedJson epoch_json(const Sampling& s, const Epoch& e) {
  return {{"samples", s.samples},
          {"ranks", s.ranks},
          {"batch", s.batch},
          {"accumulation_steps", s.accumulation},
          {"drop_last", s.drop_last},
          {"drop_last_batch", s.drop_last_batch},
          {"samples_per_rank", e.per_rank},
          {"repeated", e.padding},
          {"left_out", e.dropped},
          {"micro_steps", e.batches},
          {"last_batch", e.last_batch},
          {"steps", e.steps},
          {"last_step_micro_steps", e.last_step}};
}

void add_epoch(Command& app, Terminal& t) {
  auto flags = std::make_shared<EpochFlags>();
  Command* c = app.add_subcommand(
      "epoch",
      "What a DistributedSampler gives each rank: samples, steps an epoch, the last batch");
  add_question_flags(*c, flags->question);
  c->add_option("--epoch-samples", flags->samples, "of the data set");
  c->add_option("--batch", flags->batch, "of a rank and a micro-step, without a workload");
  c->add_option("--accumulation", flags->accumulation, "micro-steps of a step, without a workload");
  c->add_flag("--drop-last", flags->drop_last, "DistributedSampler(drop_last=True)");
  c->add_flag("--drop-last-batch", flags->drop_last_batch, "DataLoader(drop_last=True)");
  c->add_option("--rank", flags->rank, "also say which samples this rank sees, in order");
  c->add_option("--epoch", flags->epoch, "beside --rank: what set_epoch() was told; default 0");
  c->add_option("--seed", flags->seed, "beside --rank: the sampler's; default 0");
  c->add_flag("--no-shuffle", flags->no_shuffle, "beside --rank: shuffle=False");
  c->add_option("--limit", flags->limit, "beside --rank: samples that the table shows; default 20");
  add_output_flags(*c, flags->output, {"table", "json"});
  c->callback([&t, flags] {
    const Answer a = read(t, *flags);
    write_answer(t, flags->output,
                 flags->output.format == "json" ? json(a).dump(1) + "\n" : table(a));
  });
}

}  // namespace ddpsim::cli
