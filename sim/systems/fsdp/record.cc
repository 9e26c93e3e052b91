#include "sim/systems/fsdp/record.h"

#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/fsdp_settings.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim::systems {
namespace {

Field sharding(Plan&) {
  return choice_of<&FsdpPlan::sharding_strategy>(
      {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "_hybrid_shard_zero2"});
}

Field backward_prefetch(Plan&) {
  return choice_of<&FsdpPlan::backward_prefetch>({"none", "backward_pre", "backward_post"});
}
Field fsdp1_wrap_policy(Plan&) {
  return Choice{{"block", "none", "size_based"}, wrap_policy, set_wrap_policy};
}

std::span<const KnobRecord> fsdp_knobs() {
  static const KnobRecord knobs[] = {
      {"sharding_strategy", "", "full_shard",
       "full_shard gathers weights for forward and again for backward, shard_grad_op once; hybrid: "
       "in groups of ranks",
       false, sharding},
      {"shard_degree", "ranks", "those of a host",
       "hybrid strategies: ranks that shard together (device_mesh)", false,
       [](Plan& p) { return Field(&fsdp_of(p).shard_degree); }},
      {"backward_prefetch", "", "backward_pre (1.13: none)",
       "when backward gathers the next unit's weights: before its own computation, or after", true,
       backward_prefetch},
      {"forward_prefetch", "", "false",
       "the host issues the next unit's all-gather before the computation of this one", true,
       [](Plan& p) { return Field(&fsdp_of(p).forward_prefetch); }},
      {"limit_all_gathers", "", "true (up to 2.0: false)",
       "the host waits so that two units at most are gathered and not freed", true,
       [](Plan& p) { return Field(&fsdp_of(p).limit_all_gathers); }},
      {"param_dtype", "", "the weights' own", "MixedPrecision: weights are gathered in it", false,
       param_dtype},
      {"reduce_dtype", "", "param_dtype", "MixedPrecision: gradients are reduced in it", false,
       reduce_dtype},
      {"no_sync", "", "false",
       "micro-steps but the last keep whole gradients instead of reducing them", false,
       [](Plan& p) { return Field(&p.no_sync); }},
      {"use_orig_params", "", "false",
       "2.1: a unit may hold trainable and frozen parameters; gradients of both are reduced", false,
       [](Plan& p) { return Field(&fsdp_of(p).use_orig_params); }},
      {"cpu_offload", "", "false",
       "CPUOffload(offload_params=True): shards, their gradients and the optimizer are the host's",
       false, [](Plan& p) { return Field(&fsdp_of(p).cpu_offload); }},
      {"auto_wrap_policy", "", "block",
       "block: each repeated block is a unit; none: the model is one; size_based: "
       "size_based_auto_wrap_policy",
       false, fsdp1_wrap_policy},
      {"blocks_per_unit", "", "1", "blocks of each unit, in order of forward; the last repeats",
       false, [](Plan& p) { return Field(&fsdp_of(p).blocks_per_unit); }},
      {"min_num_params", "parameters", "100000000",
       "of size_based: a module is a unit if it has so many that no module inside it took", false,
       [](Plan& p) { return Field(&fsdp_of(p).min_num_params); }},
      {"module_lists", "names", "asked for where it matters",
       "of size_based: which modules are a ModuleList or a ModuleDict, and so never units: all "
       "whose children are numbers, none, or names",
       false, [](Plan& p) { return Field(&fsdp_of(p).module_lists); }}};
  return knobs;
}

}  // namespace

SystemRecord fsdp_record() {
  return {.system = kFsdpSystem,
          .aliases = {{"fsdp1"}, {"fullyshardeddataparallel"}},
          .title = "PyTorch FSDP",
          .brief = "FSDP",
          .versions = true,
          .units = "units",
          .does =
              "torch.distributed.fsdp.FullyShardedDataParallel: weights gathered unit by unit, "
              "gradients reduced and scattered",
          .evidence = "schedules recorded of 1.13, and of 2.7's Python; never executed",
          .schedule =
              "schedule equal to that of PyTorch's own code, recorded without a GPU (1.13, and "
              "2.7's Python); its times were never executed",
          .shards = true,
          .weights_in_shards = true,
          .wraps = true,
          .uses_no_sync = false,
          .gloo_on_gpus = GlooOnGpus::NoReduceScatter,
          .words = fsdp_words(),
          .knobs = fsdp_knobs(),
          .lower = lower_fsdp,
          .validate = validate_fsdp,
          .check = [](const Plan& p, const Workload&, DeviceKind, int ranks,
                      int per_host) { return check_fsdp(p, ranks, per_host); },
          .count = [](const Workload& w, const Plan& p) { return fsdp_units(w, p).size(); },
          .operations = sharding_operations,
          .groups = fsdp_groups,
          .offloads = [](const Plan& p) { return fsdp_of(p).cpu_offload; },
          .gathered_in = [](const Plan& p) { return fsdp_of(p).param_dtype; },
          .ranked = {{"sharding_strategy", "shard_grad_op"},
                     {"sharding_strategy", "hybrid_shard", true}},
          .decisions = fsdp_decisions,
          .setting_with = fsdp_setting,
          .smaller = smaller_units,
          .script = fsdp_script,
          .advice = advice_on_halves,
          .memory_note = mixed_units_sentence};
}

}  // namespace ddpsim::systems
