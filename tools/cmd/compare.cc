// ddpsim compare: one predicted Run beside one measured Run of the same case.
#include "sim/analysis/compare.h"

#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include "sim/io/write_page.h"
#include "sim/report/text.h"
#include "sim/units/text.h"
#include "tools/cmd/compare_programs.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct CompareFlags {
  std::string predicted;
  std::string measured;
  std::string tolerance;
  std::string ambiguous;
  analysis::CompareOptions options;
  OutputFlags output;
};

// A Run file, or what `ddpsim predict --format json` wrote.
Run run_of(io::Json j, const std::string& path) {
  if (j.is_object() && !j.contains("schema") && j.contains("run")) j = io::Json(j["run"]);
  return io::read_run(j, path);
}

void check_run(const Run& run, const std::string& path, RunKind wanted) {
  if (run.kind != wanted)
    throw InputError{
        path,
        wanted == RunKind::Predicted
            ? "is a measured run; give the predicted one first: ddpsim compare PREDICTED MEASURED"
            : "is a predicted run; give the measured one second: ddpsim compare PREDICTED "
              "MEASURED"};
  bool steady = std::any_of(run.steps.begin(), run.steps.end(),
                            [](const StepRecord& s) { return s.kind == StepKind::Steady; });
  if (!steady)
    throw InputError{path + "#/steps", "has no steady step, so there is nothing to compare"};
}

double ms(Duration d) {
  return static_cast<double>(d.ps) / 1e9;
}

// Two predictions: what a change of the question, or of ddpsim, changed. No verdict of truth.
struct Change {
  std::string name;  // "step", or a bucket's
  Duration before;
  Duration after;
  double change = 0;  // of the step before
};

std::vector<Change> changes_of(const Run& before, const Run& after) {
  auto step = [](const Run& r) { return analysis::typical_step(r, false); };
  double whole = static_cast<double>(step(before).ps);
  std::vector<Change> out{{"step", step(before), step(after), 0}};
  std::vector<analysis::BucketEnd> ends = analysis::bucket_ends(after);
  for (const analysis::BucketEnd& b : analysis::bucket_ends(before))
    for (const analysis::BucketEnd& a : ends)
      if (a.name == b.name) out.push_back({b.name, b.end, a.end, 0});
  for (Change& c : out) c.change = static_cast<double>((c.after - c.before).ps) / whole;
  return out;
}

void compare_predictions(Terminal& t, const CompareFlags& flags, const Run& before,
                         const Run& after) {
  const std::string& format = flags.output.format;
  if (!flags.output.html.empty())
    throw InputError{"--html",
                     "is of a predicted beside a measured run; of two predictions there are table, "
                     "csv, md and json"};
  if (!flags.ambiguous.empty() || flags.options.mean)
    throw InputError{flags.options.mean ? "--mean" : "--ambiguous",
                     "is of a measured run, and both are predicted"};
  check_run(before, flags.predicted, RunKind::Predicted);
  check_run(after, flags.measured, RunKind::Predicted);
  std::vector<Change> all = changes_of(before, after);
  double change = all.front().change;
  bool failed = std::abs(change) > flags.options.tolerance;
  std::string text;
  if (format == "json") {
    io::OrderedJson j{{"verdict", failed ? "outside" : "within"},
                      {"failed", failed},
                      {"tolerance", flags.options.tolerance},
                      {"before_key", before.key},
                      {"after_key", after.key},
                      {"changes", io::OrderedJson::array()}};
    for (const Change& c : all)
      j["changes"].push_back({{"name", c.name},
                              {"before_ps", c.before.ps},
                              {"after_ps", c.after.ps},
                              {"of_step", c.change}});
    text = j.dump(1) + "\n";
  } else if (format == "csv") {
    text = "name,before_ps,after_ps,of_step\n";
    for (const Change& c : all)
      text += fmt::format("{},{},{},{}\n", report::csv_field(c.name), c.before.ps, c.after.ps,
                          c.change);
  } else if (format == "md") {
    text = "| two predictions | before | after | of the step |\n|---|--:|--:|--:|\n";
    for (const Change& c : all)
      text += fmt::format("| {} | {} | {} | {:+.3f} % |\n", report::markdown_cell(c.name),
                          to_string(c.before), to_string(c.after), 100 * c.change);
  } else {
    text = fmt::format(
        "before     {}, profile {}\nafter      {}, profile {}\nverdict    {} {:g} %\n\n",
        before.key, before.profile, after.key, after.profile,
        failed ? "differs by more than" : "within", 100 * flags.options.tolerance);
    text += fmt::format("{:<44} {:>14} {:>14} {:>12}\n", "end of (ms from the start of the step)",
                        "before", "after", "of step");
    for (const Change& c : all)
      text += fmt::format("{:<44} {:>14.4f} {:>14.4f} {:>+10.3f} %\n", c.name, ms(c.before),
                          ms(c.after), 100 * c.change);
  }
  write_answer(t, flags.output, text);
  if (!failed) return;
  t.err << fmt::format("ddpsim: {}: the predicted step changed by {:+.3f} %, more than {:g} %\n",
                       printable(flags.measured), 100 * change, 100 * flags.options.tolerance);
  throw GateFailed{};
}

