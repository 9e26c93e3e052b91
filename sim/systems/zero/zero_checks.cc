#include <string>

#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/zero.h"

namespace ddpsim::systems {

namespace {

// Settings of other releases than the plan's, and what these cannot be lowered with.
Problem check_release(const ZeroPlan& z, const Workload& w) {
  if (z.stage == 3 || z.release.has(ZeroChange::SharedAllReduce)) return {};
  if (!z.use_multi_rank_bucket_allreduce)
    return {"/plan/use_multi_rank_bucket_allreduce",
            "is an argument from DeepSpeed " +
                deepspeed::Version::first_with(ZeroChange::SharedAllReduce) +
                " on; before it each rank's slices are reduced to it, as with false"};
  constexpr std::int64_t kMostLists = 10'000;
  if (z.allgather_bucket_size < 1 || w.elements() / z.allgather_bucket_size > kMostLists)
    return {"/plan/allgather_bucket_size",
            "gathers all weights in at most 10,000 lists, as far as modelled: of " +
                std::to_string(w.elements() / kMostLists + 1) + " elements or more"};
  return {};
}

}  // namespace

// What DeepSpeed refuses (config.py, stage_1_and_2.py), and what is not modelled.
Problem validate_zero(const Plan& p, const Workload& w, DeviceKind device) {
  const ZeroPlan& z = zero_of(p);
  if (!on_gpus(p, device)) return {"/plan/system", "zero is modelled on GPUs, over NCCL"};
  if (z.stage < 1 || z.stage > 3) return {"/plan/stage", "1, 2 or 3"};
  if (z.stage == 3 && w.layers.empty())
    return {
        "/plan/stage",
        "stage 3 gathers weights module by module, and this capture knows forward only as a "
        "whole: capture it again (tools/python/ddpsim_capture.py notes when each layer begins, and "
        "ddpsim import kineto, of a trace with sequence numbers), or use a described workload "
        "(ddpsim list workloads)"};
  if (!p.unused_parameters.empty())
    return {"/plan/unused_parameters",
            "parameters without a gradient are modelled for pytorch_ddp and averaging only"};
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"reduce_bucket_size", z.reduce_bucket_size},
      {"allgather_bucket_size", z.allgather_bucket_size},
      {"stage3_prefetch_bucket_size", z.stage3_prefetch_bucket_size},
      {"stage3_param_persistence_threshold", z.stage3_param_persistence_threshold},
      {"stage3_max_live_parameters", z.stage3_max_live_parameters},
      {"stage3_max_reuse_distance", z.stage3_max_reuse_distance},
      {"sub_group_size", z.sub_group_size}};
  for (const auto& [name, elements] : sizes)
    if (elements < 0 || elements > std::int64_t{1} << 40)
      return {std::string("/plan/") + name, "0 to 2^40 elements"};
  if (z.stage < 3 && z.allgather_bucket_size % 2 != 0)
    return {"/plan/allgather_bucket_size",
            "is a multiple of 2 (nccl_start_alignment_factor): stages 1 and 2 stop with an error"};
  if (z.zero_hpz_partition_size < 0 || z.zero_hpz_partition_size > 1 << 20)
    return {"/plan/zero_hpz_partition_size", "ranks: 0 or 1 (none) to those of the job"};
  if (z.zero_hpz_partition_size > 1 && z.stage != 3)
    return {"/plan/zero_hpz_partition_size",
            "is of stage 3, which gathers weights (--set stage=3)"};
  if (z.zero_quantized_weights && z.stage != 3)
    return {"/plan/zero_quantized_weights", "is of stage 3, which gathers weights (--set stage=3)"};
  if (z.zero_quantized_weights && w.tensors.front().dtype != DType::Float16)
    return {"/plan/zero_quantized_weights",
            "reads and writes float16 alone (DeepSpeed's quantize_kernel and dequantize): "
            "workload.precision=fp16 with workload.casting=master_weights"};
  if (z.zero_quantized_weights)
    for (const Tensor& t : w.frozen)
      if (t.dtype != DType::Float16)
        return {"/plan/zero_quantized_weights", "reads and writes float16 alone, and frozen \"" +
                                                    t.name + "\" is " + name_of(t.dtype)};
  if (z.zero_quantized_gradients && z.stage != 3)
    return {"/plan/zero_quantized_gradients",
            "is of stage 3: no other asks for it (--set stage=3)"};
  if (z.zero_quantized_gradients && !z.reduce_scatter)
    return {"/plan/zero_quantized_gradients",
            "DeepSpeed stops: \"when enable all_to_all_reduce, reduce_scatter should also be "
            "enabled\" (--set reduce_scatter=true)"};
  if (z.zero_quantized_gradients && w.tensors.front().dtype != DType::Float16)
    return {"/plan/zero_quantized_gradients",
            "reads gradients as float16 whatever they are (DeepSpeed's swizzle_quant): "
            "workload.precision=fp16 with workload.casting=master_weights"};
  if (Problem problem = check_release(z, w)) return problem;
  if (z.offload_pin_memory.value_or(false) && !z.offload_optimizer)
    return {"/plan/offload_pin_memory", "there is nothing to pin (--set offload_optimizer=cpu)"};
  if (z.offload_param && z.stage != 3)
    return {"/plan/offload_param",
            "is of stage 3, whose weights are in shards (DeepSpeed: \"valid only with stage 3\"; "
            "--set stage=3)"};
  if (z.offload_param && !z.offload_optimizer)
    return {"/plan/offload_param",
            "is modelled together with the optimizer's (--set offload_optimizer=cpu)"};
  if (z.offload_param && z.zero_hpz_partition_size > 1)
    return {"/plan/zero_hpz_partition_size",
            "with offload_param, where the second copy of weights is the host's, is not modelled"};
  if (z.offload_optimizer && z.stage < 3 && !z.contiguous_gradients)
    return {"/plan/contiguous_gradients",
            "is always true with offload_optimizer (DeepSpeed sets it)"};
  if (z.offload_optimizer && w.optimizer.kind != Optimizer::Kind::Adam &&
      w.optimizer.kind != Optimizer::Kind::AdamW)
    return {"/plan/offload_optimizer",
            "updates with DeepSpeedCPUAdam: the workload's optimizer is adam or adamw"};
  if (w.casting == Casting::Pure)
    return {"/workload/casting",
            "DeepSpeed's optimizer always has a copy of the weights of four bytes: "
            "master_weights, or autocast with weights of four bytes"};
  if (w.loop.grad_scaler.value_or(false))
    return {"/workload/loop/grad_scaler",
            "DeepSpeed takes no GradScaler: it scales the loss itself where weights are fp16 "
            "(workload.casting=master_weights)"};
  return {};
}

}  // namespace ddpsim::systems
