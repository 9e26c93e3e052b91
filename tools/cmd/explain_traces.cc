#include "tools/cmd/explain_traces.h"

#include <ostream>

#include <fmt/format.h>

#include "sim/analysis/explain_traces.h"
#include "sim/analysis/traced_workload.h"
#include "sim/io/byte_stream.h"
#include "sim/io/kineto.h"
#include "sim/io/nsys.h"
#include "sim/io/write_traced.h"
#include "sim/report/text.h"
#include "sim/units/text.h"
#include "tools/cmd/import_traces.h"
#include "tools/cmd/traces.h"

namespace ddpsim::cli {
namespace {

using analysis::TraceExplanation;

// The measured computation on another network.
struct Elsewhere {
  std::string cluster;
  int ranks = 0;
  std::string basis;
  Duration step;
  Duration low;
  Duration high;
  Duration exposed;
};

// `remedy`: how to record traces of whole steps.
Elsewhere elsewhere(const Terminal& t, const analysis::TracedRanks& job,
                    const QuestionFlags& question, const std::string& remedy) {
  analysis::ImportSetting setting;
  setting.name = "traced";
  std::optional<Workload> model;
  if (!question.workload.empty()) {
    std::string file = home_of(t).find("workloads", question.workload, "workload");
    model = io::read_workload(io::parse_json(io::read_file(file), file), file);
    setting.model = &*model;
  }
  const analysis::RankTrace& first = job.ranks.front();
  analysis::ImportedWorkload made;
  try {
    made = analysis::workload_of(first.trace, setting, remedy);
  } catch (const InputError& e) {
    throw InputError{"--cluster " + question.cluster,
                     "asks for a prediction, and " + e.where + ": " + e.what +
                         (model ? "" : " (here the flag is --workload)")};
  }
  QuestionFlags q = question;
  q.scenario.clear();
  q.workload = setting.name;
  q.described =
      io::Json::parse(io::write_workload(made, first.trace, io::OrderedJson::object()).dump());
  if (q.ranks.empty()) {
    int ranks = first.trace.world > 0 ? first.trace.world : static_cast<int>(job.ranks.size());
    q.ranks = std::to_string(ranks);
  }
  Loaded l = load(t, q);
  predict::Prediction p = predict::predict(l.question(), l.options);
  return {l.cluster.name,
          l.scenario.ranks,
          report::basis_sentence(l.profile, l.workload),
          p.summary.step,
          p.step_low,
          p.step_high,
          p.summary.exposed_communication};
}

std::string late_words(const analysis::CollectiveStory& c) {
  if (c.late_steps == 0) return "";
  return fmt::format("rank {} ({} of {}), {} behind", c.late_rank, c.late_steps, c.steps,
                     to_string(c.late_by));
}

constexpr const char* kDecisions[] = {"computation", "host", "late_ranks", "network"};

const char* decision_words(const TraceExplanation& e) {
  switch (analysis::decision_of(e)) {
    case analysis::TraceDecision::Host:
      return "the host, which enqueues too late";
    case analysis::TraceDecision::LateRanks:
      return "ranks that come late to collectives";
    case analysis::TraceDecision::Network:
      return "the network";
    case analysis::TraceDecision::Computation:
      break;
  }
  return "computation";
}

std::string page(const analysis::TracedRanks& job, const TraceExplanation& e,
                 const std::optional<Elsewhere>& other) {
  std::string out =
      fmt::format("measured: {} step{} of {} rank{}, {} on average ({} to {})\n\n", e.steps,
                  e.steps == 1 ? "" : "s", e.ranks.size(), e.ranks.size() == 1 ? "" : "s",
                  to_string(e.step), to_string(e.step_least), to_string(e.step_most));
  out += "where the time goes, on average\n";
  out += fmt::format("  {:<6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>8}\n", "rank", "forward",
                     "backward", "optimizer", "computes", "waits", "last");
  for (const auto& r : e.ranks)
    out += fmt::format("  {:<6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>8}\n", r.rank,
                       to_string(r.forward), to_string(r.backward), to_string(r.optimizer),
                       to_string(r.computing), to_string(r.waiting), r.last);
  out += "\n";
  if (e.ranks.size() > 1)
    out += fmt::format(
        "the slowest rank computes {} longer than the mean ({:.1f} % of the step); most often it "
        "is rank {} ({} of {} steps)\n",
        to_string(e.skew), 100 * fraction(e.skew, e.step), e.slowest, e.slowest_steps, e.steps);
  out += fmt::format(
      "communication that nothing covers: {} ({:.1f} %) waiting for ranks that came late, {} "
      "({:.1f} %) for the network; {} ({:.1f} %) is in no phase otherwise\n",
      to_string(e.exposed_late), 100 * fraction(e.exposed_late, e.step),
      to_string(e.exposed_network), 100 * fraction(e.exposed_network, e.step),
      to_string(e.exposed_other), 100 * fraction(e.exposed_other, e.step));
  if (e.late_host.ps > 0)
    out += fmt::format(
        "the host: for {} ({:.1f} %) of the step the device computes nothing because its next "
        "kernel is not enqueued yet\n",
        to_string(e.late_host), 100 * fraction(e.late_host, e.step));
  out += fmt::format("what decides the step: {}\n\n", decision_words(e));
  if (!e.collectives.empty()) {
    out +=
        "collectives, on average: first to last arrival, last arrival to last completion, and "
        "what is exposed of each\n";
    out += fmt::format("  {:<22} {:>10} {:>10} {:>10} {:>10} {:>10}  {}\n", "", "bytes", "waited",
                       "network", "exp.late", "exp.netw.", "came last");
  }
  for (const auto& c : e.collectives)
    out += fmt::format("  {:<22} {:>10} {:>10} {:>10} {:>10} {:>10}  {}\n", c.name,
                       c.bytes < 0 ? "?" : to_string(Bytes{c.bytes}), to_string(c.waited),
                       to_string(c.transfer), to_string(c.exposed_late),
                       to_string(c.exposed_network), late_words(c));
  if (e.what_if) {
    const analysis::WhatIf& w = *e.what_if;
    auto line = [&](const char* what, Duration d) {
      out += fmt::format("  {:<46} {:>11}  {:+.1f} %\n", what, to_string(d),
                         100 * (fraction(d, w.replayed) - 1));
    };
    out += "\nwhat if, replayed from the measured arrivals\n";
    line("as it was", w.replayed);
    if (e.ranks.size() > 1) line("no straggler: every rank as the median one", w.without_straggler);
    line("communication free", w.without_network);
    if (e.ranks.size() > 1) line("both", w.without_both);
    if (e.late_host.ps > 0) line("the host enqueues every kernel in time", w.without_host);
  }
  if (other)
    out += fmt::format(
        "\nthis computation on {} with {} rank{}, predicted: {} ({} to {}), {} of it exposed "
        "communication\nprofile: {}\n",
        other->cluster, other->ranks, other->ranks == 1 ? "" : "s", to_string(other->step),
        to_string(other->low), to_string(other->high), to_string(other->exposed), other->basis);
  else
    out +=
        "\non another network: --cluster NAME [--workload MODEL] predicts this computation "
        "there\n";
  if (job.ranks.size() > 1)
    out += fmt::format("clocks: put together by the ends of collectives, which differ by {}\n",
                       to_string(job.offset_bound));
  for (const std::string& note : e.notes) out += "note: " + printable(note) + "\n";
  return out;
}

io::OrderedJson document(const analysis::TracedRanks& job, const TraceExplanation& e,
                         const std::optional<Elsewhere>& other) {
  io::OrderedJson j = {{"schema", "ddpsim.trace_explanation/1"},
                       {"steps", e.steps},
                       {"step_ps", e.step.ps},
                       {"step_least_ps", e.step_least.ps},
                       {"step_most_ps", e.step_most.ps},
                       {"skew_ps", e.skew.ps},
                       {"slowest", {{"rank", e.slowest}, {"steps", e.slowest_steps}}},
                       {"exposed",
                        {{"late_ps", e.exposed_late.ps},
                         {"network_ps", e.exposed_network.ps},
                         {"other_ps", e.exposed_other.ps}}},
                       {"late_host_ps", e.late_host.ps},
                       {"decides", kDecisions[static_cast<std::size_t>(analysis::decision_of(e))]},
                       {"clock_bound_ps", job.offset_bound.ps},
                       {"ranks", io::OrderedJson::array()},
                       {"collectives", io::OrderedJson::array()}};
  for (std::size_t k = 0; k < e.ranks.size(); ++k) {
    const auto& r = e.ranks[k];
    j["ranks"].push_back({{"rank", r.rank},
                          {"file", job.ranks[k].trace.file},
                          {"clock_ps", job.ranks[k].offset.ps},
                          {"forward_ps", r.forward.ps},
                          {"backward_ps", r.backward.ps},
                          {"optimizer_ps", r.optimizer.ps},
                          {"computing_ps", r.computing.ps},
                          {"waiting_ps", r.waiting.ps},
                          {"last", r.last}});
  }
  for (const auto& c : e.collectives) {
    io::OrderedJson x = {{"name", c.name},
                         {"place", c.place},
                         {"bytes", nullptr},
                         {"ranks", c.ranks},
                         {"steps", c.steps},
                         {"waited_ps", c.waited.ps},
                         {"transfer_ps", c.transfer.ps},
                         {"exposed_late_ps", c.exposed_late.ps},
                         {"exposed_network_ps", c.exposed_network.ps},
                         {"late", nullptr}};
    if (c.bytes >= 0) x["bytes"] = c.bytes;
    if (c.late_steps > 0)
      x["late"] = {{"rank", c.late_rank}, {"steps", c.late_steps}, {"behind_ps", c.late_by.ps}};
    j["collectives"].push_back(std::move(x));
  }
  j["what_if"] = nullptr;
  if (e.what_if)
    j["what_if"] = {{"replayed_ps", e.what_if->replayed.ps},
                    {"without_straggler_ps", e.what_if->without_straggler.ps},
                    {"without_network_ps", e.what_if->without_network.ps},
                    {"without_both_ps", e.what_if->without_both.ps},
                    {"without_host_ps", e.what_if->without_host.ps}};
  j["elsewhere"] = nullptr;
  if (other)
    j["elsewhere"] = {{"cluster", other->cluster},      {"ranks", other->ranks},
                      {"step_ps", other->step.ps},      {"step_low_ps", other->low.ps},
                      {"step_high_ps", other->high.ps}, {"exposed_ps", other->exposed.ps},
                      {"basis", other->basis}};
  j["notes"] = e.notes;
  return j;
}

}  // namespace

bool is_trace(const std::string& path) {
  constexpr std::size_t kLooked = 1 << 20;
  if (io::is_sqlite(path)) return true;
  try {
    io::ByteStream stream(path);
    std::string head;
    for (; head.size() < kLooked && !stream.at_end(); stream.next()) head += stream.current();
    std::size_t first = head.find_first_not_of(" \t\r\n");
    return first != std::string::npos &&
           (head[first] == '[' || head.find("\"traceEvents\"") != std::string::npos ||
            head.find("\"deviceProperties\"") != std::string::npos);
  } catch (const InputError&) {
    return false;
  }
}

void explain_traces(Terminal& t, const std::vector<std::string>& files,
                    const QuestionFlags& question, const OutputFlags& output) {
  for (auto [flag, value] :
       {std::pair{"--plan", &question.plan}, std::pair{"--layers", &question.layers},
        std::pair{"--measured-step", &question.measured_step},
        std::pair{"--samples-per-s", &question.samples_per_s},
        std::pair{"--program", &question.program}})
    if (!value->empty())
      throw InputError{std::string(flag) + " " + *value,
                       "is about a step that is predicted, and traces are of measured ones; "
                       "ddpsim import kineto makes a workload of them"};
  if (question.cluster.empty())
    for (auto [flag, given] :
         {std::pair{"--workload", !question.workload.empty()},
          std::pair{"--ranks", !question.ranks.empty()}, std::pair{"--set", !question.sets.empty()},
          std::pair{"--profile", !question.profiles.empty()}})
      if (given)
        throw InputError{flag,
                         "with traces it asks for their step on another network: name that "
                         "with --cluster, too"};
  if (output.format == "md")
    throw InputError{"--format md", "is of a predicted step; traces have table and json"};
  analysis::TracedRanks job = load_traces(files, kDefaultIterations);
  TraceExplanation e = analysis::explain_traces(job);
  int world = job.ranks.front().trace.world;
  if (world > static_cast<int>(job.ranks.size()))
    e.notes.push_back(fmt::format(
        "the job has {} ranks, and {} of them {} here: who was late is told of these alone", world,
        job.ranks.size(), job.ranks.size() == 1 ? "is" : "are"));
  std::optional<Elsewhere> other;
  if (!question.cluster.empty()) {
    for (const NotCounted& n : analysis::not_counted(job, 0)) e.notes.push_back(in_words(n));
    other = elsewhere(t, job, question,
                      io::is_sqlite(files.front()) ? io::nsys_remedy() : io::kineto_remedy());
  }
  write_answer(t, output,
               output.format == "json" ? json_text(document(job, e, other)) : page(job, e, other));
}

}  // namespace ddpsim::cli