io::OrderedJson json_of(const analysis::Comparison& c) {
  io::OrderedJson j{{"verdict", analysis::name_of(c.verdict)},
                    {"failed", c.failed},
                    {"reason", c.reason},
                    {"mismatch", c.mismatch},
                    {"schedule_checked", c.schedule_checked},
                    {"predicted_ps", c.predicted.ps},
                    {"measured_ps", c.measured.ps},
                    {"error", c.error}};
  auto ends = [](const std::vector<analysis::EndError>& v) {
    io::OrderedJson out = io::OrderedJson::array();
    for (const auto& e : v)
      out.push_back({{"name", e.name},
                     {"bytes", e.bytes},
                     {"predicted_end_ps", e.predicted.ps},
                     {"measured_end_ps", e.measured.ps},
                     {"error", e.error}});
    return out;
  };
  j["buckets"] = ends(c.buckets);
  j["phases"] = ends(c.phases);
  j["spans"] = io::OrderedJson::array();
  for (const auto& s : c.spans)
    j["spans"].push_back({{"op", s.op},
                          {"lane", s.lane},
                          {"predicted_begin_ps", s.predicted_begin.ps},
                          {"predicted_end_ps", s.predicted_end.ps},
                          {"measured_begin_ps", s.measured_begin.ps},
                          {"measured_end_ps", s.measured_end.ps},
                          {"difference_ps", s.difference.ps}});
  return j;
}

std::string csv_of(const analysis::Comparison& c) {
  std::string out =
      "op,lane,predicted_begin_ps,predicted_end_ps,measured_begin_ps,measured_end_ps,difference_"
      "ps\n";
  out += fmt::format("step,,0,{},0,{},{}\n", c.predicted.ps, c.measured.ps,
                     (c.predicted - c.measured).ps);
  for (const auto& s : c.spans)
    out +=
        fmt::format("{},{},{},{},{},{},{}\n", report::csv_field(s.op), s.lane, s.predicted_begin.ps,
                    s.predicted_end.ps, s.measured_begin.ps, s.measured_end.ps, s.difference.ps);
  return out;
}

std::string table_of(const Run& p, const Run& m, const analysis::Comparison& c) {
  std::string out = fmt::format(
      "predicted  {:.3f} ms  ({}, profile {})\nmeasured   {:.3f} ms  ({}, {}, {})\nerror      "
      "{:+.3f} %\nverdict    {}{}\n",
      ms(c.predicted), p.key, p.profile, ms(c.measured), m.key, name_of(m.evidence),
      m.quality.verdict == Verdict::Clean ? "clean" : "noisy", 100 * c.error,
      analysis::name_of(c.verdict), c.reason.empty() ? "" : ": " + c.reason);
  if (p.key != m.key) out += "note       the keys differ: the two may not be of the same case\n";
  if (!c.schedule_checked)
    out +=
        "note       no collective that every step of both has: the schedules were not compared\n";
  if (c.spans.empty()) return out;
  out += fmt::format("\n{:<44} {:<8} {:>12} {:>12} {:>12} {:>12} {:>12}  {:>8}\n",
                     "operation (ms from the start of the step)", "lane", "begin pred.",
                     "begin meas.", "end pred.", "end meas.", "difference", "of step");
  for (const auto& s : c.spans)
    out += fmt::format(
        "{:<44} {:<8} {:>12.4f} {:>12.4f} {:>12.4f} {:>12.4f} {:>+12.4f}  {:>+7.3f}%\n", s.op,
        s.lane, ms(s.predicted_begin), ms(s.measured_begin), ms(s.predicted_end),
        ms(s.measured_end), ms(s.difference),
        100 * static_cast<double>(s.difference.ps) / static_cast<double>(c.measured.ps));
  return out;
}

