// DeepSpeed's zero_optimization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/systems/zero/version.h"

namespace ddpsim {

// DeepSpeed's zero_optimization (runtime/zero/config.py); sizes in elements. Weights of two bytes
// have a copy of four (bf16, fp16): Workload::casting.
struct ZeroPlan {
  deepspeed::Version release;
  int stage = 2;                     // what is in shards: optimizer state, 2: gradients, 3: weights
  std::optional<bool> overlap_comm;  // default: stage 3
  std::int64_t reduce_bucket_size = 500'000'000;
  std::int64_t allgather_bucket_size = 500'000'000;  // decides nothing over NCCL
  bool reduce_scatter = true;
  bool contiguous_gradients = true;
  bool use_multi_rank_bucket_allreduce = true;
  bool round_robin_gradients = false;
  std::int64_t stage3_prefetch_bucket_size = 50'000'000;
  std::int64_t stage3_param_persistence_threshold = 100'000;
  std::int64_t stage3_max_live_parameters = 1'000'000'000;
  std::int64_t stage3_max_reuse_distance = 1'000'000'000;
  std::int64_t sub_group_size = 1'000'000'000;
  std::int64_t zero_hpz_partition_size = 1;  // stage 3: ranks that share a second copy of weights
  bool zero_quantized_weights = false;       // stage 3, fp16: weights are gathered as int8 (qwZ)
  bool zero_quantized_gradients = false;     // ... gradients are exchanged as int4 (qgZ)
  // offload_optimizer: {device, pin_memory}. The optimizer is DeepSpeedCPUAdam.
  bool offload_optimizer = false;
  bool offload_param = false;              // stage 3: shards of weights, too
  std::optional<bool> offload_pin_memory;  // default: by release
};

inline const ZeroPlan& zero_of(const Plan& plan) {
  return plan.parts.get<ZeroPlan>();
}
inline ZeroPlan& zero_of(Plan& plan) {
  return plan.parts.edit<ZeroPlan>();
}

}  // namespace ddpsim
