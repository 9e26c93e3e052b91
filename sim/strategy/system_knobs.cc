#include "sim/strategy/system_knobs.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace ddpsim::strategy {
namespace {

// ---- fields. A choice's `get` is -1 where the plan leaves the knob at its default.

Field system_of_hook(Plan&) {
  return Choice{{"none", "allreduce", "fp16_compress", "bf16_compress", "powerSGD"},
                [](const Plan& p) { return static_cast<int>(p.comm_hook); },
                [](Plan& p, int k) { p.comm_hook = static_cast<CommHook>(k); }};
}
Field granularity(Plan&) {
  return Choice{{"per_parameter", "flat"},
                [](const Plan& p) { return static_cast<int>(p.granularity); },
                [](Plan& p, int k) { p.granularity = static_cast<Granularity>(k); }};
}
Field sharding(Plan&) {
  return Choice{{"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "_hybrid_shard_zero2"},
                [](const Plan& p) { return static_cast<int>(p.fsdp.sharding_strategy); },
                [](Plan& p, int k) { p.fsdp.sharding_strategy = static_cast<Sharding>(k); }};
}
Field backward_prefetch(Plan&) {
  return Choice{
      {"none", "backward_pre", "backward_post"},
      [](const Plan& p) {
        return p.fsdp.backward_prefetch ? static_cast<int>(*p.fsdp.backward_prefetch) : -1;
      },
      [](Plan& p, int k) { p.fsdp.backward_prefetch = static_cast<BackwardPrefetch>(k); }};
}
constexpr DType kTypes[] = {DType::Float32, DType::Float16, DType::BFloat16};
int number_of(const std::optional<DType>& d) {
  return d ? static_cast<int>(std::find(std::begin(kTypes), std::end(kTypes), *d) - kTypes) : -1;
}
Field param_dtype(Plan&) {
  return Choice{{"float32", "float16", "bfloat16"},
                [](const Plan& p) { return number_of(p.fsdp.param_dtype); },
                [](Plan& p, int k) { p.fsdp.param_dtype = kTypes[k]; }};
}
Field reduce_dtype(Plan&) {
  return Choice{{"float32", "float16", "bfloat16"},
                [](const Plan& p) { return number_of(p.fsdp.reduce_dtype); },
                [](Plan& p, int k) { p.fsdp.reduce_dtype = kTypes[k]; }};
}
Field zero_stage(Plan&) {
  return Choice{{"1", "2", "3"},
                [](const Plan& p) { return p.zero.stage - 1; },
                [](Plan& p, int k) { p.zero.stage = k + 1; }};
}
Field zero_offload_optimizer(Plan&) {
  return Choice{{"none", "cpu"},
                [](const Plan& p) { return p.zero.offload_optimizer ? 1 : 0; },
                [](Plan& p, int k) { p.zero.offload_optimizer = k == 1; }};
}
Field zero_offload_param(Plan&) {
  return Choice{{"none", "cpu"},
                [](const Plan& p) { return p.zero.offload_param ? 1 : 0; },
                [](Plan& p, int k) { p.zero.offload_param = k == 1; }};
}
Field horovod_op(Plan&) {
  return Choice{{"average", "adasum"},
                [](const Plan& p) { return p.horovod.adasum ? 1 : 0; },
                [](Plan& p, int k) { p.horovod.adasum = k == 1; }};
}
Field horovod_compression(Plan&) {
  return Choice{{"none", "fp16"},
                [](const Plan& p) { return p.horovod.fp16_compression ? 1 : 0; },
                [](Plan& p, int k) { p.horovod.fp16_compression = k == 1; }};
}
constexpr const char* kWrapPolicies[] = {"block", "none", "size_based"};
int get_wrap_policy(const Plan& p) {
  const auto at =
      std::find(std::begin(kWrapPolicies), std::end(kWrapPolicies), p.fsdp.auto_wrap_policy);
  return static_cast<int>(at - std::begin(kWrapPolicies));
}
void set_wrap_policy(Plan& p, int k) {
  p.fsdp.auto_wrap_policy = kWrapPolicies[k];
}
Field fsdp1_wrap_policy(Plan&) {
  return Choice{
      {std::begin(kWrapPolicies), std::end(kWrapPolicies)}, get_wrap_policy, set_wrap_policy};
}
Field auto_wrap_policy(Plan&) {  // fully_shard has none; ddpsim's own two
  return Choice{{"block", "none"}, get_wrap_policy, set_wrap_policy};
}

}  // namespace

std::span<const KnobRecord> ddp_knobs() {
  static const KnobRecord knobs[] = {
      {"bucket_cap_mb", "MiB", "25", "gradients are reduced in buckets of about this size", true,
       [](Plan& p) { return Field(&p.bucket_cap_mb); }},
      {"bucket_cap_mb_list", "MiB", "none",
       "a cap for each bucket, the last repeats (pytorch #169026)", false,
       [](Plan& p) { return Field(&p.bucket_cap_mb_list); }},
      {"first_bucket_bytes", "bytes", "1048576",
       "cap of the first bucket to be full (dist._DEFAULT_FIRST_BUCKET_BYTES)", true,
       [](Plan& p) { return Field(&p.first_bucket_bytes); }},
      {"broadcast_buffers", "", "true", "rank 0's buffers are sent to all before each forward",
       false, [](Plan& p) { return Field(&p.broadcast_buffers); }},
      {"find_unused_parameters", "", "false", "parameters without a gradient are looked for", false,
       [](Plan& p) { return Field(&p.find_unused_parameters); }},
      {"static_graph", "", "false", "the set of used parameters never changes", false,
       [](Plan& p) { return Field(&p.static_graph); }},
      {"gradient_as_bucket_view", "", "false", "gradients are views of buckets: no copy out", false,
       [](Plan& p) { return Field(&p.gradient_as_bucket_view); }},
      {"comm_hook", "", "none", "what takes the place of a bucket's all-reduce", false,
       system_of_hook},
      {"no_sync", "", "true",
       "accumulation_steps: no_sync() around micro-steps but the last; false: each of them reduces",
       false, [](Plan& p) { return Field(&p.no_sync); }},
      {"matrix_approximation_rank", "columns", "1", "powerSGD: of the matrices that are sent",
       false, [](Plan& p) { return Field(&p.ddp.matrix_approximation_rank); }},
      {"start_powerSGD_iter", "steps", "1000",
       "powerSGD: steps before it compresses; a prediction is of one after them", false,
       [](Plan& p) { return Field(&p.ddp.start_powerSGD_iter); }},
      {"min_compression_rate", "", "2",
       "powerSGD: parameters are sent whole that would not become smaller by more than this", false,
       [](Plan& p) { return Field(&p.ddp.min_compression_rate); }},
      {"use_error_feedback", "", "true",
       "powerSGD: what compression lost is added to the next step's gradients", false,
       [](Plan& p) { return Field(&p.ddp.use_error_feedback); }},
      {"warm_start", "", "true", "powerSGD: matrices begin where the step before left them", false,
       [](Plan& p) { return Field(&p.ddp.warm_start); }},
      {"batched_grad_copy", "", "false",
       "2.12: gradients are copied into a bucket together, when it is complete", false,
       [](Plan& p) { return Field(&p.ddp.batched_grad_copy); }},
      {"optimizer_in_backward", "", "false",
       "_apply_optimizer_in_backward (CPU: _register_fused_optim): parameters are updated when "
       "their bucket is reduced",
       false, [](Plan& p) { return Field(&p.ddp.optimizer_in_backward); }},
      {"join", "", "false", "inside model.join()", false,
       [](Plan& p) { return Field(&p.ddp.join); }},
      {"joined_ranks", "ranks", "0",
       "join: so many ranks, the last ones, have no inputs left and shadow what the others send",
       false, [](Plan& p) { return Field(&p.ddp.joined_ranks); }},
      {"divide_by_initial_world_size", "", "true",
       "join: false: gradients are divided by the ranks that have inputs, which the host waits for",
       false, [](Plan& p) { return Field(&p.ddp.divide_by_initial_world_size); }},
      {"sync_batch_norm", "", "false",
       "SyncBatchNorm: statistics of every batch norm are of all ranks", false,
       [](Plan& p) { return Field(&p.ddp.sync_batch_norm); }},
      {"skip_all_reduce_unused_params", "", "false",
       "2.8: buckets of which no parameter was used are not reduced", false,
       [](Plan& p) { return Field(&p.ddp.skip_all_reduce_unused_params); }},
      {"process_group_size", "ranks", "0",
       "process_group: as many models as groups, each of so many ranks; 0: one of all ranks", false,
       [](Plan& p) { return Field(&p.ddp.process_group_size); }},
      {"process_group_stride", "ranks", "1",
       "process_group: how far the next rank of a group is (of 8 ranks, size 2 and stride 4: 0 and "
       "4)",
       false, [](Plan& p) { return Field(&p.ddp.process_group_stride); }}};
  return knobs;
}

std::span<const KnobRecord> averaging_knobs() {
  static const KnobRecord knobs[] = {
      {"granularity", "", "per_parameter", "one all-reduce a parameter, or one for all", true,
       granularity},
      {"async_op", "", "false", "all-reduces are issued before any is waited for", true,
       [](Plan& p) { return Field(&p.async_op); }}};
  return knobs;
}

std::span<const KnobRecord> fsdp_knobs() {
  static const KnobRecord knobs[] = {
      {"sharding_strategy", "", "full_shard",
       "full_shard gathers weights for forward and again for backward, shard_grad_op once; hybrid: "
       "in groups of ranks",
       false, sharding},
      {"shard_degree", "ranks", "those of a host",
       "hybrid strategies: ranks that shard together (device_mesh)", false,
       [](Plan& p) { return Field(&p.fsdp.shard_degree); }},
      {"backward_prefetch", "", "backward_pre (1.13: none)",
       "when backward gathers the next unit's weights: before its own computation, or after", true,
       backward_prefetch},
      {"forward_prefetch", "", "false",
       "the host issues the next unit's all-gather before the computation of this one", true,
       [](Plan& p) { return Field(&p.fsdp.forward_prefetch); }},
      {"limit_all_gathers", "", "true (up to 2.0: false)",
       "the host waits so that two units at most are gathered and not freed", true,
       [](Plan& p) { return Field(&p.fsdp.limit_all_gathers); }},
      {"param_dtype", "", "the weights' own", "MixedPrecision: weights are gathered in it", false,
       param_dtype},
      {"reduce_dtype", "", "param_dtype", "MixedPrecision: gradients are reduced in it", false,
       reduce_dtype},
      {"no_sync", "", "false",
       "micro-steps but the last keep whole gradients instead of reducing them", false,
       [](Plan& p) { return Field(&p.no_sync); }},
      {"use_orig_params", "", "false",
       "2.1: a unit may hold trainable and frozen parameters; gradients of both are reduced", false,
       [](Plan& p) { return Field(&p.fsdp.use_orig_params); }},
      {"cpu_offload", "", "false",
       "CPUOffload(offload_params=True): shards, their gradients and the optimizer are the host's",
       false, [](Plan& p) { return Field(&p.fsdp.cpu_offload); }},
      {"auto_wrap_policy", "", "block",
       "block: each repeated block is a unit; none: the model is one; size_based: "
       "size_based_auto_wrap_policy",
       false, fsdp1_wrap_policy},
      {"blocks_per_unit", "", "1", "blocks of each unit, in order of forward; the last repeats",
       false, [](Plan& p) { return Field(&p.fsdp.blocks_per_unit); }},
      {"min_num_params", "parameters", "100000000",
       "of size_based: a module is a unit if it has so many that no module inside it took", false,
       [](Plan& p) { return Field(&p.fsdp.min_num_params); }},
      {"module_lists", "names", "asked for where it matters",
       "of size_based: which modules are a ModuleList or a ModuleDict, and so never units: all "
       "whose children are numbers, none, or names",
       false, [](Plan& p) { return Field(&p.fsdp.module_lists); }}};
  return knobs;
}

std::span<const KnobRecord> fsdp2_knobs() {
  static const KnobRecord knobs[] = {
      {"reshard_after_forward", "", "true (of the root false)",
       "weights are freed after forward; a number: kept in the shards of so many ranks", false,
       [](Plan& p) { return Field(&p.fsdp.reshard_after_forward); }},
      {"shard_degree", "ranks", "all",
       "HSDP: ranks that shard together (the mesh's last dimension)", false,
       [](Plan& p) { return Field(&p.fsdp.shard_degree); }},
      {"forward_prefetch_units",
       "units",
       "0",
       "set_modules_to_forward_prefetch: units that are gathered ahead of the next",
       true,
       [](Plan& p) { return Field(&p.fsdp.forward_prefetch_units); },
       {0, 1, 2, 3, 4}},
      {"backward_prefetch_units",
       "units",
       "1",
       "set_modules_to_backward_prefetch: units that are gathered ahead; 1 is the default order",
       true,
       [](Plan& p) { return Field(&p.fsdp.backward_prefetch_units); },
       {1, 2, 3, 4}},
      {"separate_reduce_scatter_group", "", "false",
       "2.13: reduce-scatters have a communicator of their own", false,
       [](Plan& p) { return Field(&p.fsdp.separate_reduce_scatter_group); }},
      {"reduce_scatter_max_input_buffers", "buffers", "1",
       "2.13: reduce-scatters whose input is there at a time", false,
       [](Plan& p) { return Field(&p.fsdp.reduce_scatter_max_input_buffers); }},
      {"param_dtype", "", "the weights' own",
       "MixedPrecisionPolicy: weights are gathered and computed with in it", false, param_dtype},
      {"reduce_dtype", "", "param_dtype", "MixedPrecisionPolicy: gradients are reduced in it",
       false, reduce_dtype},
      {"no_sync", "", "false",
       "set_requires_gradient_sync(False) in micro-steps but the last: whole gradients are kept",
       false, [](Plan& p) { return Field(&p.no_sync); }},
      {"cpu_offload", "", "false",
       "CPUOffloadPolicy: shards, their gradients and the optimizer are the host's", false,
       [](Plan& p) { return Field(&p.fsdp.cpu_offload); }},
      {"auto_wrap_policy", "", "block",
       "block: fully_shard of each repeated block and of the model; none: of the model", false,
       auto_wrap_policy},
      {"blocks_per_unit", "", "1",
       "fully_shard([...]): blocks of each unit, in order of forward; the last repeats", false,
       [](Plan& p) { return Field(&p.fsdp.blocks_per_unit); }},
      {"ends_apart", "", "false",
       "what is before the first block and after the last are units of their own, not the root's",
       false, [](Plan& p) { return Field(&p.fsdp.ends_apart); }}};
  return knobs;
}

std::span<const KnobRecord> horovod_knobs() {
  static const KnobRecord knobs[] = {
      {"HOROVOD_CYCLE_TIME",
       "ms",
       "1",
       "the background thread wakes no more often than this",
       true,
       [](Plan& p) { return Field(&p.horovod.cycle_time); },
       {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50}},
      {"HOROVOD_FUSION_THRESHOLD",
       "bytes",
       "134217728",
       "what is ready in a cycle is reduced together up to this size; 0: each by itself",
       true,
       [](Plan& p) { return Field(&p.horovod.fusion_threshold); },
       {1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20,
        512 << 20}},
      {"HOROVOD_CACHE_CAPACITY", "tensors", "1024",
       "tensors that ranks agree on by a bit each; 0: rank 0 gathers names in every cycle", false,
       [](Plan& p) { return Field(&p.horovod.cache_capacity); }},
      {"HOROVOD_BATCH_D2D_MEMCOPIES", "", "true",
       "GPU: one kernel copies up to 160 tensors into the fusion buffer", false,
       [](Plan& p) { return Field(&p.horovod.batch_d2d_memcopies); }},
      {"HOROVOD_HIERARCHICAL_ALLREDUCE", "", "false",
       "GPU: NCCL reduces and scatters in a host, MPI all-reduces among hosts, NCCL gathers", false,
       [](Plan& p) { return Field(&p.horovod.hierarchical_allreduce); }},
      {"HOROVOD_TORUS_ALLREDUCE", "", "false", "GPU: the same, NCCL all-reduces among hosts, too",
       false, [](Plan& p) { return Field(&p.horovod.torus_allreduce); }},
      {"HOROVOD_NUM_NCCL_STREAMS", "streams", "1",
       "GPU: reductions take turns on so many streams, each with a communicator and a fusion "
       "buffer",
       false, [](Plan& p) { return Field(&p.horovod.num_nccl_streams); }},
      {"HOROVOD_ENABLE_ASYNC_COMPLETION", "", "false",
       "GPU: the optimizer waits on the device for what is reduced, not on the host (0.23)", false,
       [](Plan& p) { return Field(&p.horovod.enable_async_completion); }},
      {"HOROVOD_DISABLE_GROUP_FUSION", "", "false", "a group is not fused with others", false,
       [](Plan& p) { return Field(&p.horovod.disable_group_fusion); }},
      {"compression", "", "none", "gradients are reduced in half precision (hvd.Compression)",
       false, horovod_compression},
      {"groups", "", "0",
       "parameters in so many groups, each requested when its last gradient is there", false,
       [](Plan& p) { return Field(&p.horovod.groups); }},
      {"op", "", "average",
       "adasum: each hook updates its parameter; hosts exchange halves of the changes (hvd.Adasum)",
       false, horovod_op}};
  return knobs;
}

std::span<const KnobRecord> zero_knobs() {
  static const KnobRecord knobs[] = {
      {"stage", "", "2", "what is in shards: optimizer state; 2: gradients, too; 3: weights, too",
       false, zero_stage},
      {"overlap_comm", "", "false (stage 3: true)",
       "gradients are reduced, and weights gathered, on streams of their own", true,
       [](Plan& p) { return Field(&p.zero.overlap_comm); }},
      {"reduce_bucket_size",
       "elements",
       "500000000",
       "gradients are reduced in buckets of at most this size",
       true,
       [](Plan& p) { return Field(&p.zero.reduce_bucket_size); },
       {5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}},
      {"allgather_bucket_size", "elements", "500000000",
       "without effect where all_gather_into_tensor is there, as it is over NCCL", false,
       [](Plan& p) { return Field(&p.zero.allgather_bucket_size); }},
      {"reduce_scatter", "", "true",
       "stage 3: gradients are scattered; 1 and 2: divided before their all-reduce, not after",
       false, [](Plan& p) { return Field(&p.zero.reduce_scatter); }},
      {"contiguous_gradients", "", "true", "gradients are copied into a bucket when they are there",
       false, [](Plan& p) { return Field(&p.zero.contiguous_gradients); }},
      {"use_multi_rank_bucket_allreduce", "", "true",
       "stages 1 and 2: a bucket is all-reduced; false: what each rank owns is reduced to it",
       false, [](Plan& p) { return Field(&p.zero.use_multi_rank_bucket_allreduce); }},
      {"round_robin_gradients", "", "false", "stages 1 and 2: parameters take turns between owners",
       false, [](Plan& p) { return Field(&p.zero.round_robin_gradients); }},
      {"stage3_prefetch_bucket_size",
       "elements",
       "50000000",
       "weights that are gathered ahead each time a module is entered; 0: none",
       true,
       [](Plan& p) { return Field(&p.zero.stage3_prefetch_bucket_size); },
       {0, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}},
      {"stage3_param_persistence_threshold", "elements", "100000",
       "parameters up to this size stay whole between steps", false,
       [](Plan& p) { return Field(&p.zero.stage3_param_persistence_threshold); }},
      {"stage3_max_live_parameters", "elements", "1000000000",
       "weights that prefetching keeps whole at once", false,
       [](Plan& p) { return Field(&p.zero.stage3_max_live_parameters); }},
      {"stage3_max_reuse_distance", "elements", "1000000000",
       "weights that are used again within this many others stay whole", false,
       [](Plan& p) { return Field(&p.zero.stage3_max_reuse_distance); }},
      {"sub_group_size", "elements", "1000000000",
       "stage 3: elements of a shard that the optimizer updates at once", false,
       [](Plan& p) { return Field(&p.zero.sub_group_size); }},
      {"zero_hpz_partition_size", "ranks", "1",
       "stage 3: so many ranks keep the weights of a step among them; backward gathers there (hpZ)",
       false, [](Plan& p) { return Field(&p.zero.zero_hpz_partition_size); }},
      {"zero_quantized_weights", "", "false",
       "stage 3, fp16: weights are gathered as int8 with a scale for each group of them (qwZ)",
       false, [](Plan& p) { return Field(&p.zero.zero_quantized_weights); }},
      {"zero_quantized_gradients", "", "false",
       "stage 3, fp16, several hosts: gradients are exchanged as int4, first inside hosts (qgZ)",
       false, [](Plan& p) { return Field(&p.zero.zero_quantized_gradients); }},
      {"offload_optimizer", "", "none",
       "cpu: the optimizer and its state are the host's (ZeRO-Offload)", false,
       zero_offload_optimizer},
      {"offload_param", "", "none",
       "stage 3, with offload_optimizer: cpu: shards of weights are the host's, too", false,
       zero_offload_param},
      {"offload_pin_memory", "", "false",
       "offload_optimizer's pin_memory: the host goes on while gradients are copied to it", false,
       [](Plan& p) { return Field(&p.zero.offload_pin_memory); }}};
  return knobs;
}

// DDP's, and its own.
std::span<const KnobRecord> zero_redundancy_knobs() {
  static const std::vector<KnobRecord> knobs = [] {
    std::vector<KnobRecord> all = {
        {"parameters_as_bucket_view", "", "false",
         "one broadcast a rank, of all that it updated, instead of one a parameter", true,
         [](Plan& p) { return Field(&p.zero_redundancy.parameters_as_bucket_view); }},
        {"overlap_with_ddp", "", "false",
         "parameters are updated inside DDP's communication hook: not modelled, and refused", false,
         [](Plan& p) { return Field(&p.zero_redundancy.overlap_with_ddp); }}};
    for (const KnobRecord& k : ddp_knobs()) all.push_back(k);
    return all;
  }();
  return knobs;
}

std::span<const KnobRecord> megatron_knobs() {
  static const KnobRecord knobs[] = {
      {"use_distributed_optimizer", "", "false",
       "gradients are scattered, a rank updates its part, weights are gathered", false,
       [](Plan& p) { return Field(&p.megatron.use_distributed_optimizer); }},
      {"overlap_grad_reduce", "", "false",
       "gradients are reduced in buckets while backward runs; false: all at once after it", true,
       [](Plan& p) { return Field(&p.megatron.overlap_grad_reduce); }},
      {"overlap_param_gather", "", "false",
       "weights are gathered bucket by bucket while the next forward runs", true,
       [](Plan& p) { return Field(&p.megatron.overlap_param_gather); }},
      {"bucket_size",
       "elements",
       "max(40e6, 1e6 x ranks)",
       "a bucket is closed when it has this many; 0: the default",
       true,
       [](Plan& p) { return Field(&p.megatron.bucket_size); },
       {5e6, 1e7, 2e7, 4e7, 1e8, 2e8, 5e8}},
      {"num_buckets", "buckets", "0", "in place of bucket_size: all parameters over this number",
       false, [](Plan& p) { return Field(&p.megatron.num_buckets); }},
      {"pad_buckets_for_high_nccl_busbw", "", "false", "buckets end at multiples of 2^16 elements",
       false, [](Plan& p) { return Field(&p.megatron.pad_buckets_for_high_nccl_busbw); }},
      {"average_in_collective", "", "false",
       "NCCL averages; false: a kernel divides a bucket before it is summed", true,
       [](Plan& p) { return Field(&p.megatron.average_in_collective); }},
      {"grad_reduce_in_fp32", "", "true of bf16 weights, else false",
       "gradients are accumulated and reduced in four bytes", false,
       [](Plan& p) { return Field(&p.megatron.grad_reduce_in_fp32); }},
      {"check_for_nan_in_grad", "", "true, of fp16 weights false",
       "the host waits for the norm of each bucket before it is reduced", true,
       [](Plan& p) { return Field(&p.megatron.check_for_nan_in_grad); }},
      {"gradient_accumulation_fusion", "", "true",
       "gradients of linear layers' weights are added to the buffer by their products", false,
       [](Plan& p) { return Field(&p.megatron.gradient_accumulation_fusion); }}};
  return knobs;
}

}  // namespace ddpsim::strategy
