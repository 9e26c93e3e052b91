#include "sim/predict/step_error.h"

#include <algorithm>

#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

// Of rows of calib/published, each source alike: validation/steps.h (step_intervals) and, of
// sharded training, tools/sharded_report fit them; tests/validation/steps.json and that report hold
// them to it.
constexpr StepError kErrors[] = {
    {"one GPU", 105, 11, 0.804, 1.192},
    {"several GPUs", 178, 9, 0.817, 1.180},
    {"one host, computation as measured", 106, 8, 0.923, 1.109},
    {"several hosts, computation as measured", 79, 4, 0.908, 1.123},
    {"sharded training", 197, 6, 0.900, 1.245},
};
enum Family : std::uint8_t { OneGpu, SeveralGpus, OneHost, SeveralHosts, Sharded };

bool is_carried(const Question& q) {
  const Profile& p = q.profile;
  return p.kind == DeviceKind::Gpu && p.step_residual <= 0 && p.costs &&
         !p.costs->carried_from.empty() && q.fabric.cluster().emulated_on_cores == 0;
}

bool is_sharded(System s) {
  return systems::record_of(s).weights_in_shards;
}

// Of what several ranks add to computation as measured; nullptr: there is one.
const StepError* added_error(const Question& q) {
  if (q.scenario.ranks < 2) return nullptr;
  return &kErrors[topology::on_one_host(q.fabric, devices_of(q.scenario)) ? OneHost : SeveralHosts];
}

}  // namespace

std::span<const StepError> step_errors() {
  return kErrors;
}

const StepError* step_error(const Question& q) {
  if (!is_carried(q)) return nullptr;
  if (q.workload.measured_step || q.workload.basis == Basis::Captured) return added_error(q);
  if (is_sharded(q.scenario.plan.system)) return &kErrors[Sharded];
  return &kErrors[q.scenario.ranks < 2 ? OneGpu : SeveralGpus];
}

Profile widened(const Question& q, const StepError& family, Prediction& out) {
  out.step_low = scale(out.step_low, family.low);
  out.step_high = scale(out.step_high, family.high);
  // Computation's error is in both steps that an efficiency compares.
  if (const StepError* added = added_error(q)) {
    const double efficiency = out.efficiency_high;
    out.efficiency_low /= added->high;
    out.efficiency_high = std::max(efficiency, std::min(1.0, efficiency / added->low));
  }
  return without_spreads(q.profile);
}

Profile without_spreads(const Profile& p) {
  Profile out = p;
  if (!out.costs) return out;
  out.costs->common = {};
  for (ProductCost& c : out.costs->products) c.spread = {};
  for (MemoryCost& c : out.costs->memory) c.spread = {};
  for (AttentionCost& c : out.costs->attention) c.spread = {};
  return out;
}

}  // namespace ddpsim::predict
