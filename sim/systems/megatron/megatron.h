// Megatron-LM's buffer of parameters and gradients: which parameter is where, in which bucket, and
// what of it a rank's distributed optimizer owns.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/plan.h"
#include "sim/systems/base/record.h"
#include "sim/systems/megatron/plan.h"

namespace ddpsim::systems {

// The first step reduces after backward and gathers nothing. REQUIRES: with overlap_param_gather,
// workload.times.layers.
Program lower_megatron(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> megatron_words();
Problem validate_megatron(const Plan& p, const Workload& w, DeviceKind device);

// Parameters lie from the last registered to the first. With the distributed optimizer each begins
// at a multiple of 64 elements, and a bucket ends at one of the ranks and of 128. Source:
// megatron/core/optimizer/distrib_optimizer.py, _compute_per_buffer_param_layout; param_layout.py;
// without it core/distributed/param_and_grad_buffer.py, _compute_default_per_buffer_param_layout.
class MegatronBuffer {
 public:
  struct Bucket {
    std::vector<TensorIndex> tensors;  // as they lie
    std::int64_t begin = 0;
    std::int64_t end = 0;       // padding counted
    std::int64_t elements = 0;  // of its tensors
    std::int64_t padded() const { return end - begin; }
  };
  MegatronBuffer(const Workload& w, const MegatronPlan& plan, std::int64_t ranks);
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::uint32_t bucket_of(TensorIndex t) const { return bucket_of_[t]; }
  std::int64_t elements() const { return buckets_.back().end; }  // padding counted

  // What a rank's optimizer updates, of the rank that has the most elements: parts of tensors.
  struct Owned {
    std::int64_t elements = 0;
    std::int64_t parts = 0;
  };
  Owned owned() const;

 private:
  void close(std::int64_t divisor);
  const std::int64_t ranks_;
  const bool sharded_;
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> bucket_of_;
  std::vector<std::int64_t> begin_;  // of each tensor
  std::vector<std::int64_t> size_;
};

}  // namespace ddpsim::systems
