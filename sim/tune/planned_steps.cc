#include "sim/tune/planned_steps.h"

#include <algorithm>

#include "sim/predict/joint_spread.h"
#include "sim/predict/step_error.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/ddp/plan.h"

namespace ddpsim::predict {

PlannedSteps::PlannedSteps(const Question& q, const Options& options, int simulations)
    : q_(q),
      ends_(with_joint_spread(q.workload, q.profile, q.scenario.ranks)),
      options_(options),
      simulations_(simulations) {
  if (!options_.known) options_.known = &own_;
  options_.jitter = true;
}

Question PlannedSteps::with(const Plan& plan, Scenario& s) const {
  s = q_.scenario;
  s.plan = plan;
  return {q_.workload, q_.fabric, q_.profile, s};
}

Duration PlannedSteps::step(const Plan& plan, Level level) {
  std::string key = std::to_string(static_cast<int>(level)) + " " + systems::settings_text(plan);
  for (double cap : ddp_of(plan).bucket_cap_mb_list) key += " " + std::to_string(cap * 1024 * 1024);
  auto [it, fresh] = steps_.try_emplace(key);
  if (!fresh) return it->second;
  return it->second = step_on(level == Level::Mid ? q_.profile : ends_, plan, level);
}

Duration PlannedSteps::step_on(const Profile& p, const Plan& plan, Level level) {
  Scenario s = q_.scenario;
  s.plan = plan;
  return steady_period({q_.workload, q_.fabric, p, s}, level, options_);
}

Difference PlannedSteps::difference(const Plan& from, const Plan& to) {
  Difference d;
  double least = 0;  // of all levels, in the direction of `mid`
  for (auto [level, at] : {std::pair{Level::Mid, &d.mid}, std::pair{Level::Low, &d.low},
                           std::pair{Level::High, &d.high}}) {
    Duration before = step(from, level);
    *at = before - step(to, level);
    double gain = fraction(*at, before) * (d.mid.ps < 0 ? -1 : 1);
    least = level == Level::Mid ? gain : std::min(least, gain);
    if (level == Level::Mid) d.measurable = gain > std::max(kRepeats, q_.profile.step_residual);
  }
  d.measurable = d.measurable && least > kRepeats;
  return d;
}

PlannedSteps::Interval PlannedSteps::interval(const Plan& plan) {
  const Duration mid = step(plan, Level::Mid);
  double r = q_.profile.step_residual;
  Interval out{r > 0 ? scale(mid, 1 - r) : mid, r > 0 ? scale(mid, 1 + r) : mid};
  if (!interval_from_levels(q_)) return out;
  const StepError* family = step_error(q_);
  if (family) out = {scale(mid, family->low), scale(mid, family->high)};
  for (Level level : {Level::High, Level::Low}) {
    Duration end = family ? step_on(without_spreads(q_.profile), plan, level) : step(plan, level);
    out.low = std::min(out.low, end);
    out.high = std::max(out.high, end);
  }
  return out;
}

// A few ten thousand messages' worth of time each at collective fidelity, all messages at the
// other.
std::size_t PlannedSteps::budget() const {
  if (simulations_ > 0) return simulations_;
  constexpr std::size_t kMost = 192;
  if (options_.fidelity == Fidelity::Collective) {
    // A simulation takes some 10 microseconds a gradient, and a setting's interval up to three.
    constexpr std::size_t kGradients = 300'000;
    std::size_t each = q_.workload.arrival.size() * (interval_from_levels(q_) ? 3 : 1);
    return std::clamp<std::size_t>(kGradients / std::max<std::size_t>(1, each), 8, kMost);
  }
  constexpr double kMessages = 10e6;
  return std::clamp(static_cast<std::size_t>(kMessages / std::max(1.0, message_count(q_))),
                    std::size_t{16}, kMost);
}

}  // namespace ddpsim::predict
