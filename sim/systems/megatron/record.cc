#include "sim/systems/megatron/record.h"

#include "sim/systems/megatron/megatron.h"
#include "sim/systems/megatron/plan.h"

namespace ddpsim::systems {
namespace {

std::span<const KnobRecord> megatron_knobs() {
  static const KnobRecord knobs[] = {
      {"use_distributed_optimizer", "", "false",
       "gradients are scattered, a rank updates its part, weights are gathered", false,
       [](Plan& p) { return Field(&megatron_of(p).use_distributed_optimizer); }},
      {"overlap_grad_reduce", "", "false",
       "gradients are reduced in buckets while backward runs; false: all at once after it", true,
       [](Plan& p) { return Field(&megatron_of(p).overlap_grad_reduce); }},
      {"overlap_param_gather", "", "false",
       "weights are gathered bucket by bucket while the next forward runs", true,
       [](Plan& p) { return Field(&megatron_of(p).overlap_param_gather); }},
      {"bucket_size",
       "elements",
       "max(40e6, 1e6 x ranks)",
       "a bucket is closed when it has this many; 0: the default",
       true,
       [](Plan& p) { return Field(&megatron_of(p).bucket_size); },
       {5e6, 1e7, 2e7, 4e7, 1e8, 2e8, 5e8}},
      {"num_buckets", "buckets", "0", "in place of bucket_size: all parameters over this number",
       false, [](Plan& p) { return Field(&megatron_of(p).num_buckets); }},
      {"pad_buckets_for_high_nccl_busbw", "", "false", "buckets end at multiples of 2^16 elements",
       false, [](Plan& p) { return Field(&megatron_of(p).pad_buckets_for_high_nccl_busbw); }},
      {"average_in_collective", "", "false",
       "NCCL averages; false: a kernel divides a bucket before it is summed", true,
       [](Plan& p) { return Field(&megatron_of(p).average_in_collective); }},
      {"grad_reduce_in_fp32", "", "true of bf16 weights, else false",
       "gradients are accumulated and reduced in four bytes", false,
       [](Plan& p) { return Field(&megatron_of(p).grad_reduce_in_fp32); }},
      {"check_for_nan_in_grad", "", "true, of fp16 weights false",
       "the host waits for the norm of each bucket before it is reduced", true,
       [](Plan& p) { return Field(&megatron_of(p).check_for_nan_in_grad); }},
      {"gradient_accumulation_fusion", "", "true",
       "gradients of linear layers' weights are added to the buffer by their products", false,
       [](Plan& p) { return Field(&megatron_of(p).gradient_accumulation_fusion); }}};
  return knobs;
}

}  // namespace

SystemRecord megatron_record() {
  return {
      .system = kMegatronSystem,
      .meant =
          Meant{"megatron",
                "Megatron-LM's data parallelism is system \"megatron\"; the distributed optimizer "
                "is its knob use_distributed_optimizer, and Megatron-FSDP is not modelled"},
      .title = "Megatron-LM",
      .brief = "Megatron-LM",
      .units = "buckets",
      .does =
          "Megatron-LM's DistributedDataParallel: one buffer of gradients, reduced at once, in "
          "buckets or scattered",
      .evidence = "schedule from source reading (August 2026), not executed",
      .schedule = "schedule from source reading (August 2026), not executed",
      .shards = true,
      .gloo_on_gpus = GlooOnGpus::NoReduceScatter,
      .words = megatron_words(),
      .knobs = megatron_knobs(),
      .lower = lower_megatron,
      .validate = validate_megatron,
      .operations = sharding_operations,
      .ranked = {{"use_distributed_optimizer", "true"}, {"overlap_grad_reduce", "true"}}};
}

}  // namespace ddpsim::systems
