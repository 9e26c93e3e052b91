// A step depends on the cap through the list of buckets alone, so that there are finitely many
// settings to try.
#include "sim/tune/tune.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "sim/systems/base/settings.h"
#include "sim/systems/script.h"

namespace ddpsim::predict {
namespace {

using systems::Knob;
using systems::KnobValue;

class Tuner {
 public:
  Tuner(const Question& q, const TuneOptions& t)
      : q_(q), t_(t), steps_(q, t.options, t.simulations) {}

  Tuning run() {
    out_.knob = t_.knob;
    all_ = t_.only.empty() ? settings(t_.knob) : t_.only;
    out_.curve = curve_of(steps_, t_.knob, all_, !t_.only.empty());
    out_.candidates = all_.size();
    out_.best = best_of(out_.curve);
    out_.current = point_of(steps_, q_.scenario.plan, systems::value_of(q_.scenario.plan, t_.knob));
    for (CurvePoint& p : out_.curve) find_interval(steps_, with(t_.knob, *p.value), p);
    find_interval(steps_, q_.scenario.plan, out_.current);
    std::tie(out_.flat_from, out_.flat_to) = flat_around(out_.curve, out_.best);
    Plan best_plan = with(t_.knob, *out_.curve[out_.best].value);
    choose();
    search_other();
    out_.recommended_step = steps_.step(out_.recommended, Level::Mid);
    if (!q_.scenario.jitter) out_.bound = lower_bound(q_, steps_.options());
    if (t_.partition) {
      BestBuckets found = best_buckets(steps_, best_plan);
      out_.partition = std::move(found.partition);
      out_.no_partition = std::move(found.why_not);
    }
    if (t_.levers) {
      Scenario s;
      out_.levers = all_levers(steps_.with(out_.recommended, s), steps_.options());
    }
    say();
    return std::move(out_);
  }

 private:
  // The plan with the knob at a value: of what has buckets, a knob that is not the searched one
  // stays.
  Plan with(const Knob& knob, const KnobValue& v) const {
    return systems::with(q_.scenario.plan, knob, v);
  }
  std::vector<KnobValue> settings(const Knob& knob) const {
    return systems::values(knob, q_.workload, q_.scenario.plan);
  }

  // Of settings that predict less than the current one by more than steps repeat to, the shortest
  // that every level of the profile's ranges speaks for.
  void choose() {
    out_.recommended = q_.scenario.plan;
    out_.gain = steps_.difference(q_.scenario.plan, with(t_.knob, *out_.curve[out_.best].value));
    std::optional<Plan> none;
    out_.chosen = safest(t_.knob, all_, out_.curve, none);
    if (!out_.chosen) return;
    out_.recommended = with(t_.knob, *out_.curve[*out_.chosen].value);
    out_.gain = steps_.difference(q_.scenario.plan, out_.recommended);
  }

  // The index of the setting to recommend, over the plan as it is and, with `also`, over that one.
  std::optional<std::size_t> safest(const Knob& knob, const std::vector<KnobValue>& all,
                                    const std::vector<CurvePoint>& curve,
                                    const std::optional<Plan>& also) {
    std::vector<std::size_t> order(curve.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return curve[a].step < curve[b].step; });
    order.insert(order.begin(), best_of(curve));
    for (std::size_t i : order) {
      if (fraction(out_.current.step - curve[i].step, out_.current.step) <= kRepeats) break;
      Plan plan = with(knob, *curve[i].value);
      auto gains = [&](const Plan& over) {
        Difference d = steps_.difference(over, plan);
        return d.measurable && d.mid.ps > 0;
      };
      if (!gains(q_.scenario.plan) || (also && !gains(*also))) continue;
      if (!near_cliff(knob, all, curve[i])) return i;
      out_.cliffs = true;
    }
    return {};
  }

