// The knobs of Megatron-LM's data parallelism.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim {

// Megatron-LM's DistributedDataParallelConfig and gradient_accumulation_fusion, as of August 2026;
// what is not set is as megatron/training/arguments.py leaves it.
struct MegatronPlan {
  bool use_distributed_optimizer = false;  // optimizer state and the optimizer's step in shards
  bool overlap_grad_reduce = false;        // buckets are reduced while backward runs
  bool overlap_param_gather = false;       // and gathered while forward runs
  std::int64_t bucket_size = 0;            // elements; 0 = max(40e6, 1e6 a rank)
  std::int64_t num_buckets = 0;            // takes the place of bucket_size; 0 = not given
  bool pad_buckets_for_high_nccl_busbw = false;
  bool average_in_collective = false;         // false: gradients are scaled before
  std::optional<bool> grad_reduce_in_fp32;    // accumulated and reduced; default: of bf16 weights
  std::optional<bool> check_for_nan_in_grad;  // default: but with fp16's dynamic loss scale
  bool gradient_accumulation_fusion = true;   // products add to the buffer themselves
};

inline const MegatronPlan& megatron_of(const Plan& plan) {
  return plan.parts.get<MegatronPlan>();
}
inline MegatronPlan& megatron_of(Plan& plan) {
  return plan.parts.edit<MegatronPlan>();
}

}  // namespace ddpsim
