#include "sim/systems/fsdp2/record.h"

#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/fsdp_settings.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp2/lowered.h"

namespace ddpsim::systems {
namespace {

Field auto_wrap_policy(Plan&) {  // fully_shard has none; ddpsim's own two
  return Choice{{"block", "none"}, wrap_policy, set_wrap_policy};
}

std::span<const KnobRecord> fsdp2_knobs() {
  static const KnobRecord knobs[] = {
      {"reshard_after_forward", "", "true (of the root false)",
       "weights are freed after forward; a number: kept in the shards of so many ranks", false,
       [](Plan& p) { return Field(&fsdp_of(p).reshard_after_forward); }},
      {"shard_degree", "ranks", "all",
       "HSDP: ranks that shard together (the mesh's last dimension)", false,
       [](Plan& p) { return Field(&fsdp_of(p).shard_degree); }},
      {"forward_prefetch_units",
       "units",
       "0",
       "set_modules_to_forward_prefetch: units that are gathered ahead of the next",
       true,
       [](Plan& p) { return Field(&fsdp_of(p).forward_prefetch_units); },
       {0, 1, 2, 3, 4}},
      {"backward_prefetch_units",
       "units",
       "1",
       "set_modules_to_backward_prefetch: units that are gathered ahead; 1 is the default order",
       true,
       [](Plan& p) { return Field(&fsdp_of(p).backward_prefetch_units); },
       {1, 2, 3, 4}},
      {"separate_reduce_scatter_group", "", "false",
       "2.13: reduce-scatters have a communicator of their own", false,
       [](Plan& p) { return Field(&fsdp_of(p).separate_reduce_scatter_group); }},
      {"reduce_scatter_max_input_buffers", "buffers", "1",
       "2.13: reduce-scatters whose input is there at a time", false,
       [](Plan& p) { return Field(&fsdp_of(p).reduce_scatter_max_input_buffers); }},
      {"param_dtype", "", "the weights' own",
       "MixedPrecisionPolicy: weights are gathered and computed with in it", false, param_dtype},
      {"reduce_dtype", "", "param_dtype", "MixedPrecisionPolicy: gradients are reduced in it",
       false, reduce_dtype},
      {"no_sync", "", "false",
       "set_requires_gradient_sync(False) in micro-steps but the last: whole gradients are kept",
       false, [](Plan& p) { return Field(&p.no_sync); }},
      {"cpu_offload", "", "false",
       "CPUOffloadPolicy: shards, their gradients and the optimizer are the host's", false,
       [](Plan& p) { return Field(&fsdp_of(p).cpu_offload); }},
      {"auto_wrap_policy", "", "block",
       "block: fully_shard of each repeated block and of the model; none: of the model", false,
       auto_wrap_policy},
      {"blocks_per_unit", "", "1",
       "fully_shard([...]): blocks of each unit, in order of forward; the last repeats", false,
       [](Plan& p) { return Field(&fsdp_of(p).blocks_per_unit); }},
      {"ends_apart", "", "false",
       "what is before the first block and after the last are units of their own, not the root's",
       false, [](Plan& p) { return Field(&fsdp_of(p).ends_apart); }}};
  return knobs;
}

}  // namespace

SystemRecord fsdp2_record() {
  return {.system = kFsdp2System,
          .aliases = {{"fully_shard"}},
          .title = "PyTorch FSDP2",
          .brief = "FSDP2",
          .versions = true,
          .units = "units",
          .does = "torch.distributed.fsdp.fully_shard: as fsdp, each parameter sharded by itself",
          .evidence =
              "schedules recorded of 2.7's Python with functions of 2.11 to 2.13; never executed",
          .schedule =
              "schedule equal to that of PyTorch's own code, recorded without a GPU (2.7's Python, "
              "with functions of 2.11 to 2.13 put into it); its times were never executed",
          .shards = true,
          .weights_in_shards = true,
          .wraps = true,
          .uses_no_sync = false,
          .gloo_on_gpus = GlooOnGpus::NoReduceScatter,
          .words = fsdp2_words(),
          .knobs = fsdp2_knobs(),
          .lower = lower_fsdp2,
          .validate = validate_fsdp2,
          .check = [](const Plan& p, const Workload&, DeviceKind, int ranks,
                      int per_host) { return check_fsdp(p, ranks, per_host); },
          .count = [](const Workload& w, const Plan& p) { return fsdp_units(w, p).size(); },
          .operations = sharding_operations,
          .groups = fsdp_groups,
          .offloads = [](const Plan& p) { return fsdp_of(p).cpu_offload; },
          .gathered_in = [](const Plan& p) { return fsdp_of(p).param_dtype; },
          .ranked = {{"reshard_after_forward", "false"},
                     {"reshard_after_forward", "", true},
                     {"shard_degree", "", true}},
          .decisions = fsdp2_decisions,
          .setting_with = fsdp2_setting,
          .smaller = smaller_units,
          .instead_of =
              [](const Plan& other) {
                Plan plan;
                plan.system = kFsdp2System;
                plan.pytorch = other.pytorch.with(pytorch::Change::FullyShard);
                plan.accumulation_steps = other.accumulation_steps;
                const bool is_fsdp = record_of(other.system).wraps;
                return is_fsdp
                           ? std::nullopt
                           : std::optional(PlanChange{"fully_shard (FSDP2)", "--plan fsdp2", plan});
              },
          .script = fsdp2_script,
          .advice = advice_on_halves};
}

}  // namespace ddpsim::systems