  // Whether a setting within kBeside has a measurably longer step. Where a user names the settings,
  // those are all that there are.
  bool near_cliff(const Knob& knob, const std::vector<KnobValue>& all, const CurvePoint& p) {
    if (!t_.only.empty() || knob.unit.empty()) return false;
    double at = p.value->number;
    std::vector<KnobValue> beside;
    for (const KnobValue& v : all)
      if (v.number != at && std::abs(v.number - at) <= kBeside * at) beside.push_back(v);
    // The buckets at both ends, which the list may name by a rounder setting further out.
    for (double end : {at * (1 - kBeside), at * (1 + kBeside)}) {
      double v = knob.unit == "bytes" ? std::floor(end) : end;
      if (v > 0) beside.insert(beside.begin(), {systems::number_text(v), v});
    }
    std::size_t most = std::max<std::size_t>(8, steps_.budget() / 6);
    std::size_t stride = beside.size() / most + 1;
    for (std::size_t i = 0; i < beside.size(); i += i < 2 ? 1 : stride)
      if (fraction(steps_.step(with(knob, beside[i]), Level::Mid) - p.step, p.step) > kRepeats)
        return true;
    return false;
  }

  // The system's other knob. What it gains must be more than executed steps repeat to, over what
  // the first recommends, too.
  void search_other() {
    constexpr std::size_t kDear = 64;
    if (!t_.only.empty() || steps_.budget() < kDear) return;
    for (const Knob& k : systems::knobs(q_.scenario.plan)) {
      if (k.name == t_.knob.name) continue;
      std::vector<KnobValue> all = settings(k);
      std::vector<CurvePoint> curve = curve_of(steps_, k, all, false);
      out_.other = k;
      std::optional<std::size_t> better;
      if (k.argument) better = safest(k, all, curve, out_.recommended);
      out_.other_is_better = better.has_value();
      out_.other_best = curve[better.value_or(best_of(curve))];
      Plan plan = with(k, *out_.other_best->value);
      find_interval(steps_, plan, *out_.other_best);
      if (out_.other_is_better) out_.recommended = plan;
      return;
    }
  }

  void say();
  static std::string label(const CurvePoint& p, const Knob& k) {
    return p.value ? k.name + "=" + p.value->text : k.name + " at its default";
  }

  const Question& q_;
  const TuneOptions& t_;
  PlannedSteps steps_;
  std::vector<KnobValue> all_;  // settings of the searched knob that differ
  Tuning out_;
};

void Tuner::say() {
  const CurvePoint& best = out_.curve[out_.best];
  Duration gain = out_.current.step - out_.recommended_step;
  bool stays = !out_.other_is_better && !out_.chosen;
  if (out_.curve.front().step == out_.curve.back().step && best.step == out_.curve.front().step &&
      best.step == out_.current.step) {
    out_.verdict =
        out_.knob.name + " makes no difference here: every setting predicts the same step";
  } else if (stays) {
    double gain_of_best = fraction(out_.gain.mid, out_.current.step);
    std::string steps = label(best, out_.knob) + " predicts " + to_string(best.step) +
                        ", the plan as it is " + to_string(out_.current.step);
    if (out_.cliffs)
      out_.verdict = "no setting that keeps its gain: " + steps + ", and settings within " +
                     percent_text(kBeside) + " of one that gains lose it again";
    else
      out_.verdict = undecided(gain_of_best, steps);
  } else {
    const CurvePoint& p = out_.other_is_better ? *out_.other_best : out_.curve[*out_.chosen];
    out_.verdict = label(p, out_.other_is_better ? out_.other : out_.knob) + " makes the step " +
                   to_string(gain) + " (" + percent_text(fraction(gain, out_.current.step)) +
                   ") shorter: " + to_string(p.step) + " instead of " +
                   to_string(out_.current.step);
    // Nothing to paste: a script would have to reach behind the framework's interface.
    if (!(out_.other_is_better ? out_.other : out_.knob).argument) return;
  }
  out_.lines = systems::script_lines(out_.recommended, q_.workload, q_.profile.kind,
                                     q_.scenario.ranks, q_.fabric.cluster().devices_per_host);
}

}  // namespace

Tuning tune(const Question& q, const TuneOptions& options) {
  return Tuner(q, options).run();
}

}  // namespace ddpsim::predict
