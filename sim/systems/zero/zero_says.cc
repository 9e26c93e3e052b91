// DeepSpeed's decisions, and the lines of its configuration.
#include "sim/systems/base/settings.h"
#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/record.h"
#include "sim/systems/zero/zero.h"

namespace ddpsim::systems {

namespace {

using Lines = std::vector<std::string>;

// DeepSpeed has an object where ddpsim has knobs.
Lines zero_offload_lines(const ZeroPlan& z) {
  Lines out;
  const std::string pinned = z.offload_pin_memory ? ", \"pin_memory\": true" : "";
  if (z.offload_optimizer)
    out.push_back("  \"offload_optimizer\": {\"device\": \"cpu\"" + pinned + "},");
  if (z.offload_param) out.push_back("  \"offload_param\": {\"device\": \"cpu\"},");
  return out;
}

}  // namespace

std::vector<Decision> zero_decisions(const Plan& plan, const DecidedFor&) {
  std::vector<Decision> out{
      of_knob(plan, "overlap_comm", {"false", "true"}),
      of_knob(plan, "reduce_bucket_size", texts({5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}))};
  const std::vector<std::string> switches{"true", "false"};
  if (zero_of(plan).stage < 3) {
    out.push_back(of_knob(plan, "contiguous_gradients", switches));
    out.push_back(of_knob(plan, "use_multi_rank_bucket_allreduce", switches));
    out.push_back(of_knob(plan, "allgather_bucket_size", texts({5e6, 5e7, 2e8, 5e8})));
    out.back().joint = false;
    return out;
  }
  out.push_back(
      of_knob(plan, "stage3_prefetch_bucket_size", texts({0, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8})));
  out.push_back(
      of_knob(plan, "stage3_param_persistence_threshold", texts({0, 1e4, 1e5, 1e6, 1e7})));
  out.push_back(of_knob(plan, "stage3_max_live_parameters", texts({1e8, 3e8, 1e9, 3e9})));
  out.push_back(of_knob(plan, "stage3_max_reuse_distance", texts({0, 1e8, 1e9})));
  return out;
}

std::vector<std::string> zero_script(const Plan& plan, const Workload&, DeviceKind, int, int) {
  Plan initial;
  initial.system = plan.system;
  Lines out{"{\"zero_optimization\": {"};
  for (const KnobRecord& k : record_of(kZeroSystem).knobs) {
    const std::string setting = setting_of(plan, k);
    const bool stage = std::string(k.name) == "stage";
    if (std::string(k.name).starts_with("offload_")) continue;
    if (stage || (!setting.empty() && setting != setting_of(initial, k)))
      out.push_back("  \"" + std::string(k.name) + "\": " + setting + ",");
  }
  const Lines offload = zero_offload_lines(zero_of(plan));
  out.insert(out.end(), offload.begin(), offload.end());
  out.back().pop_back();
  out.push_back("}}");
  return out;
}

}  // namespace ddpsim::systems
