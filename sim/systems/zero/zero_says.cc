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
  const std::string pinned = !z.offload_pin_memory   ? ""
                             : *z.offload_pin_memory ? ", \"pin_memory\": true"
                                                     : ", \"pin_memory\": false";
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
    const std::string_view knob = k.name;
    if (knob.starts_with("offload_") || knob == kZeroRelease) continue;
    if (stage || (!setting.empty() && setting != setting_of(initial, k)))
      out.push_back("  \"" + std::string(k.name) + "\": " + setting + ",");
  }
  const Lines offload = zero_offload_lines(zero_of(plan));
  out.insert(out.end(), offload.begin(), offload.end());
  out.back().pop_back();
  out.push_back("}}");
  return out;
}

// Rows of version.h that no lowering has.
std::vector<std::string> zero_warnings(const Plan& plan) {
  const ZeroPlan& z = zero_of(plan);
  std::vector<std::string> out;
  if (z.zero_hpz_partition_size > 1 && !z.release.has(ZeroChange::SecondCopyByPresence))
    out.push_back("before DeepSpeed " +
                  deepspeed::Version::first_with(ZeroChange::SecondCopyByPresence) +
                  " only backward gathers from hpZ's second copy, which the optimizer's step "
                  "renews (#4906); read, and modelled as of later ones");
  if (z.release.has(ZeroChange::HooksCount) && !z.release.has(ZeroChange::HooksCountOnce))
    out.push_back("DeepSpeed " + z.release.name() +
                  " counts all parameters in each gradient's hook (#7886: 127 ms for 51 ms, of 147 "
                  "parameters on 8 H100); the host's time for it is not modelled");
  return out;
}

const char* zero_schedule_of(const Plan& plan) {
  return zero_of(plan).release == ZeroPlan{}.release
             ? ""
             : "schedule of DeepSpeed 0.14.5, whose collectives were recorded without a GPU, and "
               "what the plan's release does otherwise, from source reading; never executed";
}

}  // namespace ddpsim::systems
