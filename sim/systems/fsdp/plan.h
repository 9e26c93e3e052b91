// The knobs of FullyShardedDataParallel and of fully_shard, by their upstream names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/systems/base/record.h"
#include "sim/units/by.h"

namespace ddpsim {

// FullyShardedDataParallel. FullShard: weights are gathered for forward and again for backward;
// ShardGradOp: once, for both; NoShard: never, and gradients are all-reduced. Hybrid: in groups of
// ranks, and gradients' shards are all-reduced among the groups.
enum class Sharding : std::uint8_t {
  FullShard,
  ShardGradOp,
  NoShard,
  HybridShard,
  HybridShardZero2
};
inline const char* name_of(Sharding s) {
  constexpr By<Sharding, const char*, 5> kNames{"full_shard", "shard_grad_op", "no_shard",
                                                "hybrid_shard", "_hybrid_shard_zero2"};
  return kNames[s];
}
constexpr bool is_hybrid(Sharding s) {
  return s == Sharding::HybridShard || s == Sharding::HybridShardZero2;
}
enum class BackwardPrefetch : std::uint8_t { None, Pre, Post };
inline const char* name_of(BackwardPrefetch p) {
  constexpr By<BackwardPrefetch, const char*, 3> kNames{"none", "backward_pre", "backward_post"};
  return kNames[p];
}

// The knobs of FullyShardedDataParallel and of fully_shard (FSDP2). What is not set has the
// version's default (sim/systems/fsdp/fsdp1.cc).
struct FsdpPlan {
  Sharding sharding_strategy = Sharding::FullShard;
  std::optional<BackwardPrefetch> backward_prefetch;
  bool forward_prefetch = false;
  std::optional<bool> limit_all_gathers;
  std::optional<DType>
      param_dtype;  // of MixedPrecision: weights as they are gathered; none = as they are
  std::optional<DType>
      reduce_dtype;  // of MixedPrecision: gradients as they are reduced; none = param_dtype
  std::int64_t shard_degree = 0;  // ranks that shard together; 0 = all, of FSDP1's hybrid
                                  // strategies those of a host
  bool use_orig_params = false;   // of FSDP1: a unit may mix trainable and frozen parameters
  bool cpu_offload = false;       // CPUOffload(offload_params=True), CPUOffloadPolicy(): shards,
                                  // their gradients and the optimizer are the host's
  // fully_shard alone
  systems::Reshard reshard_after_forward;
  std::int64_t forward_prefetch_units = 0;            // set_modules_to_forward_prefetch
  std::int64_t backward_prefetch_units = 1;           // set_modules_to_backward_prefetch
  bool separate_reduce_scatter_group = false;         // 2.13
  std::int64_t reduce_scatter_max_input_buffers = 1;  // 2.13
  std::string auto_wrap_policy =
      "block";  // "block": each repeated block is a unit; "none": the model is one; of FSDP1
                // "size_based": size_based_auto_wrap_policy (size_based.h)
  std::vector<std::int64_t> blocks_per_unit;  // of each unit, the last repeats; empty = one
  std::int64_t min_num_params = 100'000'000;  // of size_based: parameters
  std::vector<std::string> module_lists;      // of size_based: modules that are a ModuleList or a
                                              // ModuleDict; "none", "all" = whose children are
                                              // numbers; empty = not said
  bool ends_apart = false;  // fully_shard: what is before and after the blocks are units, too
};

inline const FsdpPlan& fsdp_of(const Plan& plan) {
  return plan.parts.get<FsdpPlan>();
}
inline FsdpPlan& fsdp_of(Plan& plan) {
  return plan.parts.edit<FsdpPlan>();
}

}  // namespace ddpsim
