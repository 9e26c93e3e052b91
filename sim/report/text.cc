#include "sim/report/text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/predict/measured_step.h"
#include "sim/predict/memory.h"
#include "sim/predict/step_error.h"
#include "sim/report/diagnosis_text.h"
#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::report {
namespace {

constexpr const char* kDatasheet = "datasheet";

std::string ms(Duration d) {
  return to_string(d);
}

std::string bar(double share, int width) {
  int n = std::clamp(static_cast<int>(std::lround(share * width)), 0, width);
  return std::string(n, '#');
}

class Page {
 public:
  explicit Page(bool colour) : colour_(colour) {}
  void title(const std::string& s) { text += colour_ ? "\x1b[1m" + s + "\x1b[0m\n" : s + "\n"; }
  void line(const std::string& s = "") {
    text += s;
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += "\n";
  }
  std::string text;

 private:
  bool colour_;
};

void where_time_goes(Page& page, const predict::Prediction& p) {
  const analysis::Summary& s = p.summary;
  page.title(p.counted > 1 ? fmt::format("where the time goes (mean of {} steps)", p.counted)
                           : "where the time goes (one steady step, the rank that ends last)");
  struct Share {
    const char* name;
    Duration time;
  };
  const Share rows[] = {{"forward", s.forward},
                        {"backward", s.backward},
                        {"averaging on the device", s.ddp},
                        {"exposed communication", s.exposed_communication},
                        {"optimizer", s.optimizer},
                        {"waiting for input", s.input.value_or(Duration{})},
                        {"device waits for its host", s.idle}};
  for (const Share& r : rows) {
    if (r.time.ps == 0) continue;
    double f = fraction(r.time, p.summary.step);
    page.line(
        fmt::format("  {:<26}{:>10} {:>6.1f} %  {}", r.name, ms(r.time), 100 * f, bar(f, 40)));
  }
  if (p.clock < 1) page.line("  " + power_sentence(p.clock));
  if (p.paces) page.line("  " + paces_sentence(*p.paces));
  if (p.stragglers) page.line("  of computation, " + stragglers_sentence(*p.stragglers));
  if (fraction(p.slowed, p.summary.step) > 0.002)
    page.line(fmt::format(
        "  next to collectives, which occupy a part of the GPU, computation takes {} longer",
        ms(p.slowed)));
  if (s.communication.ps > 0)
    page.line(
        fmt::format("  communication is in flight for {}, {:.0f} % of it hidden behind computation",
                    ms(s.communication), 100 * s.overlap));
  if (s.copies.ps > 0)
    page.line(
        fmt::format("  of it, copies between the GPU and its host's memory take {}, {} exposed",
                    ms(s.copies), ms(s.exposed_copies)));
}

void buckets(Page& page, const predict::Prediction& p) {
  const auto& list = p.summary.buckets;
  if (list.empty()) return;
  page.line();
  bool reduces = std::all_of(list.begin(), list.end(), [](const auto& b) {
    return b.name.find("allreduce/") != std::string::npos;
  });
  page.title(fmt::format("{} ({} in launch order; times from the start of the step)",
                         reduces ? "gradient all-reduces" : "collectives", list.size()));
  std::size_t width = 21;  // as wide as the names that a system gives, within reason
  if (!reduces)
    for (const auto& b : list) width = std::clamp(b.name.size(), width, std::size_t{32});
  page.line(fmt::format("  {:<{}}{:>10}{:>9}{:>11}{:>11}{:>11}  {}", "name", width + 1, "bytes",
                        "tensors", "ready", "begin", "end", "algorithm"));
  constexpr std::size_t kShown = 12;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list.size() > kShown + 1 && i >= kShown / 2 && i + kShown / 2 < list.size()) {
      if (i == kShown / 2) page.line(fmt::format("  ... {} more", list.size() - kShown));
      continue;
    }
    const analysis::BucketTimes& b = list[i];
    std::string name = b.name.starts_with("allreduce/") ? b.name.substr(10) : b.name;
    if (name.size() > width) name = "..." + name.substr(name.size() - (width - 3));
    page.line(fmt::format("  {:<{}}{:>10}{:>9}{:>11}{:>11}{:>11}  {}", name, width + 1,
                          to_string(Bytes{b.bytes}), b.tensors.size(), ms(b.ready), ms(b.begin),
                          ms(b.end), b.algorithm));
  }
}

