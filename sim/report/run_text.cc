#include "sim/report/run_text.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/units/convert.h"

namespace ddpsim::report {
namespace {

struct Spread {
  Duration least, median, most;
};
Spread spread_of(std::vector<Duration> d) {
  std::sort(d.begin(), d.end(), [](Duration a, Duration b) { return a.ps < b.ps; });
  return {d.front(), d[(d.size() - 1) / 2], d.back()};
}

std::vector<std::string> parameters_of(const Run& run) {
  std::set<std::string> names;
  for (const Sample& s : run.samples)
    for (const auto& [name, value] : s.parameters) names.insert(name);
  return {names.begin(), names.end()};
}

std::string setting_lines(const CollectiveSetting& c) {
  auto known = [](const std::string& s, const char* otherwise) {
    return s.empty() ? std::string(otherwise) : s;
  };
  auto count = [](int n) { return n == 0 ? std::string("unknown") : std::to_string(n); };
  std::string out =
      fmt::format("collective   {} on {} ranks; hosts {}; GPUs of a process {}; GPU {}\n", c.op,
                  c.ranks, count(c.hosts), count(c.gpus_per_process), known(c.gpu, "unknown"));
  out += fmt::format("NCCL         {}; algorithm {}; protocol {}\n", known(c.nccl, "unknown"),
                     known(c.algorithm, "NCCL's choice"), known(c.protocol, "NCCL's choice"));
  if (!c.cluster.empty()) out += "cluster      " + c.cluster + "\n";
  if (!c.source.empty()) out += "source       " + c.source + "\n";
  for (const auto& [name, value] : c.environment)
    out += fmt::format("environment  {}={}\n", name, value);
  for (const CollectiveChoice& x : c.chosen)
    out += fmt::format("chosen       {} bytes: {} {}{}\n", x.bytes, x.algorithm, x.protocol,
                       x.channels ? fmt::format(", {} channels", x.channels) : "");
  return out;
}

}  // namespace

std::string run_page(const Run& run) {
  bool measured = run.kind == RunKind::Measured;
  std::string out = fmt::format(
      "{}  {}\n", measured ? fmt::format("measured ({})", name_of(run.evidence)) : "predicted",
      run.key);
  if (run.collectives) out += setting_lines(*run.collectives);
  for (const Skipped& s : run.skipped) out += fmt::format("skipped      {}: {}\n", s.what, s.why);
  for (const std::string& reason : run.quality.reasons) out += "noisy        " + reason + "\n";
  if (!run.steps.empty()) {
    out += fmt::format("\n{:<8} {:>14}\n", "step", "ms");
    for (const StepRecord& s : run.steps)
      out += fmt::format("{:<8} {:>14.4f}{}\n", name_of(s.kind), milliseconds(s.duration),
                         s.instrumented ? "  (instrumented)" : "");
  }
  if (run.samples.empty()) return out;
  std::vector<std::string> names = parameters_of(run);
  out += fmt::format("\n{:<16}", "op");
  for (const std::string& n : names) out += fmt::format(" {:>14}", n);
  out +=
      fmt::format(" {:>8} {:>14} {:>14} {:>14}\n", "readings", "median us", "least us", "most us");
  for (const Sample& s : run.samples) {
    out += fmt::format("{:<16}", s.op);
    for (const std::string& n : names)
      out += s.parameters.count(n) ? fmt::format(" {:>14}", s.parameters.at(n))
                                   : fmt::format(" {:>14}", "");
    Spread d = spread_of(s.durations);
    out +=
        fmt::format(" {:>8} {:>14.3f} {:>14.3f} {:>14.3f}\n", s.durations.size(),
                    microseconds(d.median).us, microseconds(d.least).us, microseconds(d.most).us);
  }
  return out;
}

std::string samples_csv(const Run& run) {
  std::vector<std::string> names = parameters_of(run);
  std::string out = "op";
  for (const std::string& n : names) out += "," + csv_field(n);
  out += ",readings,median_us,least_us,most_us\n";
  for (const Sample& s : run.samples) {
    out += csv_field(s.op);
    for (const std::string& n : names)
      out += s.parameters.count(n) ? fmt::format(",{}", s.parameters.at(n)) : ",";
    Spread d = spread_of(s.durations);
    out += fmt::format(",{},{:.6f},{:.6f},{:.6f}\n", s.durations.size(), microseconds(d.median).us,
                       microseconds(d.least).us, microseconds(d.most).us);
  }
  return out;
}

}  // namespace ddpsim::report
