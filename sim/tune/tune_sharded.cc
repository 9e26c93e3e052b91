#include "sim/tune/tune_sharded.h"

#include <algorithm>
#include <cstdio>

#include "sim/predict/memory.h"
#include "sim/systems/fsdp/fsdp_settings.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/script.h"
#include "sim/tune/planned_steps.h"
#include "sim/tune/tried_plans.h"
#include "sim/tune/unit_problem.h"

namespace ddpsim::predict {
namespace {

using systems::Decision;
using systems::Setting;

constexpr double kAlike = 0.001;  // of a step
constexpr std::size_t kMostRounds = 8;

class ShardedTuner {
 public:
  ShardedTuner(const Question& q, const ShardedOptions& o)
      : q_(q), o_(o), options_(o.options), tried_(q_, options_, o.decisions) {
    if (!options_.known) options_.known = &own_;
    options_.interval = false;
    options_.names = false;
  }

  ShardedTuning run() {
    out_.decisions = o_.decisions;
    out_.capacity = q_.profile.memory.capacity.count;
    out_.current = *tried_.attempt(q_.scenario.plan);
    std::size_t best = descend(out_.current, false);
    if (some_do_not_fit()) {
      const std::size_t lean = descend(descend(out_.current, true), false);
      if (better(lean, best, false)) best = lean;
    }
    // On the way something better may have been seen than where it ended.
    for (std::size_t seen = best_seen(); clearly_better(seen, best, false); seen = best_seen())
      best = descend(seen, false);
    best = without_idle(best);
    if (tried_[best].fits) out_.best = best;
    recommend(best);
    look_around(out_.recommended.value_or(out_.current));
    out_.refused = tried_.refused();
    out_.tried = tried_.take();
    find_extremes();
    out_.verdict = verdict_of(out_);
    if (!out_.recommended)
      if (std::string fit = in_words(what_fits(q_, options_)); !fit.empty())
        out_.verdict += "; as it is it would fit with " + fit;
    return std::move(out_);
  }

 private:
  // Whether `a` is to be preferred: it fits and `b` does not, or by step; of what does not fit, and
  // with `lean`, by memory.
  bool better(std::size_t a, std::size_t b, bool lean) const {
    const TriedPlan& x = tried_[a];
    const TriedPlan& y = tried_[b];
    if (!lean && x.fits != y.fits) return x.fits;
    if (lean || !x.fits) return x.device < y.device;
    return x.step < y.step;
  }
  // By more than what is alike.
  bool clearly_better(std::size_t a, std::size_t b, bool lean) const {
    const TriedPlan& x = tried_[a];
    const TriedPlan& y = tried_[b];
    if (!better(a, b, lean)) return false;
    if (lean || !x.fits || !y.fits) return true;
    return fraction(y.step - x.step, y.step) > kAlike;
  }
  bool some_do_not_fit() const {
    for (std::size_t k = 0; k < tried_.size(); ++k)
      if (!tried_[k].fits) return true;
    return false;
  }

  std::size_t best_seen() const {
    std::size_t best = 0;
    for (std::size_t k = 1; k < tried_.size(); ++k)
      if (better(k, best, false)) best = k;
    return best;
  }

  // The settings of a decision, and of units what the dynamic programme proposes for the plan.
  std::vector<Setting> settings_of(const Decision& d, const Plan& plan) {
    std::vector<Setting> out = d.settings;
    if (d.name != "units" || !o_.partitions) return out;
    Scenario s = q_.scenario;
    s.plan = plan;
    const Question q{q_.workload, q_.fabric, q_.profile, s};
    const auto problem = unit_problem(q, options_);
    if (!problem) return out;
    for (UnitPartition& p : partitions_worth_trying(*problem)) {
      out.push_back(systems::units_setting(p.blocks, fsdp_of(plan).ends_apart));
      Plan proposed = plan;
      out.back().make(proposed);
      if (auto k = tried_.attempt(proposed)) propose(std::move(p), *k);
    }
    return out;
  }
  void propose(UnitPartition p, std::size_t tried) {
    for (const ShardedTuning::Proposed& known : out_.proposed)
      if (known.tried == tried) return;
    out_.proposed.push_back({std::move(p.blocks), p.model, tried});
  }

  // Each decision in turn, until a round changes nothing.
  std::size_t descend(std::size_t from, bool lean) {
    std::size_t at = from;
    for (std::size_t round = 0; round < kMostRounds; ++round) {
      const std::size_t before = at;
      for (const Decision& d : o_.decisions) {
        std::size_t best = at;
        const Plan plan = tried_[at].plan;
        for (const Setting& s : settings_of(d, plan)) {
          Plan other = plan;
          s.make(other);
          auto k = tried_.attempt(other);
          if (k && better(*k, best, lean)) best = *k;
        }
        if (clearly_better(best, at, lean)) at = best;
      }
      ++out_.rounds;
      if (at == before) break;
    }
    return at;
  }

