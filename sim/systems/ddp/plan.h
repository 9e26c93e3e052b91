// The knobs of DistributedDataParallel, by their upstream names, in upstream units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/units/by.h"

namespace ddpsim {

enum class CommHook : std::uint8_t { None, AllReduce, Fp16Compress, Bf16Compress, PowerSgd };
inline const char* name_of(CommHook h) {
  constexpr By<CommHook, const char*, 5> kNames{"none", "allreduce", "fp16_compress",
                                                "bf16_compress", "powerSGD"};
  return kNames[h];
}

// DistributedDataParallel's knobs.
struct DdpPlan {
  std::optional<double> bucket_cap_mb;            // MiB; none = left at its default
  std::int64_t first_bucket_bytes = 1024 * 1024;  // dist._DEFAULT_FIRST_BUCKET_BYTES
  std::vector<double> bucket_cap_mb_list;  // MiB, one for each bucket, the last repeats (#169026:
                                           // later than every version here); empty = none
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  CommHook comm_hook = CommHook::None;
  std::int64_t matrix_approximation_rank = 1;  // of PowerSGDState (CommHook::PowerSgd)
  std::int64_t start_powerSGD_iter = 1000;
  std::optional<double> min_compression_rate;  // default 2
  bool use_error_feedback = true;
  bool warm_start = true;
  bool batched_grad_copy = false;      // 2.12
  bool optimizer_in_backward = false;  // torch.distributed.optim._apply_optimizer_in_backward
  bool join = false;                   // steps inside model.join()
  std::int64_t joined_ranks = 0;       // of join: so many ranks, the last ones, have no inputs left
  bool divide_by_initial_world_size = true;    // of join; false: by those that have inputs
  bool sync_batch_norm = false;                // SyncBatchNorm.convert_sync_batchnorm
  bool skip_all_reduce_unused_params = false;  // 2.8
  // DistributedDataParallel(process_group=): as many models as groups, each of so many ranks, of
  // which the next is `stride` ranks further. 0 = one group of all ranks.
  std::int64_t process_group_size = 0;
  std::int64_t process_group_stride = 1;
};

inline const DdpPlan& ddp_of(const Plan& plan) {
  return plan.parts.get<DdpPlan>();
}
inline DdpPlan& ddp_of(Plan& plan) {
  return plan.parts.edit<DdpPlan>();
}

}  // namespace ddpsim
