#include "sim/report/tuning_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/systems/base/settings.h"

namespace ddpsim::report {
namespace {

using predict::CurvePoint;
using predict::Tuning;

constexpr std::size_t kRows = 14;  // of the curve
constexpr std::size_t kLevers = 6;

// Rows that show a curve: its ends, the best, the flat stretch's ends, and what lies nearest to
// round numbers.
std::vector<std::size_t> shown(const Tuning& t) {
  std::vector<std::size_t> out;
  std::size_t n = t.curve.size();
  if (n <= kRows) {
    for (std::size_t k = 0; k < n; ++k) out.push_back(k);
    return out;
  }
  double unit = t.knob.unit == "bytes" ? 1048576 : 1;
  for (double target :
       {0.25, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0, 1000.0, 2500.0}) {
    std::size_t nearest = 0;
    double best = 1e300;
    for (std::size_t i = 0; i < n; ++i) {
      double ratio = t.curve[i].value->number / (target * unit);
      double off = ratio > 1 ? ratio : 1 / ratio;
      if (off < best) best = off, nearest = i;
    }
    if (best < 1.3) out.push_back(nearest);
  }
  out.push_back(0);
  out.push_back(n - 1);
  for (std::size_t i : {t.best, t.flat_from, t.flat_to, t.chosen.value_or(t.best)})
    out.push_back(i);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string with_unit(const std::string& value, const systems::Knob& k) {
  return k.unit.empty() ? value : value + " " + k.unit;
}

// What a plan's gradient all-reduces are called: averaging has no buckets.
const char* counted(const Tuning& t) {
  return systems::record_of(t.recommended.system).units;
}

std::string behind(const systems::Knob& k) {
  return k.name + " is no argument of PyTorch's (a private name of torch.distributed holds it)";
}

// Sentences under the answer.
std::vector<std::string> why(const Tuning& t) {
  std::vector<std::string> out;
  const CurvePoint& best = t.curve[t.best];
  out.push_back(
      fmt::format("{} lists of buckets can be made with {}, {} were simulated; the shortest step "
                  "is {} at {} ({} bucket{})",
                  t.candidates, t.knob.name, t.curve.size(), to_string(best.step),
                  with_unit(best.value->text, t.knob), best.buckets, best.buckets == 1 ? "" : "s"));
  if (t.knob.listed)
    out.back() = fmt::format("{} settings of {}; the shortest step is {} at {}", t.candidates,
                             t.knob.name, to_string(best.step), best.value->text);
  else
    out.push_back(fmt::format("within 1 % of it: {} to {}",
                              with_unit(t.curve[t.flat_from].value->text, t.knob),
                              with_unit(t.curve[t.flat_to].value->text, t.knob)));
  if (t.chosen && *t.chosen != t.best)
    out.push_back(fmt::format(
        "{} is recommended instead: its gain is measurable at both ends of the profile's ranges, "
        "too, and no setting within {:g} % of it has a measurably longer step",
        with_unit(t.curve[*t.chosen].value->text, t.knob), 100 * predict::kBeside));
  if (!t.knob.argument) out.push_back(behind(t.knob) + ": there is no line to paste");
  std::string sure = fmt::format(
      "over the plan as it is it {} {} ({:.1f} %); gain {} with the profile's ranges at their "
      "pessimistic end, {} at their optimistic one",
      t.gain.mid.ps < 0 ? "loses" : "gains", to_string(Duration{std::abs(t.gain.mid.ps)}),
      100 * std::abs(fraction(t.gain.mid, t.current.step)), to_string(t.gain.low),
      to_string(t.gain.high));
  out.push_back(sure + (t.gain.measurable ? "" : ": " + unsure(t.gain, t.current.step)));
  if (t.bound) {
    const predict::Bound& b = *t.bound;
    const char* because =
        b.step == b.compute ? "computation, copies and launches take that alone"
        : b.step == b.communication
            ? "the collectives take that, one after another, from the first gradient on"
        : b.step == b.input ? "the input pipeline makes a step's batches in no less"
                            : "the last gradient, its reduction and the optimizer end then";
    out.push_back(fmt::format("no buckets can beat {}: {}", to_string(b.step), because));
  }
  if (t.partition) {
    Duration gain = best.step - t.partition->step;
    std::string what = fmt::format(
        "the best buckets of any sizes ({} of them, by dynamic programme, then simulated): {}",
        t.partition->buckets.size(), to_string(t.partition->step));
    bool worth = fraction(gain, best.step) > predict::kRepeats;
    if (worth)
      what += fmt::format(", {} less; DistributedDataParallel(bucket_cap_mb_list=[{:g}]){}",
                          to_string(gain), fmt::join(t.partition->list, ", "),
                          systems::takes_cap_list(t.recommended)
                              ? ""
                              : std::string(", ") + systems::kCapListWarning);
    else
      what += gain.ps >= 0 ? ": no gain over equal caps that you could measure"
                           : ": no better than equal caps";
    out.push_back(what);
  } else if (!t.no_partition.empty()) {
    out.push_back("best buckets of any sizes: not searched; " + t.no_partition);
  }
  if (t.other_best) {
    std::string what = t.other_is_better ? ""
                       : t.other.argument
                           ? ", no better"
                           : "; " + behind(t.other) + ", so that it is not recommended";
    out.push_back(fmt::format("{}={} alone: {}{}", t.other.name, t.other_best->value->text,
                              to_string(t.other_best->step), what));
  }
  return out;
}

std::string lever_gain(const Tuning& t, const predict::Lever& l) {
  if (l.samples != 1)
    return fmt::format("{:.1f} % samples/s",
                       100 * fraction(t.recommended_step, predict::per_samples(l)));
  Duration d = t.recommended_step - l.step;
  return d.ps >= 0 ? to_string(d) + " less" : to_string(Duration{-d.ps}) + " more";
}

// Of what has no gain in time: with fewer ranks, what it has instead.
std::string lever_name(const Tuning& t, const predict::Lever& l) {
  if (l.samples == 1) return l.change;
  return fmt::format("{}: {} of now, each sample at {:.1f} % of its cost in device time", l.change,
                     lever_gain(t, l), 100 * fraction(l.step, t.recommended_step));
}

bool helps(const Tuning& t, const predict::Lever& l) {
  return fraction(t.recommended_step - predict::per_samples(l), t.recommended_step) >
         predict::kRepeats;
}

std::string time_of(double seconds) {
  return seconds >= 3600 ? fmt::format("{:.2f} h", seconds / 3600)
         : seconds >= 60 ? fmt::format("{:.1f} min", seconds / 60)
                         : fmt::format("{:.1f} s", seconds);
}

std::string cheapest(const predict::Scaling& s) {
  std::string when = s.deadline_s > 0 ? " within " + time_of(s.deadline_s) : "";
  if (!s.cheapest) return "no number of ranks of this cluster ends an epoch" + when;
  const predict::RankCount& c = s.counts[*s.cheapest];
  if (s.price_per_hour <= 0)
    return s.deadline_s > 0 ? fmt::format("fewest ranks{}: {}, an epoch in {}", when, c.ranks,
                                          time_of(c.epoch_s))
                            : "an epoch by number of ranks";
  return fmt::format("cheapest{}: {} rank{}, {:.2f} an epoch in {}", when, c.ranks,
                     c.ranks == 1 ? "" : "s", c.epoch_cost, time_of(c.epoch_s));
}

}  // namespace

std::string unsure(const predict::Difference& gain, Duration step) {
  return std::abs(fraction(gain.mid, step)) <= predict::kRepeats
             ? fmt::format("not more than the {:g} % to which executed steps repeat",
                           100 * predict::kRepeats)
             : "not more than the profile's own uncertainty (its ranges, or how far executed steps "
               "were off)";
}

std::string scaling_table(const predict::Scaling& scaling) {
  bool priced = scaling.price_per_hour > 0;
  std::string out = fmt::format("\n{}\n  {:>8} {:>11} {:>12} {:>11} {:>9} {:>10}{}\n",
                                cheapest(scaling), "ranks", "step", "samples/s", "of 1 rank",
                                "steps", "epoch", priced ? fmt::format(" {:>12}", "cost") : "");
  for (const predict::RankCount& r : scaling.counts)
    out += fmt::format("  {:>8} {:>11} {:>12.0f} {:>9.1f} % {:>9} {:>10}{}\n", r.ranks,
                       to_string(r.step), r.samples_per_s, 100 * r.efficiency, r.epoch.steps,
                       time_of(r.epoch_s), priced ? fmt::format(" {:>12.2f}", r.epoch_cost) : "");
  return out;
}

std::string tuning_page(const TuningHeading& h, const Tuning& t, const predict::Scaling* scaling) {
  std::string head = t.verdict + "\n\n";
  for (const std::string& l : t.lines) head += "  " + l + "\n";
  if (!t.lines.empty()) head += "\n";
  std::string out = h.question + "\n" + h.profile + "\n\n";
  out += fmt::format("  {:>18} {:>11} {:>11}   {}\n", t.knob.name, counted(t), "step", "interval");
  for (std::size_t i : shown(t)) {
    const CurvePoint& p = t.curve[i];
    const bool flat =
        static_cast<double>(p.step.ps) <= 1.01 * static_cast<double>(t.curve[t.best].step.ps);
    out += fmt::format("{} {:>18} {:>11} {:>11}   {} to {}\n",
                       t.chosen == i && !t.other_is_better ? ">"
                       : i == t.best                       ? "*"
                       : flat                              ? "="
                                                           : " ",
                       p.value->text, p.buckets, to_string(p.step), to_string(p.low),
                       to_string(p.high));
  }
  const CurvePoint& c = t.current;
  out += fmt::format("  {:>18} {:>11} {:>11}   {} to {}\n",
                     c.value ? "now " + c.value->text : "now (default)", c.buckets,
                     to_string(c.step), to_string(c.low), to_string(c.high));
  bool chosen = t.chosen && !t.other_is_better;
  out += chosen && *t.chosen != t.best ? "> recommended   * shortest   = within 1 % of it\n"
         : chosen                      ? "> recommended, and shortest   = within 1 % of it\n"
                                       : "* shortest   = within 1 % of it\n";
  out += "interval: " + h.interval + "\n\n";
  for (const std::string& s : why(t)) out += "- " + s + "\n";
  std::size_t helping = std::count_if(t.levers.begin(), t.levers.end(),
                                      [&](const predict::Lever& l) { return helps(t, l); });
  if (!t.levers.empty()) {
    out += "\nnext, on top of that (each simulated)\n";
    for (std::size_t i = 0; i < std::min(helping, kLevers); ++i)
      out += fmt::format("  {:>16}: {}{}\n", lever_gain(t, t.levers[i]), t.levers[i].change,
                         t.levers[i].command.empty() ? "" : "  [" + t.levers[i].command + "]");
    if (helping == 0) out += "  nothing gains 0.5 % or more\n";
    std::string rest;
    for (std::size_t i = helping; i < t.levers.size(); ++i)
      rest += (rest.empty() ? "" : "; ") + lever_name(t, t.levers[i]);
    if (!rest.empty()) out += "  no gain: " + rest + "\n";
  }
  if (scaling) out += scaling_table(*scaling);
  return head + out;
}

std::string tuning_markdown(const TuningHeading& h, const Tuning& t,
                            const predict::Scaling* scaling) {
  std::string out = "**" + t.verdict + "**\n\n" + h.question + "; " + h.profile + "\n\n";
  if (!t.lines.empty()) {
    out += "```python\n";
    for (const std::string& l : t.lines) out += l + "\n";
    out += "```\n\n";
  }
  out += fmt::format("| `{}` | {} | step | interval | |\n|---|---|---|---|---|\n", t.knob.name,
                     counted(t));
  for (std::size_t i : shown(t)) {
    const CurvePoint& p = t.curve[i];
    bool flat = i >= t.flat_from && i <= t.flat_to;
    out += fmt::format("| {} | {} | {} | {} to {} | {} |\n", p.value->text, p.buckets,
                       to_string(p.step), to_string(p.low), to_string(p.high),
                       t.chosen == i ? "recommended"
                       : i == t.best ? "shortest"
                       : flat        ? "within 1 %"
                                     : "");
  }
  out +=
      fmt::format("| {} | {} | {} | {} to {} | now |\n\n",
                  t.current.value ? t.current.value->text : "default", t.current.buckets,
                  to_string(t.current.step), to_string(t.current.low), to_string(t.current.high));
  out += "- interval: " + h.interval + "\n";
  for (const std::string& s : why(t)) out += "- " + s + "\n";
  if (!t.levers.empty()) {
    out += "\n| next, on top of that | step | |\n|---|---|---|\n";
    for (const predict::Lever& l : t.levers)
      out += fmt::format("| {}{} | {} | {} |\n", markdown_cell(lever_name(t, l)),
                         l.command.empty() ? "" : " (`" + l.command + "`)", to_string(l.step),
                         lever_gain(t, l));
  }
  if (scaling) {
    out += "\n" + cheapest(*scaling) +
           "\n\n| ranks | step | samples/s | of 1 rank | steps | epoch | cost |\n"
           "|---|---|---|---|---|---|---|\n";
    for (const predict::RankCount& r : scaling->counts)
      out += fmt::format("| {} | {} | {:.0f} | {:.1f} % | {} | {} | {:.2f} |\n", r.ranks,
                         to_string(r.step), r.samples_per_s, 100 * r.efficiency, r.epoch.steps,
                         time_of(r.epoch_s), r.epoch_cost);
  }
  return out;
}

std::string tuning_csv(const Tuning& t, const Profile& profile, const Workload& workload) {
  std::string out = "knob,value,step_ps,low_ps,high_ps,buckets,note,profile,basis\n";
  std::string whose = csv_field(profile.name) + "," + csv_field(basis_sentence(profile, workload));
  auto row = [&](const CurvePoint& p, const char* note) {
    out += fmt::format("{},{},{},{},{},{},{},{}\n", t.knob.name, p.value ? p.value->text : "",
                       p.step.ps, p.low.ps, p.high.ps, p.buckets, note, whose);
  };
  for (std::size_t i = 0; i < t.curve.size(); ++i)
    row(t.curve[i], t.chosen == i && !t.other_is_better  ? "recommended"
                    : i == t.best                        ? "shortest"
                    : i >= t.flat_from && i <= t.flat_to ? "flat"
                                                         : "");
  row(t.current, "current");
  return out;
}

}  // namespace ddpsim::report
