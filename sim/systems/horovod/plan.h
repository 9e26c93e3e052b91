// The environment and the arguments of Horovod's DistributedOptimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim {

// The fusion buffer's stream is one of them; another is the input pipeline's (kMostStreams).
inline constexpr std::int64_t kMostHorovodStreams = 6;
// The environment and the arguments of Horovod's DistributedOptimizer, as of 0.21 and later.
struct HorovodPlan {
  std::optional<double> cycle_time;                   // HOROVOD_CYCLE_TIME, ms; default 1
  std::int64_t fusion_threshold = 128 * 1024 * 1024;  // HOROVOD_FUSION_THRESHOLD, bytes
  std::int64_t cache_capacity = 1024;                 // HOROVOD_CACHE_CAPACITY, tensors
  bool batch_d2d_memcopies = true;                    // HOROVOD_BATCH_D2D_MEMCOPIES
  bool disable_group_fusion = false;                  // HOROVOD_DISABLE_GROUP_FUSION
  bool fp16_compression = false;                      // compression=hvd.Compression.fp16
  std::int64_t groups = 0;                            // groups=N: of the parameters in their order
  bool adasum = false;                                // op=hvd.Adasum
  bool hierarchical_allreduce = false;                // HOROVOD_HIERARCHICAL_ALLREDUCE
  bool torus_allreduce = false;                       // HOROVOD_TORUS_ALLREDUCE
  std::int64_t num_nccl_streams = 1;                  // HOROVOD_NUM_NCCL_STREAMS
  bool enable_async_completion = false;               // HOROVOD_ENABLE_ASYNC_COMPLETION
};

inline const HorovodPlan& horovod_of(const Plan& plan) {
  return plan.parts.get<HorovodPlan>();
}
inline HorovodPlan& horovod_of(Plan& plan) {
  return plan.parts.edit<HorovodPlan>();
}

}  // namespace ddpsim
