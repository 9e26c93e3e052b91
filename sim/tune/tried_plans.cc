#include "sim/tune/tried_plans.h"

#include "sim/explain/played_step.h"
#include "sim/predict/memory.h"
#include "sim/systems/base/settings.h"

namespace ddpsim::predict {

std::optional<std::size_t> TriedPlans::attempt(const Plan& plan) {
  auto [it, fresh] = known_.try_emplace(systems::settings_text(plan));
  if (!fresh) return it->second;
  Scenario s = q_.scenario;
  s.plan = plan;
  const Question q{q_.workload, q_.fabric, q_.profile, s};
  if (check(q, options_.known)) {
    ++refused_;
    return std::nullopt;
  }
  const PlayedStep step(q, options_);
  const Memory memory = memory_of(q, step.program(), options_.known->get(q, step.program()),
                                  {&step.span(0, 0), step.ops()});
  TriedPlan tried{plan,          {},
                  step.period(), step.summary().exposed_communication,
                  memory.device, memory.device_high,
                  memory.fits()};
  for (const systems::Decision& d : decisions_)
    tried.settings.push_back(systems::setting_text(plan, d));
  plans_.push_back(std::move(tried));
  return it->second = plans_.size() - 1;
}

}  // namespace ddpsim::predict
