#include "sim/report/sharded_text.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/report/tuning_text.h"

namespace ddpsim::report {
namespace {

using predict::ShardedTuning;
using predict::TriedPlan;

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1024.0 * 1024 * 1024));
}
// "+1.2 %" of the plan as it is.
std::string beside(const ShardedTuning& t, const TriedPlan& p) {
  const Duration now = t.tried[t.current].step;
  return fmt::format("{:+.1f} %", 100 * fraction(p.step - now, now));
}
std::string fits(const ShardedTuning& t, const TriedPlan& p) {
  if (t.capacity == 0) return "not known";
  if (!p.fits) return "no";
  return p.device_high > t.capacity ? "just" : "yes";
}

struct Row {
  std::string mark;
  std::string what;
  const TriedPlan* plan = nullptr;
};
std::vector<std::string> cells_of(const ShardedTuning& t, const Row& r) {
  return {r.mark,
          r.what,
          to_string(r.plan->step),
          beside(t, *r.plan),
          to_string(r.plan->exposed),
          gib(r.plan->device),
          fits(t, *r.plan)};
}
const std::vector<std::string> kHead{"",        "setting",  "step", "of now",
                                     "exposed", "a device", "fits"};

// The plan as it is, what is recommended, and the shortest where that does not fit.
std::vector<Row> first_rows(const ShardedTuning& t) {
  std::vector<Row> out{{"", "now: " + std::string("the plan as it is"), &t.tried[t.current]}};
  auto add = [&](const char* mark, std::size_t k) {
    out.push_back({mark, predict::changes_of(t, k), &t.tried[k]});
  };
  if (t.recommended && *t.recommended != t.current) add(">", *t.recommended);
  if (t.best && t.best != t.recommended && *t.best != t.current) add("*", *t.best);
  if (t.leanest && t.leanest != t.recommended && *t.leanest != t.current && t.leanest != t.best)
    add("-", *t.leanest);
  if (!t.tried[t.shortest].fits && t.shortest != t.current) add("!", t.shortest);
  return out;
}
// One decision at a time.
std::vector<Row> rows_around(const ShardedTuning& t) {
  std::vector<Row> out;
  const std::size_t center = t.recommended.value_or(t.current);
  for (const predict::Around& a : t.around)
    out.push_back({a.tried == center ? "=" : "", t.decisions[a.decision].name + "=" + a.setting,
                   &t.tried[a.tried]});
  return out;
}

std::string table(const ShardedTuning& t, const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> cells{kHead};
  for (const Row& r : rows) cells.push_back(cells_of(t, r));
  std::vector<std::size_t> width(kHead.size());
  for (const auto& row : cells)
    for (std::size_t k = 0; k < row.size(); ++k) width[k] = std::max(width[k], row[k].size());
  constexpr std::size_t kWidest = 72;
  width[1] = std::min(width[1], kWidest);
  std::string out;
  for (const auto& row : cells) {
    std::string line = fmt::format("{:1} {:<{}}", row[0], row[1], width[1]);
    for (std::size_t k = 2; k < row.size(); ++k) line += fmt::format("  {:>{}}", row[k], width[k]);
    out += line + "\n";
  }
  return out;
}
std::string markdown_table(const ShardedTuning& t, const std::vector<Row>& rows) {
  std::string out =
      "| | setting | step | of now | exposed | a device | fits |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Row& r : rows) {
    std::string line = "|";
    for (const std::string& cell : cells_of(t, r)) line += " " + markdown_cell(cell) + " |";
    out += line + "\n";
  }
  return out;
}

// How far each decision moves the step while the others stay, of settings that fit.
std::vector<std::string> flatness(const ShardedTuning& t) {
  std::vector<std::string> out;
  for (std::size_t d = 0; d < t.decisions.size(); ++d) {
    const TriedPlan* least = nullptr;
    const TriedPlan* most = nullptr;
    std::size_t settings = 0;
    for (const predict::Around& a : t.around) {
      const TriedPlan& p = t.tried[a.tried];
      if (a.decision != d || !p.fits) continue;
      ++settings;
      if (!least || p.step < least->step) least = &p;
      if (!most || p.step > most->step) most = &p;
    }
    if (settings < 2) continue;
    const double range = fraction(most->step - least->step, least->step);
    out.push_back(
        range <= predict::kRepeats
            ? fmt::format("{}: all {} settings that fit are within {:.2f} %, which executed steps "
                          "would not tell apart",
                          t.decisions[d].name, settings, 100 * range)
            : fmt::format("{}: {} to {} over {} settings that fit ({:.1f} %)", t.decisions[d].name,
                          to_string(least->step), to_string(most->step), settings, 100 * range));
  }
  return out;
}

