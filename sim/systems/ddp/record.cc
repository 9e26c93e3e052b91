#include "sim/systems/ddp/record.h"

#include <algorithm>

#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/ddp.h"
#include "sim/systems/ddp/ddp_options.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/ddp/power_sgd.h"

namespace ddpsim::systems {
namespace {

Field system_of_hook(Plan&) {
  return choice_of<&DdpPlan::comm_hook>(
      {"none", "allreduce", "fp16_compress", "bf16_compress", "powerSGD"});
}

constexpr const char* kExecutedDdp =
    "PyTorch 1.13 over Gloo executed (calib/runs), with PowerSGD, join and a fused optimizer, too; "
    "other versions, NCCL and the rest from source reading";

}  // namespace

std::vector<Operation> ddp_operations(const Plan& p) {
  std::vector<Operation> out{Operation::AllReduce, Operation::Broadcast};
  if (ddp_of(p).sync_batch_norm) out.push_back(Operation::AllGather);
  return out;
}

std::span<const KnobRecord> ddp_knobs() {
  static const KnobRecord knobs[] = {
      {"bucket_cap_mb", "MiB", "25", "gradients are reduced in buckets of about this size", true,
       [](Plan& p) { return Field(&ddp_of(p).bucket_cap_mb); }},
      {"bucket_cap_mb_list", "MiB", "none",
       "a cap for each bucket, the last repeats (pytorch #169026)", false,
       [](Plan& p) { return Field(&ddp_of(p).bucket_cap_mb_list); }},
      {"first_bucket_bytes", "bytes", "1048576",
       "cap of the first bucket to be full (dist._DEFAULT_FIRST_BUCKET_BYTES)", true,
       [](Plan& p) { return Field(&ddp_of(p).first_bucket_bytes); }},
      {"broadcast_buffers", "", "true", "rank 0's buffers are sent to all before each forward",
       false, [](Plan& p) { return Field(&ddp_of(p).broadcast_buffers); }},
      {"find_unused_parameters", "", "false", "parameters without a gradient are looked for", false,
       [](Plan& p) { return Field(&ddp_of(p).find_unused_parameters); }},
      {"static_graph", "", "false", "the set of used parameters never changes", false,
       [](Plan& p) { return Field(&ddp_of(p).static_graph); }},
      {"gradient_as_bucket_view", "", "false", "gradients are views of buckets: no copy out", false,
       [](Plan& p) { return Field(&ddp_of(p).gradient_as_bucket_view); }},
      {"comm_hook", "", "none", "what takes the place of a bucket's all-reduce", false,
       system_of_hook},
      {"no_sync", "", "true",
       "accumulation_steps: no_sync() around micro-steps but the last; false: each of them reduces",
       false, [](Plan& p) { return Field(&p.no_sync); }},
      {"matrix_approximation_rank", "columns", "1", "powerSGD: of the matrices that are sent",
       false, [](Plan& p) { return Field(&ddp_of(p).matrix_approximation_rank); }},
      {"start_powerSGD_iter", "steps", "1000",
       "powerSGD: steps before it compresses; a prediction is of one after them", false,
       [](Plan& p) { return Field(&ddp_of(p).start_powerSGD_iter); }},
      {"min_compression_rate", "", "2",
       "powerSGD: parameters are sent whole that would not become smaller by more than this", false,
       [](Plan& p) { return Field(&ddp_of(p).min_compression_rate); }},
      {"use_error_feedback", "", "true",
       "powerSGD: what compression lost is added to the next step's gradients", false,
       [](Plan& p) { return Field(&ddp_of(p).use_error_feedback); }},
      {"warm_start", "", "true", "powerSGD: matrices begin where the step before left them", false,
       [](Plan& p) { return Field(&ddp_of(p).warm_start); }},
      {"batched_grad_copy", "", "false",
       "2.12: gradients are copied into a bucket together, when it is complete", false,
       [](Plan& p) { return Field(&ddp_of(p).batched_grad_copy); }},
      {"optimizer_in_backward", "", "false",
       "_apply_optimizer_in_backward (CPU: _register_fused_optim): parameters are updated when "
       "their bucket is reduced",
       false, [](Plan& p) { return Field(&ddp_of(p).optimizer_in_backward); }},
      {"join", "", "false", "inside model.join()", false,
       [](Plan& p) { return Field(&ddp_of(p).join); }},
      {"joined_ranks", "ranks", "0",
       "join: so many ranks, the last ones, have no inputs left and shadow what the others send",
       false, [](Plan& p) { return Field(&ddp_of(p).joined_ranks); }},
      {"divide_by_initial_world_size", "", "true",
       "join: false: gradients are divided by the ranks that have inputs, which the host waits for",
       false, [](Plan& p) { return Field(&ddp_of(p).divide_by_initial_world_size); }},
      {"sync_batch_norm", "", "false",
       "SyncBatchNorm: statistics of every batch norm are of all ranks", false,
       [](Plan& p) { return Field(&ddp_of(p).sync_batch_norm); }},
      {"skip_all_reduce_unused_params", "", "false",
       "2.8: buckets of which no parameter was used are not reduced", false,
       [](Plan& p) { return Field(&ddp_of(p).skip_all_reduce_unused_params); }},
      {"process_group_size", "ranks", "0",
       "process_group: as many models as groups, each of so many ranks; 0: one of all ranks", false,
       [](Plan& p) { return Field(&ddp_of(p).process_group_size); }},
      {"process_group_stride", "ranks", "1",
       "process_group: how far the next rank of a group is (of 8 ranks, size 2 and stride 4: 0 and "
       "4)",
       false, [](Plan& p) { return Field(&ddp_of(p).process_group_stride); }}};
  return knobs;
}

SystemRecord ddp_record() {
  return {.system = kDdpSystem,
          .aliases = {{"ddp"}, {"distributeddataparallel"}},
          .title = "PyTorch DDP",
          .brief = "DDP",
          .versions = true,
          .units = "buckets",
          .does =
              "torch.nn.parallel.DistributedDataParallel: gradients in buckets, all-reduced while "
              "backward runs",
          .evidence = kExecutedDdp,
          .copies = "copies out of buckets",
          .bucketed = true,
          .replayed = true,
          .compiled_whole = true,
          .compiled_in_buckets = true,
          .gloo_on_gpus = GlooOnGpus::Modelled,
          .words = ddp_words(),
          .knobs = ddp_knobs(),
          .lower = lower_ddp,
          .validate = validate_ddp,
          .check = check_ddp_job,
          .count =
              [](const Workload& w, const Plan& p) {
                const int passes = uses_no_sync(p) ? 1 : p.accumulation_steps;
                return steady_buckets(w, p).size() * passes;
              },
          .operations = ddp_operations,
          .groups = ddp_groups,
          .without_inputs = [](const Plan& p) { return ddp_of(p).joined_ranks; },
          .ranked = {{"gradient_as_bucket_view", "true"}, {"comm_hook", "bf16_compress"}},
          .levers = ddp_levers,
          .extremes = ddp_extremes,
          .heading = ddp_heading,
          .script = ddp_script,
          .warnings = ddp_warnings,
          .schedule_of = ddp_schedule_of,
          .executed_class =
              [](const Plan& p, int) {
                const bool options = ddp_of(p).comm_hook == CommHook::PowerSgd || ddp_of(p).join ||
                                     ddp_of(p).optimizer_in_backward;
                return ddp_of(p).bucket_cap_mb.value_or(25) < 0.5 ? ""
                       : options                                  ? "system_ddp_options"
                                                                  : "system";
              }};
}

}  // namespace ddpsim::systems
