#include "sim/tune/rank_plans.h"

#include <algorithm>
#include <tuple>

#include "sim/predict/memory.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/knobs.h"

namespace ddpsim::predict {
namespace {

// The question's plan as another system's: what is of every system stays.
Plan of_system(const Plan& asked, System system) {
  Plan p;
  p.system = system;
  p.backend = asked.backend;
  p.accumulation_steps = asked.accumulation_steps;
  p.gloo_threads = asked.gloo_threads;
  p.tcp_streams = asked.tcp_streams;
  p.algorithm = asked.algorithm;
  p.gloo_algorithm = asked.gloo_algorithm;
  p.pytorch = asked.pytorch;
  p.nccl = asked.nccl;
  p.environment = asked.environment;
  p.set_to_none = asked.set_to_none;
  p.unused_parameters = asked.unused_parameters;
  return p;
}

bool same(const Plan& a, const Plan& b) {
  return a.system == b.system && systems::settings_text(a) == systems::settings_text(b);
}

}  // namespace

std::vector<RankedPlan> plans_to_rank(const Question& q) {
  std::vector<RankedPlan> out;
  out.push_back({q.scenario.plan, systems::settings_text(q.scenario.plan), true, {}, {}, {}});
  auto add = [&](Plan plan) {
    for (const RankedPlan& r : out)
      if (same(r.plan, plan)) return;
    std::string settings = systems::settings_text(plan);
    out.push_back({std::move(plan), std::move(settings), false, {}, {}, {}});
  };
  auto setting_of = [&](const systems::Ranked& r) {
    return *r.setting ? r.setting : std::to_string(q.fabric.cluster().devices_per_host);
  };
  for (const systems::SystemRecord& s : systems::all_systems()) {
    const Plan plain = of_system(q.scenario.plan, s.system);
    add(plain);
    for (const systems::Ranked& r : s.ranked)
      if (q.scenario.ranks > q.fabric.cluster().devices_per_host || !r.several_hosts)
        add(systems::with_setting(plain, r.knob, setting_of(r)));
  }
  return out;
}

RankedPlan ask_plan(RankedPlan plan, const Question& q, Options options) {
  options.interval = false;
  options.names = false;
  options.warmup = false;
  Scenario scenario = q.scenario;
  scenario.plan = plan.plan;
  const Question question{q.workload, q.fabric, q.profile, scenario};
  if (Problem p = check(question, options.known)) {
    plan.refused = p.message;
    return plan;
  }
  plan.prediction = predict(question, options);
  if (!plan.prediction->memory || plan.prediction->memory->fits())
    plan.diagnosis = diagnose(question, plan.prediction->summary.step, options);
  return plan;
}

void put_in_order(std::vector<RankedPlan>& plans) {
  std::stable_sort(plans.begin(), plans.end(), [](const RankedPlan& a, const RankedPlan& b) {
    auto key = [](const RankedPlan& r) {
      if (!r.prediction) return std::tuple(2, std::int64_t{0});
      const bool fits = !r.prediction->memory || r.prediction->memory->fits();
      return fits ? std::tuple(0, r.prediction->summary.step.ps)
                  : std::tuple(1, r.prediction->memory->device);
    };
    return key(a) < key(b);
  });
}

std::vector<RankedPlan> rank_plans(const Question& q, const Options& given) {
  Communicators own;
  Options options = given;
  if (!options.known) options.known = &own;
  std::vector<RankedPlan> out = plans_to_rank(q);
  for (RankedPlan& r : out) r = ask_plan(std::move(r), q, options);
  put_in_order(out);
  return out;
}

}  // namespace ddpsim::predict