std::vector<std::string> why(const ShardedTuning& t) {
  std::vector<std::string> out;
  const std::size_t fitting =
      std::count_if(t.tried.begin(), t.tried.end(), [](const TriedPlan& p) { return p.fits; });
  std::string how = fmt::format("{} plans were simulated: {}", t.tried.size(),
                                t.decisions.size() > 1
                                    ? fmt::format("coordinate descent over {} decisions, {} rounds",
                                                  t.decisions.size(), t.rounds)
                                    : "every setting of " + t.decisions.front().name);
  if (t.refused > 0)
    how += fmt::format("; {} more are no plans (settings that rule one another out)", t.refused);
  out.push_back(how);
  if (t.capacity > 0 && fitting < t.tried.size()) {
    std::string left = fmt::format("{} were left out because they do not fit {}",
                                   t.tried.size() - fitting, gib(t.capacity));
    const TriedPlan& shortest = t.tried[t.shortest];
    if (!shortest.fits)
      left += fmt::format("; the shortest of them: {} with {}, at {}", to_string(shortest.step),
                          predict::changes_of(t, t.shortest), gib(shortest.device));
    out.push_back(left);
  }
  if (t.capacity == 0) out.push_back("the profile does not say how much memory a device has");
  if (!t.best) return out;
  const TriedPlan& best = t.tried[*t.best];
  if (*t.best != t.current) {
    out.push_back(fmt::format(
        "{} over the plan as it is: {} {}; {} with the profile's ranges at their pessimistic end, "
        "{} at their optimistic one{}",
        predict::changes_of(t, *t.best), t.gain.mid.ps < 0 ? "loses" : "gains",
        to_string(Duration{std::abs(t.gain.mid.ps)}), to_string(t.gain.low), to_string(t.gain.high),
        t.gain.measurable ? "" : ": " + unsure(t.gain, t.tried[t.current].step)));
  }
  const auto near = static_cast<std::size_t>(
      std::count_if(t.tried.begin(), t.tried.end(), [&](const TriedPlan& p) {
        return p.fits && fraction(p.step - best.step, best.step) <= 0.01;
      }));
  out.push_back(fmt::format("{} of {} that fit are within 1 % of the shortest step, {}", near,
                            fitting, to_string(best.step)));
  for (std::string& s : flatness(t)) out.push_back(std::move(s));
  if (t.leanest && t.leanest != t.recommended)
    out.push_back(fmt::format("least memory at a step as short (to {:g} %): {} with {}",
                              100 * predict::kRepeats, gib(t.tried[*t.leanest].device),
                              predict::changes_of(t, *t.leanest)));
  const std::size_t chosen = t.recommended.value_or(t.current);
  if (t.capacity > 0 && t.tried[chosen].fits && t.tried[chosen].device_high > t.capacity)
    out.push_back(fmt::format("what is recommended just fits: its memory is {} to at most {}",
                              gib(t.tried[chosen].device), gib(t.tried[chosen].device_high)));
  if (!t.proposed.empty())
    out.push_back(fmt::format(
        "{} partitions of the blocks are a dynamic programme's, exact for collectives one after "
        "another that computation hides; each was simulated",
        t.proposed.size()));
  return out;
}

constexpr const char* kLegend =
    "> recommended   * shortest that fits   - least memory, as short   ! shortest, does not fit   "
    "just: the estimate's upper end does not fit\n";

}  // namespace

std::string sharded_page(const TuningHeading& h, const ShardedTuning& t,
                         const predict::Scaling* scaling) {
  std::string head = t.verdict + "\n\n";
  for (const std::string& l : t.lines) head += "  " + l + "\n";
  if (!t.lines.empty()) head += "\n";
  std::string out = h.question + "\n" + h.profile + "\n\n" + table(t, first_rows(t)) + kLegend;
  out += t.decisions.size() > 1 ? "\none decision at a time, the others as recommended\n" : "\n";
  out += table(t, rows_around(t)) + "\ninterval: " + h.interval + "\n\n";
  for (const std::string& s : why(t)) out += "- " + s + "\n";
  if (scaling) out += scaling_table(*scaling);
  return head + out;
}

std::string sharded_markdown(const TuningHeading& h, const ShardedTuning& t) {
  std::string out = "**" + t.verdict + "**\n\n" + h.question + "; " + h.profile + "\n\n";
  if (!t.lines.empty()) {
    const bool python = t.lines.front().front() != '{';
    out += python ? "```python\n" : "```json\n";
    for (const std::string& l : t.lines) out += l + "\n";
    out += "```\n\n";
  }
  out += markdown_table(t, first_rows(t)) + "\n" + markdown_table(t, rows_around(t)) + "\n";
  out += "- interval: " + h.interval + "\n";
  for (const std::string& s : why(t)) out += "- " + s + "\n";
  return out;
}

std::string sharded_csv(const ShardedTuning& t, const Profile& profile, const Workload& workload) {
  std::string out;
  for (const systems::Decision& d : t.decisions) out += d.name + ",";
  out += "step_ps,exposed_ps,memory_bytes,memory_high_bytes,fits,note,profile,basis\n";
  const std::string whose =
      csv_field(profile.name) + "," + csv_field(basis_sentence(profile, workload));
  for (std::size_t k = 0; k < t.tried.size(); ++k) {
    const TriedPlan& p = t.tried[k];
    for (const std::string& s : p.settings) out += csv_field(s) + ",";
    out += fmt::format("{},{},{},{},{},{},{}\n", p.step.ps, p.exposed.ps, p.device, p.device_high,
                       t.capacity == 0 ? ""
                       : p.fits        ? "yes"
                                       : "no",
                       t.recommended == k ? "recommended"
                       : t.best == k      ? "shortest"
                       : t.current == k   ? "current"
                                          : "",
                       whose);
  }
  return out;
}

}  // namespace ddpsim::report
