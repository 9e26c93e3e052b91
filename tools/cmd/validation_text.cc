// A Validation as a page, as JSON (docs/formats.md, validation), as JUnit XML and as Markdown.
#include "tools/cmd/validation_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/report/text.h"

namespace ddpsim::cli {

using namespace validation;

namespace {

double ms(Duration d) {
  return static_cast<double>(d.ps) / 1e9;
}

std::string flags_of(const Pair& p) {
  std::string out;
  if (!p.comparison.mismatch.empty()) out += " MISMATCH";
  if (p.loopback) out += " loopback";
  if (p.noisy) out += " noisy";
  return out;
}

std::vector<double> bucket_errors(const Pair& p) {
  std::vector<double> out;
  for (const auto& b : p.comparison.buckets) out.push_back(b.error);
  return analysis::absolute(out);
}

std::string cap_text(const std::optional<double>& cap) {
  return cap ? fmt::format("{:g}", *cap) : "default";
}

// ---- page

std::string pairs_table(const Validation& v) {
  std::string out;
  std::string heading;
  for (const Pair& p : v.pairs) {
    std::string now = p.evidence + ", " + p.sample;
    if (now != heading) {
      heading = now;
      out += fmt::format("{}{}\n  {:>8} {:>11} {:>11} {:>4} {:>8} {:>8} {:>8} {:>8}  {:<9} {}\n",
                         out.empty() ? "" : "\n", heading, "error %", "measured ms", "predicted",
                         "in", "bucket %", "p95 %", "naive %", "queue %", "verdict", "run");
    }
    std::string buckets = fmt::format("{:>8} {:>8}", "-", "-");
    if (auto b = bucket_errors(p); !b.empty())
      buckets = fmt::format("{:>8.3f} {:>8.3f}", 100 * analysis::median(b),
                            100 * analysis::percentile(b, 95));
    out += fmt::format(
        "  {:>8} {:>11.3f} {:>11.3f} {:>4} {} {:>+8.2f} {:>+8.2f}  {:<9} {}{}\n",
        p.comparison.mismatch.empty() ? fmt::format("{:+.3f}", 100 * p.comparison.error) : "-",
        ms(p.comparison.measured), ms(p.comparison.predicted), in_interval(p) ? "yes" : "no",
        buckets, 100 * p.naive_error, 100 * p.queue_error, analysis::name_of(p.comparison.verdict),
        p.key, flags_of(p));
  }
  return out;
}

std::string aggregate_rows(const Aggregates& all, const std::string& suffix) {
  std::string out;
  for (const auto& [evidence, samples] : all)
    for (const auto& [sample, a] : samples) {
      std::string buckets = a.buckets > 0 ? fmt::format("{:>7.3f} {:>7.3f}", 100 * a.bucket_median,
                                                        100 * a.bucket_p95)
                                          : fmt::format("{:>7} {:>7}", "-", "-");
      out += fmt::format(
          "{:<34} {:>4} {:>7.3f} {:>7.3f} {:>7.3f}  {}  {:>6.1f}  {:>7.2f} {:>7.2f}  {:>7.2f} "
          "{:>7.2f}\n",
          evidence + ", " + sample + suffix, a.n, 100 * a.median, 100 * a.p95, 100 * a.max, buckets,
          100 * a.coverage, 100 * a.naive_median, 100 * a.naive_p95, 100 * a.queue_median,
          100 * a.queue_p95);
    }
  return out;
}

std::string floor_text(const Floor& f) {
  std::string out = fmt::format(
      "{} scenarios were run more than once; their steps differ by {:.3f} % (median), {:.3f} % "
      "(largest)",
      f.scenarios, 100 * f.median, 100 * f.max);
  if (f.buckets > 0)
    out += fmt::format(", the ends of their {} buckets by {:.3f} % (median), {:.3f} % (p95)",
                       f.buckets, 100 * f.bucket_median, 100 * f.bucket_p95);
  return out;
}

std::string aggregates_table(const Validation& v) {
  std::string out =
      fmt::format("{:<34} {:>4} {:>7} {:>7} {:>7}  {:>7} {:>7}  {:>6}  {:>7} {:>7}  {:>7} {:>7}\n",
                  "|error|, % of the measured step", "n", "median", "p95", "max", "bucket", "p95",
                  "in", "naive", "p95", "queue", "p95");
  out += aggregate_rows(v.aggregates, "");
  for (const auto& [why, all] : v.set_aside) out += aggregate_rows(all, " (" + why + ")");
  for (const auto& [evidence, samples] : v.aggregates)
    for (const auto& [sample, a] : samples)
      if (a.firsts > 0 || a.captures > 0) {
        out += fmt::format("{}, {}:", evidence, sample);
        if (a.firsts > 0)
          out += fmt::format(" first step off by at most {:.1f} %", 100 * a.first_max);
        if (a.rebuilds > 0) out += fmt::format(", rebuild by {:.1f} %", 100 * a.rebuild_max);
        if (a.captures > 0)
          out += fmt::format(
              ", {} steps predicted from a capture on one rank by {:.1f} % in the median",
              a.captures, 100 * a.capture_median);
        out += "\n";
      }
  return out;
}

// ---- JSON

io::OrderedJson json_of(const Pair& p) {
  const analysis::Comparison& c = p.comparison;
  io::OrderedJson j{{"key", p.key},
                    {"evidence", p.evidence},
                    {"sample", p.sample},
                    {"predicted_ps", c.predicted.ps},
                    {"measured_ps", c.measured.ps}};
  if (c.mismatch.empty())
    j["error"] = c.error;
  else
    j["error"] = nullptr;
  j["verdict"] = analysis::name_of(c.verdict);
  j["reason"] = c.reason;
  j["file"] = p.file;
  j["scenario"] = p.scenario;
  j["profile"] = p.profile;
  j["noisy"] = p.noisy;
  j["loopback"] = p.loopback;
  if (!c.mismatch.empty()) j["mismatch"] = c.mismatch;
  j["step_low_ps"] = p.low.ps;
  j["step_high_ps"] = p.high.ps;
  j["in_interval"] = in_interval(p);
  auto b = bucket_errors(p);
  if (!b.empty() && c.mismatch.empty()) {
    j["bucket_error_median"] = analysis::median(b);
    j["bucket_error_p95"] = analysis::percentile(b, 95);
  }
  if (c.first_error) j["first_error"] = *c.first_error;
  if (c.rebuild_error) j["rebuild_error"] = *c.rebuild_error;
  if (p.capture_error) j["capture_error"] = *p.capture_error;
  j["naive_error"] = p.naive_error;
  j["queue_error"] = p.queue_error;
  j["tags"] = p.tags;
  return j;
}

io::OrderedJson json_of(const Aggregates& all) {
  io::OrderedJson out = io::OrderedJson::object();
  for (const auto& [evidence, samples] : all)
    for (const auto& [sample, a] : samples) {
      io::OrderedJson& j = out[evidence][sample];
      j = {{"n", a.n},
           {"median_abs_error", a.median},
           {"p95_abs_error", a.p95},
           {"max_abs_error", a.max}};
      if (a.buckets > 0)
        j["buckets"] = a.buckets, j["bucket_error_median"] = a.bucket_median,
        j["bucket_error_p95"] = a.bucket_p95;
      if (a.firsts > 0) j["first_max_abs_error"] = a.first_max;
      if (a.rebuilds > 0) j["rebuild_max_abs_error"] = a.rebuild_max;
      if (a.captures > 0)
        j["captures"] = a.captures, j["capture_median_abs_error"] = a.capture_median;
      j["coverage"] = a.coverage;
      j["naive_median_abs_error"] = a.naive_median;
      j["naive_p95_abs_error"] = a.naive_p95;
      j["queue_median_abs_error"] = a.queue_median;
      j["queue_p95_abs_error"] = a.queue_p95;
    }
  return out;
}

io::OrderedJson cap_json(const std::optional<double>& cap) {
  return cap ? io::OrderedJson(*cap) : io::OrderedJson();
}

io::OrderedJson json_of(const CapSweep& s) {
  io::OrderedJson j{{"key", s.key}, {"evidence", s.evidence}, {"sample", s.sample}};
  j["points"] = io::OrderedJson::array();
  for (const auto& p : s.points)
    j["points"].push_back({{"bucket_cap_mb", cap_json(p.cap)},
                           {"predicted_ps", static_cast<std::int64_t>(p.predicted_ps)},
                           {"measured_ps", static_cast<std::int64_t>(p.measured_ps)},
                           {"runs", p.runs}});
  j["best"] = cap_json(s.points[s.best].cap);
  j["picked"] = cap_json(s.points[s.picked].cap);
  j["regret"] = s.regret;
  return j;
}

// ---- JUnit

std::string escape(const std::string& s) {
  std::string out;
  for (char c : s) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20)
      out += ' ';
    else
      out += c;
  }
  return out;
}

