#include <map>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/units/text.h"
#include "tools/cmd/steps.h"

namespace ddpsim::cli {
namespace {

using namespace validation;

std::string hundred(double v) {
  return fmt::format("{:.1f}", 100 * v);
}
std::string signed_hundred(double v) {
  return fmt::format("{:+.1f}", 100 * v);
}
const char* name_of(StepQuestion q) {
  return kStepQuestions[q];
}
// For people.
const char* words_of(StepQuestion q) {
  switch (q) {
    case StepQuestion::OneGpu:
      return "one GPU";
    case StepQuestion::SourceLeftOut:
      return "one GPU, its source left out";
    case StepQuestion::GenerationLeftOut:
      return "one GPU, its generation left out";
    case StepQuestion::SeveralGpus:
      return "several GPUs";
    case StepQuestion::OneHost:
      return "one host, computation as measured";
    case StepQuestion::OneHostSourceLeftOut:
      return "one host, its source left out";
    case StepQuestion::SeveralHostsSourceLeftOut:
      return "several hosts, its source left out";
    case StepQuestion::SeveralHosts:
      return "several hosts, computation as measured";
  }
  return "";
}
std::string part_of(const StepGroup& g) {
  return g.by == "all" ? "all" : g.by + " " + g.name;
}

struct Column {
  const char* title;
  std::string (*of)(const StepGroup&);
};
constexpr Column kColumns[] = {
    {"rows",
     [](const StepGroup& g) {
       return g.set_aside > 0 && is_relative(g.question)
                  ? fmt::format("{} ({} set aside)", g.n, g.set_aside)
                  : std::to_string(g.n);
     }},
    {"sources", [](const StepGroup& g) { return std::to_string(g.sources); }},
    {"median error, %", [](const StepGroup& g) { return signed_hundred(g.bias); }},
    {"median |error|, %", [](const StepGroup& g) { return hundred(g.median); }},
    {"p95, %", [](const StepGroup& g) { return hundred(g.p95); }},
    {"in interval", [](const StepGroup& g) { return fmt::format("{}/{}", g.within, g.n); }},
    {"of the others, %",
     [](const StepGroup& g) { return g.left_out ? hundred(*g.left_out) : std::string("-"); }},
};

std::string of_sources(const StepSources& s) {
  return fmt::format(
      "each source by its own median: {} % (median), {} % (worst: {}); worst generation: {} % ({})",
      hundred(s.median), hundred(s.worst_median), s.worst, hundred(s.worst_generation_median),
      s.worst_generation.empty() ? "not known" : s.worst_generation);
}
std::string counted(const StepsReport& r) {
  return fmt::format("{} published rows, {} predicted", r.rows, r.predicted);
}

// Why rows have no prediction: their ids.
std::map<std::string, std::vector<std::string>> not_predicted(const StepsReport& r) {
  std::map<std::string, std::vector<std::string>> out;
  for (const StepResult& x : r.results)
    if (!x.why_not.empty() && is_first(x.question)) out[x.why_not].push_back(x.row.id);
  return out;
}

struct Off {
  std::string ids, settles;
  double least = 0, most = 0;  // error
};
// By cause. A row's last question is what is judged of it: of several GPUs, what they add.
std::map<std::string, Off> known_off(const StepsReport& r) {
  std::map<std::string, const StepResult*> last;
  for (const StepResult& x : r.results)
    if (!x.row.off.empty() && x.why_not.empty() &&
        (is_first(x.question) || is_relative(x.question)))
      if (auto& of = last[x.row.id]; !of || is_first(of->question)) of = &x;
  std::map<std::string, Off> out;
  for (const auto& [id, x] : last) {
    Off& o = out[x->row.off];
    o.least = o.ids.empty() ? x->error : std::min(o.least, x->error);
    o.most = o.ids.empty() ? x->error : std::max(o.most, x->error);
    o.ids += (o.ids.empty() ? "" : ", ") + id;
    o.settles = x->row.settles;
  }
  return out;
}

std::string printed(const PublishedStep& row) {
  constexpr const char* kText[] = {"samples/s", "s", "ms, no optimizer"};
  return fmt::format("{} {}", row.measured, kText[static_cast<std::size_t>(row.unit)]);
}

std::string error_cell(const StepResult* r) {
  if (!r) return "";
  if (!r->why_not.empty()) return "-";
  return signed_hundred(r->error) + (in_interval(*r) ? "" : " *");
}

std::string multiples(const StepInterval& i) {
  return fmt::format("{:.3f} to {:.3f}", i.low, i.high);
}
std::string by_source(const StepInterval& i) {
  std::string out;
  for (const auto& l : i.left_out)
    out += fmt::format("{}{} {}/{}", out.empty() ? "" : ", ", l.source, l.within, l.n);
  return out;
}
// In the intervals as predicted.
std::size_t told_within(const StepsReport& r, StepQuestion question) {
  for (const StepGroup& g : r.groups)
    if (g.question == question && g.by == "all") return g.within;
  return 0;
}

io::OrderedJson interval_json(const StepsReport& r, const StepInterval& i) {
  io::OrderedJson sources = io::OrderedJson::array();
  for (const auto& l : i.left_out)
    sources.push_back({{"source", l.source}, {"n", l.n}, {"in_interval", l.within}});
  return {{"question", name_of(i.question)},
          {"n", i.rows},
          {"sources", i.sources},
          {"low", i.low},
          {"high", i.high},
          {"in_interval", told_within(r, i.question)},
          {"left_out", sources},
          {"left_out_coverage", i.coverage()}};
}

io::OrderedJson group_json(const StepGroup& g) {
  io::OrderedJson out = {{"question", name_of(g.question)},
                         {"by", g.by},
                         {"name", g.name},
                         {"n", g.n},
                         {"set_aside", g.set_aside},
                         {"sources", g.sources},
                         {"median_error", g.bias},
                         {"median_abs_error", g.median},
                         {"p95_abs_error", g.p95},
                         {"in_interval", g.within}};
  out["others_median_abs_error"] = g.left_out ? io::OrderedJson(*g.left_out) : io::OrderedJson();
  return out;
}

}  // namespace

std::string steps_table(const StepsReport& r) {
  std::string out = counted(r) + "\n";
  auto line = [&](const StepGroup& g, const std::string& what) {
    out += fmt::format("  {:<42}", what);
    for (const Column& c : kColumns) out += fmt::format(" {:>17}", c.of(g));
    out += "\n";
  };
  for (std::size_t k = 0; k < kStepQuestions.size(); ++k) {
    auto question = static_cast<StepQuestion>(k);
    if (!r.sources.count(question)) continue;
    out += fmt::format("\n{:<44}", words_of(question));
    for (const Column& c : kColumns) out += fmt::format(" {:>17}", c.title);
    out += "\n";
    for (const StepGroup& g : r.groups)
      if (g.question == question) line(g, part_of(g));
    for (const StepGroup& g : r.in_sample)
      if (g.question == question) line(g, "in sample or set aside, in no line above");
    out += "  " + of_sources(r.sources.at(question)) + "\n";
  }
  out +=
      "\nmeasured / predicted, 80 % of another source; each source in the interval of the others\n";
  for (const StepInterval& i : r.intervals)
    out += fmt::format("  {:<42} {:>17} {:>5.0f} %  {}\n", words_of(i.question), multiples(i),
                       100 * i.coverage(), by_source(i));
  for (const auto& [why, ids] : not_predicted(r))
    out +=
        fmt::format("\nnot predicted, {} rows: {}\n  {}\n", ids.size(), why, fmt::join(ids, ", "));
  return out;
}

std::string steps_markdown(const StepsReport& r) {
  std::string out =
      "# Published training steps beside predictions\n\nMade by `tools/reports` (`ddpsim validate "
      "--steps --format md`); do not edit. Rows: `calib/published/steps`, facts of public "
      "repositories;\nnothing of them was measured by ddpsim. " +
      counted(r) +
      ".\n\n*One GPU* and *several GPUs*: predicted from nothing that was measured there. "
      "*Computation as measured*: with the step that the same source printed for one GPU\n"
      "(`--measured-step`), so that what is judged is what several GPUs add. Error: predicted "
      "step / measured step - 1. Two constants are fitted to these rows: what feeds tensor cores "
      "(docs/model.md 5.1), to those\nof one GPU, and how much ranks vary (7), to those whose "
      "computation is as measured. The sections that leave out a source or\na generation choose "
      "them without the row's own. *Of the others*: the median |error| of all rows that are not of "
      "that line. *n set aside*: rows of that line whose own step is set aside (the last section "
      "says why);\nthe line judges only what several GPUs add to it.\n";
  std::string head = "| |", rule = "|---|";
  for (const Column& c : kColumns)
    head += " " + report::markdown_cell(c.title) + " |", rule += "---:|";
  auto line = [&](const StepGroup& g, const std::string& what) {
    out += "| " + report::markdown_cell(what) + " |";
    for (const Column& c : kColumns) out += " " + c.of(g) + " |";
    out += "\n";
  };
  for (std::size_t k = 0; k < kStepQuestions.size(); ++k) {
    auto question = static_cast<StepQuestion>(k);
    if (!r.sources.count(question)) continue;
    std::string title = words_of(question);
    title.front() = static_cast<char>(title.front() - 'a' + 'A');
    out += fmt::format("\n## {}\n\n{}\n{}\n", title, head, rule);
    for (const StepGroup& g : r.groups)
      if (g.question == question) line(g, g.by == "all" ? "**all**" : part_of(g));
    for (const StepGroup& g : r.in_sample)
      if (g.question == question) line(g, "in sample or set aside, in no line above");
    std::string sentence = of_sources(r.sources.at(question));
    sentence.front() = 'E';
    out += "\n" + sentence + ".\n";
  }
  out +=
      "\n## What the intervals are made of\n\nMeasured / predicted of 80 % of the rows of a source "
      "that was not seen: log-normal, each source alike, Student's quantile (docs/model.md 5.1). "
      "The "
      "interval of a prediction is this, or the datasheet's range for host, network and ranks "
      "where "
      "that is wider.\n*Left out*: rows in the interval that the other sources make.\n\n"
      "| family | rows | sources | 80 % | left out | by source | in the predictions' intervals |\n"
      "|---|---:|---:|---:|---:|---|---:|\n";
  for (const StepInterval& i : r.intervals)
    out += fmt::format("| {} | {} | {} | {} | {:.0f} % | {} | {} |\n", words_of(i.question), i.rows,
                       i.sources, multiples(i), 100 * i.coverage(), by_source(i),
                       told_within(r, i.question));
  out +=
      "\n## Rows\n\n\\*: outside the 80 % interval. Batch per GPU and micro-step; x: micro-steps."
      "\n\n| row | workload | batch | precision | GPUs (hosts) | printed | error, % | computation "
      "as "
      "measured, % |\n|---|---|---:|---|---|---|---:|---:|\n";
  for (std::size_t i = 0; i < r.results.size(); ++i) {
    const StepResult& x = r.results[i];
    if (!is_first(x.question)) continue;
    const StepResult* relative = i + 1 < r.results.size() && r.results[i + 1].row.id == x.row.id
                                     ? &r.results[i + 1]
                                     : nullptr;
    std::string batch = std::to_string(x.row.batch);
    if (x.row.accumulation_steps > 1) batch += fmt::format(" x {}", x.row.accumulation_steps);
    std::string workload = x.row.workload.substr(x.row.workload.rfind('/') + 1);
    if (workload.ends_with(".json")) workload.resize(workload.size() - 5);
    out += fmt::format("| {} | {} | {} | {} | {} {} ({}) | {} | {}{} | {} |\n",
                       report::markdown_cell(x.row.id), report::markdown_cell(workload), batch,
                       x.row.precision, x.row.ranks, report::markdown_cell(x.row.gpu), x.row.hosts,
                       printed(x.row), error_cell(&x), x.row.fitted.empty() ? "" : " (in sample)",
                       error_cell(relative));
  }
  out +=
      "\n## What is off, and why as far as found\n\nErrors are those of the rows above: their own "
      "steps, or with computation as measured where they have that; all of them are judged.\n\n"
      "| rows | error, % | why, as far as found | what would settle it |\n|---|---|---|---|\n";
  for (const auto& [why, rows] : known_off(r))
    out += fmt::format("| {} | {} to {} | {} | {} |\n", report::markdown_cell(rows.ids),
                       signed_hundred(rows.least), signed_hundred(rows.most),
                       report::markdown_cell(why), report::markdown_cell(rows.settles));
  out += "\n## In sample\n\n";
  for (const StepResult& x : r.results)
    if (!x.row.fitted.empty() && is_first(x.question))
      out += fmt::format("- {}: {}\n", x.row.id, x.row.fitted);
  out += "\n## Set aside\n\nTheir own steps; what several GPUs add to them is judged.\n\n";
  std::map<std::string, std::vector<std::string>> aside;
  for (const StepResult& x : r.results)
    if (!x.row.set_aside.empty() && is_first(x.question))
      aside[x.row.set_aside].push_back(x.row.id);
  for (const auto& [why, ids] : aside) out += fmt::format("- {}: {}\n", fmt::join(ids, ", "), why);
  auto missing = not_predicted(r);
  if (!missing.empty()) out += "\n## Not predicted\n\n";
  for (const auto& [why, ids] : missing)
    out += fmt::format("- {} rows, {}: {}\n", ids.size(), why, fmt::join(ids, ", "));
  return out;
}

io::OrderedJson steps_json(const StepsReport& r) {
  io::OrderedJson rows = io::OrderedJson::array();
  for (const StepResult& x : r.results) {
    io::OrderedJson row = {{"id", x.row.id},
                           {"source", x.row.source},
                           {"question", name_of(x.question)},
                           {"gpu", x.row.gpu},
                           {"ranks", x.row.ranks},
                           {"sample", !x.row.fitted.empty()      ? "in_sample"
                                      : !x.row.set_aside.empty() ? "set_aside"
                                                                 : "held_out"},
                           {"measured_ps", x.measured.ps}};
    if (x.why_not.empty()) {
      row["predicted_ps"] = x.predicted.ps;
      row["step_low_ps"] = x.low.ps;
      row["step_high_ps"] = x.high.ps;
      row["error"] = x.error;
      row["in_interval"] = in_interval(x);
    } else {
      row["not_predicted"] = x.why_not;
    }
    rows.push_back(std::move(row));
  }
  io::OrderedJson groups = io::OrderedJson::array(), seen = io::OrderedJson::array();
  for (const StepGroup& g : r.groups) groups.push_back(group_json(g));
  for (const StepGroup& g : r.in_sample) seen.push_back(group_json(g));
  io::OrderedJson sources = io::OrderedJson::object();
  for (const auto& [question, s] : r.sources)
    sources[name_of(question)] = {{"median", s.median},
                                  {"worst", s.worst},
                                  {"worst_median", s.worst_median},
                                  {"worst_generation", s.worst_generation},
                                  {"worst_generation_median", s.worst_generation_median}};
  io::OrderedJson intervals = io::OrderedJson::array();
  for (const StepInterval& i : r.intervals) intervals.push_back(interval_json(r, i));
  io::OrderedJson known = io::OrderedJson::object();
  for (const auto& [name, value] : values(r)) known[name] = value;
  io::OrderedJson limits = io::OrderedJson::array();
  bool passed = true;
  for (const LimitResult& l : r.limits) {
    io::OrderedJson one = {{"what", l.limit.what}, {"value", nullptr}};
    if (l.value) one["value"] = *l.value;
    if (l.limit.min) one["min"] = *l.limit.min;
    if (l.limit.max) one["max"] = *l.limit.max;
    one["broken"] = l.broken;
    passed = passed && !l.broken;
    limits.push_back(std::move(one));
  }
  return {{"rows", r.rows},         {"predicted", r.predicted}, {"results", rows},
          {"groups", groups},       {"in_sample", seen},        {"over_sources", sources},
          {"intervals", intervals}, {"values", known},          {"limits", limits},
          {"passed", passed}};
}

}  // namespace ddpsim::cli
