// The environment and the arguments of Horovod's DistributedOptimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/systems/horovod/version.h"

namespace ddpsim {

// The fusion buffer's stream is one of them; another is the input pipeline's (kMostStreams).
inline constexpr std::int64_t kMostHorovodStreams = 6;
struct HorovodPlan {
  horovod::Version release;
  std::optional<double> cycle_time;                   // HOROVOD_CYCLE_TIME, ms; default: by release
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
inline double cycle_ms(const HorovodPlan& h) {
  return h.cycle_time.value_or(h.release.has(horovod::Change::OneMillisecond) ? 1 : 5);
}
// A release by itself fuses up to so many bytes.
inline std::int64_t default_fusion_threshold(horovod::Version v) {
  return (v.has(horovod::Change::OneMillisecond) ? 128 : 64) * std::int64_t{1024 * 1024};
}
// A threshold that was the default stays it.
inline void set_release(HorovodPlan& h, horovod::Version v) {
  if (h.fusion_threshold == default_fusion_threshold(h.release))
    h.fusion_threshold = default_fusion_threshold(v);
  h.release = v;
}

inline const HorovodPlan& horovod_of(const Plan& plan) {
  return plan.parts.get<HorovodPlan>();
}
inline HorovodPlan& horovod_of(Plan& plan) {
  return plan.parts.edit<HorovodPlan>();
}

}  // namespace ddpsim