std::string test_case(const std::string& suite, const std::string& name,
                      const std::string& inside) {
  return fmt::format("  <testcase classname=\"{}\" name=\"{}\"{}\n", escape(suite), escape(name),
                     inside.empty() ? "/>" : ">" + inside + "</testcase>");
}
std::string message(const char* element, const std::string& text) {
  return fmt::format("<{} message=\"{}\"/>", element, escape(text));
}

}  // namespace

std::string validation_table(const Validation& v) {
  std::string out = pairs_table(v);
  out += (out.empty() ? "" : "\n") + aggregates_table(v);
  if (v.floor.scenarios > 0) out += "\nfloor: " + floor_text(v.floor) + "\n";
  if (!v.sweeps.empty()) out += "\nbucket_cap_mb sweeps: best measured, picked by ddpsim, regret\n";
  for (const CapSweep& s : v.sweeps)
    out += fmt::format("  {:>8} {:>8} {:>8.3f} %  {} caps, {}, {}: {}\n",
                       cap_text(s.points[s.best].cap), cap_text(s.points[s.picked].cap),
                       100 * s.regret, s.points.size(), s.evidence, s.sample, s.key);
  if (v.without_steps > 0)
    out += fmt::format("\n{} runs without steps (samples only) were left out\n", v.without_steps);
  if (v.unpredicted > 0)
    out += fmt::format("\n{} runs of what is recorded and not predicted were left out\n",
                       v.unpredicted);
  if (!v.errors.empty()) out += "\nnot usable\n";
  for (const RunError& e : v.errors)
    out += fmt::format("  {}: {}: {}\n", e.what, e.file, e.sentence);
  if (!v.limits.empty()) out += "\nbudget\n";
  for (const LimitResult& r : v.limits) {
    std::string range = r.limit.min && r.limit.max
                            ? fmt::format("{:g} to {:g}", *r.limit.min, *r.limit.max)
                        : r.limit.min ? fmt::format("at least {:g}", *r.limit.min)
                                      : fmt::format("at most {:g}", *r.limit.max);
    out += fmt::format("  {:<6} {:<46} {:>10}  {}\n", r.broken ? "BROKEN" : "ok", r.limit.what,
                       r.value ? fmt::format("{:.4g}", *r.value) : "-", range);
  }
  return out;
}