std::string basis_in_words(const std::string& basis, bool fitted,
                           const std::optional<MeasuredStep>& measured) {
  std::string out = fitted ? "network fitted to executed runs, the rest from a datasheet"
                    : basis == kDatasheet ? basis + ", never measured on this hardware"
                                          : basis;
  return measured ? out + "; " + predict::sentence(*measured) : out;
}

// "41.2 GiB of 80 GiB on each GPU at the peak, in backward: activations 30.1, ..."
std::string memory_text(const predict::Memory& m) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  auto gib = [&](std::int64_t bytes) {
    return fmt::format("{:.3g}", static_cast<double>(bytes) / kGiB);
  };
  std::string out = fmt::format("memory {} GiB", gib(m.device));
  if (m.capacity > 0) out += fmt::format(" of {} GiB", gib(m.capacity));
  out += fmt::format(" per rank ({} to {}) at the peak, in {}: ", gib(m.device_low),
                     gib(m.device_high), m.phase);
  std::vector<std::pair<std::int64_t, std::string>> parts;
  for (Holds h : Held::names()) {
    std::string name = name_of(h);
    std::replace(name.begin(), name.end(), '_', ' ');
    parts.emplace_back(m.peak[h], name);
  }
  parts.emplace_back(m.communicators + m.context, "NCCL and CUDA");
  std::sort(parts.begin(), parts.end(), [](auto& a, auto& b) { return a.first > b.first; });
  bool first = true;
  for (const auto& [bytes, name] : parts) {
    if (static_cast<double>(bytes) < 0.01 * static_cast<double>(m.device)) break;
    out += fmt::format("{}{} {}", first ? "" : ", ", name, gib(bytes));
    first = false;
  }
  if (!m.activations) out += "; activations are not known and not in it";
  return out;
}

// Three gaps or more between its cells.
bool is_row(const std::string& line) {
  std::size_t gaps = 0;
  for (std::size_t at = line.find_first_not_of(' '); at != std::string::npos;) {
    at = line.find("  ", at);
    at = at == std::string::npos ? at : line.find_first_not_of(' ', at);
    gaps += at != std::string::npos;
  }
  return gaps >= 3;
}

}  // namespace

std::string count_text(double v) {
  return v >= 1000 ? fmt::format("{:.0f}", v) : fmt::format("{:.4g}", v);
}

std::string wrapped(const std::string& text, std::size_t hang, std::size_t width, bool whole_rows) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    std::size_t end = std::min(text.find('\n', from), text.size());
    std::string line = text.substr(from, end - from);
    std::size_t indent = hang > 0 ? hang
                         : line.starts_with("- ")
                             ? 2
                             : std::min(line.find_first_not_of(' '), line.size()) + 2;
    const std::size_t most = whole_rows && is_row(line) ? std::max(width, kWidth) : width;
    while (line.size() > most) {
      std::size_t space = line.rfind(' ', most);
      if (space == std::string::npos || space <= indent) break;
      out += line.substr(0, space) + "\n";
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    out += line;
    if (end < text.size()) out += "\n";
    from = end + 1;
  }
  return out;
}

std::string limit_sentence(const Heading& h, const predict::Prediction& p) {
  std::string out = h.diagnosis ? decision_sentence(*h.diagnosis) : "";
  if (!p.busiest_link.name.empty())
    out += fmt::format("{}link {} ({}) is needed {:.0f} % of the step", out.empty() ? "" : "; ",
                       p.busiest_link.name, to_string(p.busiest_link.bandwidth),
                       100 * p.busiest_link.busy);
  return out;
}

std::string power_sentence(double clock) {
  return fmt::format("the board's power limit holds products at {:.0f} % of the datasheet's clock",
                     100 * clock);
}

std::string paces_sentence(const predict::Paces& p) {
  const auto [least, most] = std::minmax_element(p.steps_per_s.begin(), p.steps_per_s.end());
  const std::string pace = *most > 1.005 * *least
                               ? fmt::format("{:.4g} to {:.4g} steps a second", *least, *most)
                               : fmt::format("{:.4g} steps a second", *least);
  return fmt::format(
      "{} workers at their own pace, {} each; the step and its parts are their mean. A gradient "
      "misses {:.1f} updates of others at the mean, {:.0f} at most",
      p.steps_per_s.size(), pace, p.staleness_mean, std::ceil(p.staleness_most));
}

std::string stragglers_sentence(const predict::Stragglers& s) {
  return fmt::format(
      "{} is what the slowest of {} ranks computes longer than a typical one: they vary by {:.1f} "
      "% (--set stragglers=false leaves it out)",
      ms(s.time), s.ranks, 100 * s.cv);
}

