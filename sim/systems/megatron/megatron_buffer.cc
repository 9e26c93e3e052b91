#include <algorithm>
#include <numeric>

#include "sim/systems/megatron/megatron.h"
#include "sim/systems/megatron/plan.h"

namespace ddpsim::systems {
namespace {

constexpr std::int64_t kParameterStart = 64;       // elements
constexpr std::int64_t kBucketEnd = 128;           // elements
constexpr std::int64_t kHighBandwidth = 1 << 16;   // pad_buckets_for_high_nccl_busbw
constexpr std::int64_t kLeastBucket = 40'000'000;  // distributed_data_parallel.py
constexpr std::int64_t kBucketOfARank = 1'000'000;

std::int64_t up(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor * divisor;
}

// 0: one bucket. Source: training/training.py, resolve_ddp_bucket_size.
std::int64_t bucket_size(const Workload& w, const MegatronPlan& plan, std::int64_t ranks) {
  if (!plan.overlap_grad_reduce) return 0;
  if (plan.num_buckets > 0) return std::max<std::int64_t>(1, w.elements() / plan.num_buckets);
  return plan.bucket_size > 0 ? plan.bucket_size : std::max(kLeastBucket, kBucketOfARank * ranks);
}

}  // namespace

MegatronBuffer::MegatronBuffer(const Workload& w, const MegatronPlan& plan, std::int64_t ranks)
    : ranks_(ranks),
      sharded_(plan.use_distributed_optimizer),
      bucket_of_(w.tensors.size()),
      begin_(w.tensors.size()),
      size_(w.tensors.size()) {
  const std::int64_t most = bucket_size(w, plan, ranks);
  std::int64_t divisor = sharded_ ? std::lcm(ranks, kBucketEnd) : 1;
  if (sharded_ && plan.pad_buckets_for_high_nccl_busbw) divisor = std::lcm(divisor, kHighBandwidth);
  std::int64_t at = 0;
  for (TensorIndex t = w.tensor_count(); t-- > 0;) {
    if (buckets_.empty() || (most > 0 && at - buckets_.back().begin >= most)) {
      close(divisor);
      at = buckets_.back().begin;
    }
    Bucket& bucket = buckets_.back();
    begin_[t] = sharded_ ? up(at, kParameterStart) : at;
    size_[t] = w.tensors[t].elements();
    bucket_of_[t] = static_cast<std::uint32_t>(buckets_.size() - 1);
    bucket.tensors.push_back(t);
    bucket.elements += size_[t];
    bucket.end = at = begin_[t] + size_[t];
  }
  buckets_.back().end = up(buckets_.back().end, divisor);
}

// Ends the open bucket, and opens the next.
void MegatronBuffer::close(std::int64_t divisor) {
  Bucket next;
  if (!buckets_.empty()) next.begin = buckets_.back().end = up(buckets_.back().end, divisor);
  buckets_.push_back(std::move(next));
}

MegatronBuffer::Owned MegatronBuffer::owned() const {
  std::vector<Owned> of_rank(sharded_ ? ranks_ : 1);
  for (const Bucket& b : buckets_) {
    const std::int64_t shard = sharded_ ? b.padded() / ranks_ : b.padded();
    for (TensorIndex t : b.tensors) {
      const std::int64_t end = begin_[t] + size_[t];
      for (std::int64_t at = begin_[t]; at < end;) {
        const std::int64_t rank = (at - b.begin) / shard;
        const std::int64_t stop = std::min(end, b.begin + (rank + 1) * shard);
        Owned& o = of_rank[rank];
        o.elements += stop - at;
        ++o.parts;
        at = stop;
      }
    }
  }
  return *std::max_element(of_rank.begin(), of_rank.end(), [](const Owned& a, const Owned& b) {
    return std::pair(a.elements, a.parts) < std::pair(b.elements, b.parts);
  });
}

}  // namespace ddpsim::systems