  // Decisions that make no difference go back to what they were.
  std::size_t without_idle(std::size_t best) {
    const TriedPlan found = tried_[best];
    if (!found.fits) return best;
    std::size_t at = best;
    for (std::size_t d = 0; d < o_.decisions.size(); ++d) {
      const std::string was = tried_[out_.current].settings[d];
      if (tried_[at].settings[d] == was) continue;
      for (const Setting& s : settings_of(o_.decisions[d], tried_[at].plan)) {
        if (s.text != was) continue;
        Plan other = tried_[at].plan;
        s.make(other);
        auto k = tried_.attempt(other);
        if (k && tried_[*k].fits && fraction(tried_[*k].step - found.step, found.step) <= kAlike)
          at = *k;
        break;
      }
    }
    return at;
  }

  void recommend(std::size_t best) {
    const TriedPlan& current = tried_[out_.current];
    PlannedSteps steps(q_, options_, 0);
    out_.gain = steps.difference(current.plan, tried_[best].plan);
    if (!out_.best) return;
    const bool gains = out_.gain.measurable && out_.gain.mid.ps > 0;
    out_.recommended = gains || !current.fits ? best : out_.current;
    out_.lines = systems::script_lines(tried_[*out_.recommended].plan, q_.workload, q_.profile.kind,
                                       q_.scenario.ranks, q_.fabric.cluster().devices_per_host);
  }

  void look_around(std::size_t center) {
    for (std::size_t d = 0; d < o_.decisions.size(); ++d) {
      const Plan plan = tried_[center].plan;
      std::vector<std::size_t> seen;
      for (const Setting& s : settings_of(o_.decisions[d], plan)) {
        Plan other = plan;
        s.make(other);
        auto k = tried_.attempt(other);
        if (!k || std::find(seen.begin(), seen.end(), *k) != seen.end()) continue;
        seen.push_back(*k);
        out_.around.push_back({d, tried_[*k].settings[d], *k});
      }
    }
  }

  // After the last simulation.
  void find_extremes() {
    const std::vector<TriedPlan>& all = out_.tried;
    for (std::size_t k = 0; k < all.size(); ++k)
      if (all[k].step < all[out_.shortest].step) out_.shortest = k;
    if (!out_.recommended) return;
    out_.leanest = *out_.recommended;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const Duration limit = scale(all[*out_.recommended].step, 1 + kRepeats);
      if (all[k].fits && all[k].step <= limit && all[k].device < all[*out_.leanest].device)
        out_.leanest = k;
    }
    constexpr double kWorthSaying = 0.99;
    if (static_cast<double>(all[*out_.leanest].device) >
        kWorthSaying * static_cast<double>(all[*out_.recommended].device))
      out_.leanest.reset();
  }

  const Question& q_;
  const ShardedOptions& o_;
  Communicators own_;
  Options options_;
  TriedPlans tried_;
  ShardedTuning out_;
};

std::string gib(std::int64_t bytes) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1024.0 * 1024 * 1024));
  return text;
}

}  // namespace

std::string changes_of(const ShardedTuning& t, std::size_t tried) {
  std::string out;
  for (std::size_t d = 0; d < t.decisions.size(); ++d) {
    const std::string& now = t.tried[tried].settings[d];
    if (now != t.tried[t.current].settings[d])
      out += (out.empty() ? "" : ", ") + t.decisions[d].name + "=" + now;
  }
  return out.empty() ? "the plan as it is" : out;
}

std::string verdict_of(const ShardedTuning& t) {
  const TriedPlan& now = t.tried[t.current];
  if (!t.recommended) {
    std::size_t least = t.current;
    for (std::size_t k = 0; k < t.tried.size(); ++k)
      if (t.tried[k].device < t.tried[least].device) least = k;
    return "no setting fits " + gib(t.capacity) + ": the least of " +
           std::to_string(t.tried.size()) + " takes " + gib(t.tried[least].device) + " (" +
           changes_of(t, least) + ")";
  }
  const TriedPlan& best = t.tried[*t.best];
  if (*t.recommended == t.current) {
    if (*t.best == t.current)
      return "keep the plan as it is: " + to_string(now.step) +
             " is the shortest step that fits, of " + std::to_string(t.tried.size()) + " settings";
    const std::string both = changes_of(t, *t.best) + " predicts " + to_string(best.step) +
                             ", the plan as it is " + to_string(now.step);
    return undecided(fraction(t.gain.mid, now.step), both);
  }
  const std::string steps = to_string(best.step) + " instead of " + to_string(now.step);
  if (!now.fits)
    return changes_of(t, *t.best) + " makes it fit: " + gib(best.device) + " of " +
           gib(t.capacity) + " instead of " + gib(now.device) + "; the step is " + steps;
  return changes_of(t, *t.best) + " makes the step " + to_string(now.step - best.step) + " (" +
         percent_text(fraction(now.step - best.step, now.step)) + ") shorter: " + steps;
}

ShardedTuning tune_sharded(const Question& q, const ShardedOptions& options) {
  Scenario s = q.scenario;
  s.jitter.reset();
  const Question steady{q.workload, q.fabric, q.profile, s};
  return ShardedTuner(steady, options).run();
}

}  // namespace ddpsim::predict