std::string interval_sentence(const predict::Question& q) {
  const Profile& p = q.profile;
  const Workload& w = q.workload;
  bool captured = w.basis == Basis::Captured;
  if (p.step_residual > 0) return "80 % interval: how far executed steps were off";
  if (const predict::StepError* e = predict::step_error(q))
    return fmt::format(
        "80 % of {} published steps ({}), each of {} sources alike, or the datasheet's range if "
        "wider",
        e->rows, e->of, e->sources);
  if (w.measured_step)
    return std::string("computation as measured; the ") +
           (p.measured() ? "profile's residuals" : "datasheet's range") +
           " for network, copies and hooks" + (p.rank_cv ? ", and how ranks vary" : "");
  if (p.measured()) return "80 % interval from the profile's residuals";
  if (!captured && p.costs)
    return "80 % of shapes that the fit of kernels did not see; the datasheet's range for host and "
           "network";
  return captured ? "the datasheet's range for network and copies, and 80 % of the capture's passes"
                  : "the range of efficiencies that the datasheet profile states";
}

std::string beside_sentence(const predict::Prediction& p) {
  if (!p.beside) return {};
  const predict::Beside& b = *p.beside;
  std::string others = b.jobs == 1 ? "another job" : fmt::format("{} other jobs", b.jobs);
  std::string meanwhile =
      b.complete ? fmt::format(", while {} makes {:.1f} of its own",
                               b.jobs == 1 ? "it" : "the one with the longest", b.periods)
                 : "";
  return fmt::format(
      "mean of {} step{} beside {} ({} to {}){}; so are its parts below; the times of collectives "
      "are those of the last step, {}",
      b.steps, b.steps == 1 ? "" : "s", others, ms(b.shortest), ms(b.longest), meanwhile,
      ms(b.last));
}

std::string basis_sentence(const Heading& h, const predict::Prediction& p) {
  return basis_in_words(h.basis, p.fitted && !p.measured, p.measured_step);
}

std::string basis_sentence(const Profile& p, const Workload& w) {
  return basis_in_words(basis_text(p), p.step_residual > 0 && !p.measured(), w.measured_step);
}

std::string efficiency_text(double mid, double low, double high) {
  if (mid <= 0) return "none: the workload computes nothing";
  std::string out = fmt::format("{:.1f} %", 100 * mid);
  return low < high ? out + fmt::format(" ({:.1f} % to {:.1f} %)", 100 * low, 100 * high) : out;
}

std::string basis_text(const Profile& p) {
  std::map<Evidence, std::vector<std::string>> sections;
  auto add = [&](const char* name, std::optional<Evidence> basis) {
    if (basis) sections[*basis].push_back(name);
  };
  add("compute", p.compute.basis);
  add("memory", p.memory.basis);
  add("host", p.host.basis);
  for (const auto& [name, t] : p.transports) add(name.c_str(), t.basis);
  add("interference", p.interference_basis);
  add("reduction", p.reduction_basis);
  bool datasheet = sections.count(Evidence::Datasheet) > 0;
  if (sections.size() == 1 && datasheet) return kDatasheet;
  std::string out;
  for (auto [basis, words] : {std::pair{Evidence::Measured, "measured"},
                              {Evidence::Published, "fitted to published tables"}})
    if (auto it = sections.find(basis); it != sections.end()) {
      out += (out.empty() ? "" : ", ") + std::string(words);
      if (sections.size() > 1) out += fmt::format(" ({})", fmt::join(it->second, ", "));
    }
  return out + (datasheet ? ", the rest datasheet" : "");
}