std::string markdown_of(const Run& p, const Run& m, const analysis::Comparison& c) {
  std::string out = fmt::format(
      "## {}\n\n**{:+.3f} %**, {}{}: predicted {} (profile {}), measured {} ({}, {}).\n",
      report::markdown_cell(m.key), 100 * c.error, analysis::name_of(c.verdict),
      c.reason.empty() ? "" : " (" + c.reason + ")", to_string(c.predicted), p.profile,
      to_string(c.measured), name_of(m.evidence),
      m.quality.verdict == Verdict::Clean ? "clean" : "noisy");
  if (c.spans.empty()) return out;
  out +=
      "\n| operation | lane | predicted end | measured end | difference | of the step "
      "|\n|---|---|--:|--:|--:|--:|\n";
  for (const auto& s : c.spans)
    out += fmt::format(
        "| {} | {} | {} | {} | {} | {:+.3f} % |\n", report::markdown_cell(s.op), s.lane,
        to_string(s.predicted_end), to_string(s.measured_end), to_string(s.difference),
        100 * static_cast<double>(s.difference.ps) / static_cast<double>(c.measured.ps));
  return out;
}

io::OrderedJson page_data(const Run& p, const Run& m, const analysis::Comparison& c,
                          double tolerance) {
  io::OrderedJson j{{"kind", "compare"},
                    {"title", m.key},
                    {"tolerance", tolerance},
                    {"comparison", json_of(c)},
                    {"predicted", io::page_run(p)},
                    {"measured", io::page_run(m)}};
  j["measured"]["evidence"] = name_of(m.evidence);
  const Origin& o = m.origin;
  j["measured"]["origin"] = {
      {"date", o.date},       {"backend", o.backend},   {"hosts", o.hosts},
      {"cpu", o.cpu},         {"cores", o.cores},       {"gpu", o.gpu},
      {"kernel", o.kernel},   {"software", o.software}, {"compute", o.compute},
      {"profile", o.profile}, {"version", o.version}};
  j["measured"]["quality"] = {{"verdict", m.quality.verdict == Verdict::Clean ? "clean" : "noisy"},
                              {"spread", m.quality.spread},
                              {"retransmits", m.quality.retransmits},
                              {"load", m.quality.load},
                              {"reasons", m.quality.reasons}};
  return j;
}

}  // namespace

void add_compare(Command& app, Terminal& t) {
  auto flags = std::make_shared<CompareFlags>();
  Command* c =
      app.add_subcommand("compare",
                         "Compare a predicted run with a measured run of the same case, operation "
                         "by operation; or two predictions, before and after a "
                         "change; or two programs");
  c->add_option("predicted", flags->predicted,
                "predicted Run, or the output of ddpsim predict --format json; may be gzip; or "
                "a program (ddpsim show program --format json)")
      ->required();
  c->add_option("measured", flags->measured,
                "measured Run, or a second prediction; may be gzip; or "
                "a program (ddpsim_record_program.py)")
      ->required();
  c->add_option("--tolerance", flags->tolerance,
                "of the step's relative error (of two predictions: change, either way), for the "
                "verdict; default 0.02");
  c->add_option("--ambiguous", flags->ambiguous,
                "an ambiguous comparison (a noisy run, loopback) fails beyond this relative error, "
                "too; default 0.10, at least the tolerance");
  c->add_flag("--mean", flags->options.mean,
              "the step is the mean of the steady steps, not their median (for steps that differ, "
              "as beside another job)");
  add_output_flags(*c, flags->output, {"table", "csv", "json", "md"});
  add_html_flag(*c, flags->output);
  c->callback([&t, flags] {
    check_html(flags->output);
    flags->options.tolerance = tolerance_of(flags->tolerance);
    if (!flags->ambiguous.empty())
      flags->options.ambiguous = parse_positive("--ambiguous", flags->ambiguous, 1e6);
    io::Json first = io::parse_json(io::read_file(flags->predicted), flags->predicted);
    io::Json second = io::parse_json(io::read_file(flags->measured), flags->measured);
    if (is_program(first) && is_program(second))
      return compare_program_files(t, flags->output, first, flags->predicted, second,
                                   flags->measured);
    Run p = run_of(std::move(first), flags->predicted);
    Run m = run_of(std::move(second), flags->measured);
    if (p.kind == RunKind::Predicted && m.kind == RunKind::Predicted)
      return compare_predictions(t, *flags, p, m);
    check_run(p, flags->predicted, RunKind::Predicted);
    check_run(m, flags->measured, RunKind::Measured);
    analysis::Comparison result = analysis::compare(p, m, flags->options);
    write_html(t, flags->output, [&] { return page_data(p, m, result, flags->options.tolerance); });
    const std::string& format = flags->output.format;
    write_answer(t, flags->output,
                 format == "json"  ? json_of(result).dump(1) + "\n"
                 : format == "csv" ? csv_of(result)
                 : format == "md"  ? markdown_of(p, m, result)
                                   : table_of(p, m, result));
    if (!result.failed) return;
    t.err << "ddpsim: " << flags->measured << ": " << result.reason << "\n";
    throw GateFailed{};
  });
}

}  // namespace ddpsim::cli
