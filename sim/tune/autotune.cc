#include "sim/tune/autotune.h"

#include <cmath>

#include "sim/systems/horovod/plan.h"
#include "sim/units/convert.h"

namespace ddpsim::predict {
namespace {

constexpr std::int64_t kStepsOfScore =
    std::int64_t{systems::kAutotuneSamples} * systems::kAutotuneStepsPerSample;

systems::Autotuner::Fixed fixed_by(const Question& q) {
  const HorovodPlan& h = horovod_of(q.scenario.plan);
  const HorovodPlan initially;
  systems::Autotuner::Fixed out;
  if (h.fusion_threshold != default_fusion_threshold(h.release))
    out.fusion_mb = static_cast<double>(h.fusion_threshold) / (1 << 20);
  if (h.cycle_time) out.cycle_ms = *h.cycle_time;
  if (h.cache_capacity != initially.cache_capacity) out.cache = h.cache_capacity > 0;
  if (h.hierarchical_allreduce) out.hierarchical_allreduce = true;
  if (h.torus_allreduce) out.torus_allreduce = true;
  if (!h.release.has(horovod::Change::TorusAllreduce)) out.torus_allreduce = false;
  if (q.profile.kind != DeviceKind::Gpu)
    out.hierarchical_allreduce = out.torus_allreduce = false;  // builds without NCCL
  return out;
}

}  // namespace

Plan with_autotuned(const Plan& plan, const systems::AutotuneSetting& s) {
  Plan out = plan;
  HorovodPlan& h = horovod_of(out);
  h.fusion_threshold = static_cast<std::int64_t>(s.fusion_mb * 1024 * 1024);
  h.cycle_time = s.cycle_ms;
  if (!s.cache) h.cache_capacity = 0;
  h.hierarchical_allreduce = s.hierarchical_allreduce && !h.adasum;
  h.torus_allreduce = s.torus_allreduce && !s.hierarchical_allreduce && !h.adasum;
  return out;
}

AutotuneCourse autotune(const Question& q, const Options& given, std::uint64_t seed) {
  Communicators own;
  Options options = given;
  if (!options.known) options.known = &own;
  AutotuneCourse out;
  bool flat = false;  // a hierarchical all-reduce that cannot be simulated
  auto step_of = [&](const Plan& plan) {
    Scenario s = q.scenario;
    s.plan = plan;
    const Question asked{q.workload, q.fabric, q.profile, s};
    if (horovod_of(plan).hierarchical_allreduce && check(asked, options.known)) {
      flat = true;
      horovod_of(s.plan).hierarchical_allreduce = false;
    }
    return steady_period(asked, Level::Mid, options);
  };
  const bool halves = horovod_of(q.scenario.plan).fp16_compression;
  double bytes = 0;
  for (TensorIndex t : q.workload.arrival) {
    const Tensor& tensor = q.workload.tensors[t];
    bytes += static_cast<double>(tensor.elements() * (halves ? 2 : element_size(tensor.dtype)));
  }
  out.now = step_of(q.scenario.plan);
  systems::Autotuner tuner(fixed_by(q), seed);
  auto ask = [&] {
    const systems::AutotuneSetting setting = tuner.current();
    const Duration step = step_of(with_autotuned(q.scenario.plan, setting));
    return AutotuneCourse::Tried{setting, step, bytes / microseconds(step).us};
  };
  // All-gathers are none of gradients: those passes score as the ones before, if they try the same.
  while (!tuner.done()) {
    const AutotuneCourse::Tried tried = ask();
    if (out.tried.empty()) {
      out.steps = systems::kAutotuneWarmups * kStepsOfScore;
      out.lasts = tried.step * out.steps;
    }
    out.steps += kStepsOfScore;
    out.lasts += tried.step * kStepsOfScore;
    tuner.score(tried.score);
    out.tried.push_back(tried);
  }
  out.best = tuner.best();
  out.tuned = with_autotuned(q.scenario.plan, out.best);
  out.tuned_step = step_of(out.tuned);
  if (flat)
    out.notes.push_back(
        "hierarchical all-reduce was scored as none: ddpsim needs to know the hosts' memory for it "
        "(--set cluster.host_memory=300GB/s)");
  if (q.scenario.ranks <= q.fabric.cluster().devices_per_host && q.profile.kind == DeviceKind::Gpu)
    out.notes.push_back(
        "on one host Horovod would try its hierarchical and torus all-reduce in earnest, too; "
        "here they score as none");
  return out;
}

}  // namespace ddpsim::predict
