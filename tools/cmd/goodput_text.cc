#include <fmt/format.h>

#include "sim/report/text.h"
#include "tools/cmd/goodput.h"

namespace ddpsim::cli {
namespace {

using goodput::Spent;

double share(const GoodputAnswer& a, Spent s) {
  return a.courses.share[s];
}

double step_s(const GoodputAnswer& a) {
  return static_cast<double>(a.job.step.ps) * 1e-12;
}

std::string steps_text(const GoodputAnswer& a, std::int64_t steps) {
  return fmt::format("{} ({} step{})", long_time(static_cast<double>(steps) * step_s(a)), steps,
                     steps == 1 ? "" : "s");
}

const char* host_word(const GoodputAnswer& a) {
  return a.job.recovery == goodput::Recovery::Torchft ? "replica group" : "host";
}

std::string failures_text(const GoodputAnswer& a) {
  std::string out;
  if (a.job.host_mtbf_s > 0)
    out = fmt::format("a {} every {} in the mean (of one {} {})",
                      a.job.failure == goodput::Failure::Hang ? "hang" : "failure",
                      long_time(goodput::mtbf_of(a.job)), a.gpus ? "GPU" : "process",
                      long_time(a.gpu_mtbf_s));
  if (!a.job.lost.empty())
    out += fmt::format("{}{} at given times", out.empty() ? "" : ", and ", a.job.lost.size());
  if (a.job.host_mtbf_s > 0 && a.job.failure == goodput::Failure::Process)
    out += "; a process ends, its host is good";
  if (a.job.host_mtbf_s > 0 && a.job.failure == goodput::Failure::Host) out += "; a host is lost";
  if (a.job.spares > 0) out += fmt::format("; {} spare", a.job.spares);
  if (a.job.least_hosts < a.job.hosts)
    out += fmt::format("; {} of {} {}s are enough", a.job.least_hosts, a.job.hosts, host_word(a));
  if (a.job.back)
    out += fmt::format("; back after {}", long_time(static_cast<double>(a.job.back->ps) * 1e-12));
  return out;
}

std::string checkpoint_text(const GoodputAnswer& a) {
  if (!a.checkpoints) return "none";
  const goodput::Checkpoints& c = a.job.checkpoints;
  std::string out = "every " + steps_text(a, c.steps) + (a.searched ? ", the best" : "") +
                    "; the job stands still for " + to_string(c.stalls);
  if (c.writes.ps > 0) out += ", then it is written for " + to_string(c.writes);
  if (!a.checkpoint_text.empty()) out += "; " + a.checkpoint_text;
  return out;
}

std::string row(const char* name, const std::string& value) {
  return fmt::format("  {:<18} {}\n", name, value);
}

std::string intervals_text(const GoodputAnswer& a) {
  if (!a.intervals) return {};
  const goodput::Intervals& i = *a.intervals;
  std::string out = "\nwork between two checkpoints\n";
  out += row("best, played",
             steps_text(a, i.steps) +
                 (i.flat_from == i.flat_to
                      ? ""
                      : fmt::format("; {} to {} lose at most 1 % more",
                                    long_time(static_cast<double>(i.flat_from) * step_s(a)),
                                    long_time(static_cast<double>(i.flat_to) * step_s(a)))));
  if (i.closed_steps) out += row("best, closed form", steps_text(a, *i.closed_steps));
  out += row("Daly 2006", long_time(i.daly_s));
  return out + row("Young 1974", long_time(i.young_s));
}

std::string phases_text(const GoodputAnswer& a) {
  std::string out = "\na recovery is made of (--phase NAME=TIME)\n";
  for (const GivenTime& g : a.times)
    out += fmt::format("  {:<18} {:>10}  {}: {}\n",
                       goodput::parts()[static_cast<std::size_t>(g.part)].name,
                       to_string(a.job.times[g.part]), g.evidence, g.source);
  return out;
}

}  // namespace

std::string long_time(double seconds) {
  if (seconds >= 2 * 86'400.0 * 365) return fmt::format("{:.3g} years", seconds / 86'400 / 365.25);
  if (seconds >= 2 * 86'400.0) return fmt::format("{:.3g} days", seconds / 86'400);
  if (seconds >= 2 * 3600.0) return fmt::format("{:.3g} h", seconds / 3600);
  if (seconds >= 120) return fmt::format("{:.3g} min", seconds / 60);
  return fmt::format("{:.3g} s", seconds);
}

std::string goodput_text(const GoodputAnswer& a) {
  const goodput::Courses& c = a.courses;
  std::string out = fmt::format("{}: {} {} on {} {}{}, {}\n", a.subject, a.ranks,
                                a.gpus ? "GPUs" : "processes", a.job.hosts, host_word(a),
                                a.job.hosts == 1 ? "" : "s", goodput::name_of(a.job.recovery));
  out += row("step", to_string(a.job.step) + ", " + a.step_from);
  for (const std::string& note : a.notes) out += row("beyond the model", note);
  out += row("failures", failures_text(a));
  out += row("checkpoints", checkpoint_text(a));
  out += row("played", fmt::format("{}, {} time{}, seed {}: {:.1f} failures each, {:.1f} joins",
                                   long_time(static_cast<double>(a.job.horizon.ps) * 1e-12),
                                   c.count, c.count == 1 ? "" : "s", a.seed, c.failures, c.joins));
  out += fmt::format("\ngoodput {:.2f} %", 100 * c.goodput);
  if (c.count > 1)
    out += fmt::format("  (8 of 10 courses: {:.2f} to {:.2f} %; the mean to {:.2f} %)", 100 * c.low,
                       100 * c.high, 100 * c.error);
  out += a.expected ? fmt::format("; closed form {:.2f} %\n", 100 * *a.expected)
                    : fmt::format("; no closed form: {}\n", a.no_expected);
  if (a.samples_per_s > 0)
    out += fmt::format("{} samples/s of {}\n", report::count_text(a.samples_per_s * c.goodput),
                       report::count_text(a.samples_per_s));
  out += "\nwhere the time goes\n";
  for (Spent s : goodput::Ledger::names())
    if (share(a, s) > 0)
      out += row(goodput::name_of(s), fmt::format("{:>8.3f} %  {:>10} a day", 100 * share(a, s),
                                                  long_time(share(a, s) * 86'400)));
  return out + intervals_text(a) + phases_text(a);
}

std::string goodput_csv(const GoodputAnswer& a) {
  std::string head =
      "recovery,failure,ranks,hosts,step_ps,horizon_ps,mtbf_s,checkpoint_steps,"
      "goodput,low,high,error,expected,failures,joins";
  std::string line = fmt::format(
      "{},{},{},{},{},{},{:.6g},{},{:.8f},{:.8f},{:.8f},{:.8f},{},{:.3f},{:.3f}",
      goodput::name_of(a.job.recovery), goodput::name_of(a.job.failure), a.ranks, a.job.hosts,
      a.job.step.ps, a.job.horizon.ps, goodput::mtbf_of(a.job),
      a.checkpoints ? std::to_string(a.job.checkpoints.steps) : "", a.courses.goodput,
      a.courses.low, a.courses.high, a.courses.error,
      a.expected ? fmt::format("{:.8f}", *a.expected) : "", a.courses.failures, a.courses.joins);
  for (Spent s : goodput::Ledger::names()) {
    head += fmt::format(",{}", goodput::name_of(s));
    line += fmt::format(",{:.8f}", share(a, s));
  }
  return head + "\n" + line + "\n";
}

io::OrderedJson goodput_json(const GoodputAnswer& a) {
  const goodput::Courses& c = a.courses;
  const auto or_null = [](const auto& v) { return v ? io::OrderedJson(*v) : io::OrderedJson(); };
  io::OrderedJson j{{"schema", "ddpsim.goodput/1"},
                    {"recovery", goodput::name_of(a.job.recovery)},
                    {"failure", goodput::name_of(a.job.failure)},
                    {"ranks", a.ranks},
                    {"hosts", a.job.hosts},
                    {"min_hosts", a.job.least_hosts},
                    {"spares", a.job.spares},
                    {"step_ps", a.job.step.ps},
                    {"notes", a.notes},
                    {"horizon_ps", a.job.horizon.ps},
                    {"mtbf_s", goodput::mtbf_of(a.job)},
                    {"seed", a.seed},
                    {"courses", c.count}};
  j["goodput"] = {{"mean", c.goodput}, {"low", c.low}, {"high", c.high}, {"error", c.error}};
  j["expected_goodput"] = or_null(a.expected);
  if (a.samples_per_s > 0) {
    j["samples_per_s"] = a.samples_per_s * c.goodput;
    j["samples_per_s_without_failures"] = a.samples_per_s;
  }
  j["failures"] = c.failures;
  j["joins"] = c.joins;
  for (Spent s : goodput::Ledger::names()) j["shares"][goodput::name_of(s)] = share(a, s);
  if (a.checkpoints)
    j["checkpoints"] = {{"steps", a.job.checkpoints.steps},
                        {"bytes", a.checkpoint_bytes},
                        {"how", a.checkpoint_text},
                        {"stall_ps", a.job.checkpoints.stalls.ps},
                        {"write_ps", a.job.checkpoints.writes.ps}};
  if (a.intervals) {
    const goodput::Intervals& i = *a.intervals;
    j["intervals"] = {{"played_steps", i.steps},
                      {"flat_steps", {i.flat_from, i.flat_to}},
                      {"closed_form_steps", or_null(i.closed_steps)},
                      {"daly_s", i.daly_s},
                      {"young_s", i.young_s}};
  }
  j["phases"] = io::OrderedJson::array();
  for (const GivenTime& g : a.times)
    j["phases"].push_back({{"name", goodput::parts()[static_cast<std::size_t>(g.part)].name},
                           {"ps", a.job.times[g.part].ps},
                           {"evidence", g.evidence},
                           {"source", g.source}});
  return j;
}

}  // namespace ddpsim::cli