io::OrderedJson validation_json(const Validation& v) {
  io::OrderedJson j;
  j["pairs"] = io::OrderedJson::array();
  for (const Pair& p : v.pairs) j["pairs"].push_back(json_of(p));
  j["aggregates"] = json_of(v.aggregates);
  j["set_aside"] = {{"noisy", json_of(v.set_aside.at("noisy"))},
                    {"loopback", json_of(v.set_aside.at("loopback"))}};
  auto known = values(v);
  j["coverage"] = known.count("coverage") ? io::OrderedJson(known["coverage"]) : io::OrderedJson();
  j["sweeps"] = io::OrderedJson::array();
  for (const CapSweep& s : v.sweeps) j["sweeps"].push_back(json_of(s));
  j["floor"] = {{"scenarios", v.floor.scenarios}, {"median", v.floor.median}, {"max", v.floor.max}};
  if (v.floor.buckets > 0) {
    j["floor"]["buckets"] = v.floor.buckets;
    j["floor"]["bucket_median"] = v.floor.bucket_median;
    j["floor"]["bucket_p95"] = v.floor.bucket_p95;
  }
  j["values"] = known;
  j["limits"] = io::OrderedJson::array();
  for (const LimitResult& r : v.limits) {
    io::OrderedJson l{{"what", r.limit.what},
                      {"value", r.value ? io::OrderedJson(*r.value) : io::OrderedJson()}};
    if (r.limit.min) l["min"] = *r.limit.min;
    if (r.limit.max) l["max"] = *r.limit.max;
    l["broken"] = r.broken;
    j["limits"].push_back(std::move(l));
  }
  j["errors"] = io::OrderedJson::array();
  for (const RunError& e : v.errors)
    j["errors"].push_back(
        {{"file", e.file}, {"key", e.key}, {"what", e.what}, {"sentence", e.sentence}});
  j["without_steps"] = v.without_steps;
  j["unpredicted"] = v.unpredicted;
  j["passed"] = !v.failed();
  return j;
}

std::string validation_junit(const Validation& v) {
  std::string cases;
  std::size_t tests = 0, failures = 0, skipped = 0;
  auto add = [&](const std::string& suite, const std::string& name, const std::string& inside) {
    cases += test_case(suite, name, inside), ++tests;
  };
  for (const Pair& p : v.pairs) {
    std::string name = p.key + " [" + p.file + "]";
    std::string suite = p.evidence + "." + p.sample;
    const analysis::Comparison& c = p.comparison;
    if (!c.mismatch.empty())
      add(suite, name, message("failure", c.reason)), ++failures;
    else if (c.verdict == analysis::Agreement::Ambiguous)
      add(suite, name, message("skipped", c.reason)), ++skipped;
    else
      add(suite, name,
          fmt::format("<system-out>{}</system-out>",
                      escape(fmt::format("error {:+.4f} %, {}", 100 * c.error,
                                         analysis::name_of(c.verdict)))));
  }
  for (const RunError& e : v.errors)
    if (e.what != "mismatch")
      add("runs", e.key + " [" + e.file + "]", message("failure", e.sentence)), ++failures;
  for (const LimitResult& r : v.limits) {
    add("budget", r.limit.what, r.broken ? message("failure", r.sentence) : "");
    failures += r.broken ? 1 : 0;
  }
  std::string counts = fmt::format("tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
                                   tests, failures, skipped);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n <testsuite name=\"ddpsim "
      "validate\" {}>\n{} </testsuite>\n</testsuites>\n",
      counts, counts, cases);
}