std::string prediction_page(const Heading& h, const predict::Prediction& p,
                            const std::vector<predict::Lever>& levers, bool colour) {
  Page page(colour);
  const analysis::Summary& s = p.summary;
  page.line(fmt::format("profile {}: {}", h.profile, basis_sentence(h, p)));
  page.title(fmt::format("{} on {}", h.workload, h.cluster));
  page.line(h.plan);
  page.line();
  page.title(fmt::format("step {}  ({} to {}; {})", ms(s.step), ms(p.step_low), ms(p.step_high),
                         h.interval));
  for (const std::string& known : h.known_errors) page.line("     known error: " + known);
  if (p.beside) page.line("     " + beside_sentence(p));
  if (!p.jitter_steps.empty()) {
    std::vector<Duration> sorted = p.jitter_steps;
    std::sort(sorted.begin(), sorted.end());
    auto quantile = [&](double q) {
      return ms(sorted[static_cast<std::size_t>(
          std::lround(q * static_cast<double>(sorted.size() - 1)))]);
    };
    page.line(fmt::format("     with jitter: median {}, 95th percentile {}, worst {} of {} steps",
                          quantile(0.5), quantile(0.95), quantile(1), sorted.size()));
  }
  std::string efficiency =
      efficiency_text(p.scaling_efficiency, p.efficiency_low, p.efficiency_high);
  if (p.scaling_efficiency > 0)
    efficiency += fmt::format("; one rank without {}: {}", h.system, ms(p.single_rank_step));
  page.line(fmt::format("     {}scaling efficiency {}",
                        p.samples_per_s > 0 ? count_text(p.samples_per_s) + " samples/s; " : "",
                        efficiency));
  if (p.memory) page.line("     " + memory_text(*p.memory));
  page.line();
  where_time_goes(page, p);
  buckets(page, p);
  page.line();
  page.title("what limits it");
  page.line("  " + limit_sentence(h, p));
  page.line();
  page.title("what to try next (each simulated)");
  constexpr std::size_t kLevers = 4;
  for (std::size_t i = 0; i < std::min(levers.size(), kLevers); ++i)
    page.line(fmt::format("  {:>9} less: {}  [{}]", ms(s.step - levers[i].step), levers[i].change,
                          levers[i].command));
  if (levers.empty())
    page.line(fraction(s.exposed_communication, s.step) > 0.1
                  ? "  no setting of the plan gains 0.5 % or more; a faster network, or more "
                    "accumulation_steps, would"
              : fraction(s.idle, s.step) > 0.1
                  ? "  no setting of the plan gains 0.5 % or more; a larger batch would (or fewer "
                    "kernels: --set workload.compile=regional; CUDA graphs: --set "
                    "workload.cuda_graphs=true)"
                  : "  no setting of the plan gains 0.5 % or more; a faster device would" +
                        std::string(h.captured
                                        ? ""
                                        : ", and the model's own may: precision, attention, "
                                          "compilation (--set workload.precision=bf16, ...)"));
  for (const std::string& note : p.extrapolated) page.line("\nbeyond the model: " + note);
  std::string how = !h.times.empty() ? h.times
                    : h.captured
                        ? "compute times captured from the real model" +
                              (h.device.empty() ? "" : " on " + h.device)
                        : "compute times described (FLOPs and bytes on a roofline), not captured";
  page.line();
  page.line(fmt::format("basis: {}; {}", how, h.schedule));
  return page.text;
}

std::string csv_field(const std::string& given) {
  std::string s = printable(given);
  // A spreadsheet takes for a formula what begins like one; an apostrophe makes it text.
  bool formula = !s.empty() && std::string_view("=+-@").find(s.front()) != std::string_view::npos;
  if (formula && !parse_number(s)) s.insert(s.begin(), '\'');
  if (s.find_first_of(",\"") == std::string::npos) return s;
  std::string out = "\"";
  for (char c : s) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string prediction_csv(const Heading& h, const predict::Prediction& p) {
  const analysis::Summary& s = p.summary;
  std::string out =
      "workload,cluster,plan,profile,basis,step_ps,step_low_ps,step_high_ps,forward_ps,backward_ps,"
      "ddp_ps,exposed_communication_ps,communication_ps,optimizer_ps,"
      "idle_ps,overlap,samples_per_s,scaling_efficiency,buckets,scaling_efficiency_low,scaling_"
      "efficiency_high,notes\n";
  // A workload that computes nothing has no efficiency.
  auto number = [&](double v) {
    return p.scaling_efficiency > 0 ? fmt::format("{}", v) : std::string();
  };
  std::string basis = p.measured ? "measured" : kDatasheet;
  if (p.measured_step) basis += "; " + predict::sentence(*p.measured_step);
  out += fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(h.workload),
      csv_field(h.cluster), csv_field(h.plan), csv_field(h.profile), csv_field(basis), s.step.ps,
      p.step_low.ps, p.step_high.ps, s.forward.ps, s.backward.ps, s.ddp.ps,
      s.exposed_communication.ps, s.communication.ps, s.optimizer.ps, s.idle.ps, s.overlap,
      p.samples_per_s > 0 ? fmt::format("{}", p.samples_per_s) : "", number(p.scaling_efficiency),
      s.buckets.size(), number(p.efficiency_low), number(p.efficiency_high),
      csv_field(fmt::format("{}", fmt::join(p.extrapolated, "; "))));
  return out;
}

}  // namespace ddpsim::report