std::string validation_markdown(const Validation& v) {
  std::string out = fmt::format("**{}**: {} of {} limits kept, {} runs compared, {} not usable.\n",
                                v.failed() ? "failed" : "passed",
                                std::count_if(v.limits.begin(), v.limits.end(),
                                              [](const LimitResult& r) { return !r.broken; }),
                                v.limits.size(), v.pairs.size(), v.errors.size());
  for (const RunError& e : v.errors)
    out += fmt::format("\n- {}: `{}`: {}\n", e.what, e.file, e.sentence);
  out +=
      "\n## Error of the step\n\n|error|, % of the measured step. Samples are never pooled; *in*: "
      "share of steps inside the prediction's 80 % interval; naive and queue: the two simpler "
      "models.\n\n";
  out +=
      "| class | runs | median | p95 | max | buckets, median | p95 | in | naive, median | p95 | "
      "queue, median | p95 |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  auto rows = [&](const Aggregates& all, const std::string& suffix) {
    for (const auto& [evidence, samples] : all)
      for (const auto& [sample, a] : samples) {
        std::string buckets = a.buckets > 0 ? fmt::format("{:.3f} | {:.3f}", 100 * a.bucket_median,
                                                          100 * a.bucket_p95)
                                            : "- | -";
        out += fmt::format(
            "| {}, {}{} | {} | {:.3f} | {:.3f} | {:.3f} | {} | {:.1f} | {:.2f} | {:.2f} | {:.2f} | "
            "{:.2f} |\n",
            evidence, sample, suffix, a.n, 100 * a.median, 100 * a.p95, 100 * a.max, buckets,
            100 * a.coverage, 100 * a.naive_median, 100 * a.naive_p95, 100 * a.queue_median,
            100 * a.queue_p95);
      }
  };
  rows(v.aggregates, "");
  for (const auto& [why, all] : v.set_aside) rows(all, " (" + why + ")");
  if (v.floor.scenarios > 0) out += "\n" + floor_text(v.floor) + ": no model can be nearer.\n";
  if (!v.limits.empty())
    out += "\n## Budget\n\n| | limit | value | allowed |\n|---|---|---:|---|\n";
  for (const LimitResult& r : v.limits) {
    std::string range = r.limit.min && r.limit.max
                            ? fmt::format("{:g} to {:g}", *r.limit.min, *r.limit.max)
                        : r.limit.min ? fmt::format("at least {:g}", *r.limit.min)
                                      : fmt::format("at most {:g}", *r.limit.max);
    out += fmt::format("| {} | {} | {} | {} |\n", r.broken ? "**broken**" : "ok", r.limit.what,
                       r.value ? fmt::format("{:.4g}", *r.value) : "-", range);
  }
  if (!v.sweeps.empty())
    out +=
        "\n## Sweeps of bucket_cap_mb\n\n| best measured | picked | regret, % | caps | class | "
        "first run |\n|---:|---:|---:|---:|---|---|\n";
  for (const CapSweep& s : v.sweeps)
    out += fmt::format("| {} | {} | {:.3f} | {} | {}, {} | {} |\n", cap_text(s.points[s.best].cap),
                       cap_text(s.points[s.picked].cap), 100 * s.regret, s.points.size(),
                       s.evidence, s.sample, report::markdown_cell(s.key));
  std::string heading;
  for (const Pair& p : v.pairs) {
    if (std::string now = p.evidence + ", " + p.sample; now != heading) {
      heading = now;
      out += fmt::format(
          "\n## Runs: {}\n\n| error, % | measured ms | predicted ms | in | naive, % | queue, % | "
          "verdict | run |\n|---:|---:|---:|---|---:|---:|---|---|\n",
          heading);
    }
    out += fmt::format(
        "| {} | {:.3f} | {:.3f} | {} | {:+.2f} | {:+.2f} | {} | {}{} |\n",
        p.comparison.mismatch.empty() ? fmt::format("{:+.3f}", 100 * p.comparison.error) : "-",
        ms(p.comparison.measured), ms(p.comparison.predicted), in_interval(p) ? "yes" : "no",
        100 * p.naive_error, 100 * p.queue_error, analysis::name_of(p.comparison.verdict),
        report::markdown_cell(p.key), flags_of(p));
  }
  return out;
}

}  // namespace ddpsim::cli
