// Source: PyTorch 1.13, 2.7 and 2.12: torch/nn/parallel/distributed.py, torch/distributed/
// algorithms/{join.py,ddp_comm_hooks/optimizer_overlap_hooks.py}, torch/nn/modules/_functions.py.
#include "sim/systems/ddp/ddp_options.h"

#include <algorithm>

#include "sim/systems/apex/apex.h"
#include "sim/systems/ddp/plan.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kJoinNotify{"allreduce/join.notify", {.does = Does::Communicate}};
constexpr OpWord kJoinCountWait{"wait/join.notify", {.does = Does::Wait}};
constexpr OpWord kJoinSource{"allreduce/join.source", {.does = Does::Communicate}};
constexpr OpWord kJoinSourceWait{"wait/join.source", {.does = Does::Wait}};
constexpr OpWord kJoinSync{"allreduce/join.sync", {.does = Does::Communicate}};
constexpr OpWord kBatchedCopyIn =
    bucket_word("batched_copy_in/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kBatchedDivide =
    bucket_word("batched_divide/bucket.", Does::Copy, Phase::Backward, Operation::AllReduce, true);
constexpr OpWord kDivideReduced =
    bucket_word("divide_reduced/bucket.", Does::Copy, Phase::Reduced, Operation::AllReduce, true);
constexpr OpWord kUpdateBucket{
    "optimizer/bucket.", {.phase = Phase::Update, .of = Of::Bucket, .touches = Touches::Bucket}};
constexpr OpWord kUpdatesThere = update_word("updates_there", Does::Compute);
constexpr OpWord kSyncedPart{"fwd/until_sync_bn.",
                             {.phase = Phase::Forward, .of = Of::Number, .in_micro_step = true}};
constexpr OpWord kGatherNorm{"all_gather/sync_bn.",
                             {.does = Does::Communicate,
                              .phase = Phase::Forward,
                              .of = Of::Number,
                              .operation = Operation::AllGather}};
constexpr OpWord kGatherNormWait{"wait/sync_bn.",
                                 {.does = Does::Wait, .phase = Phase::Forward, .of = Of::Number}};
constexpr OpWord kReduceNorm{
    "allreduce/sync_bn.", {.does = Does::Communicate, .phase = Phase::Backward, .of = Of::Number}};
constexpr OpWord kDdpOptionWords[] = {
    kJoinCountWait, kJoinNotify,    kJoinSource,     kJoinSourceWait, kJoinSync,
    kBatchedCopyIn, kBatchedDivide, kDivideReduced,  kUpdateBucket,   kUpdatesThere,
    kSyncedPart,    kGatherNorm,    kGatherNormWait, kReduceNorm};

constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kInteger = 8;

}  // namespace

std::span<const OpWord> ddp_option_words() {
  return kDdpOptionWords;
}

bool plain_buckets(const Plan& plan) {
  return ddp_of(plan).comm_hook != CommHook::PowerSgd && !ddp_of(plan).optimizer_in_backward &&
         !ddp_of(plan).sync_batch_norm && !ddp_of(plan).skip_all_reduce_unused_params &&
         ddp_of(plan).process_group_size == 0 &&
         (uses_no_sync(plan) || plan.accumulation_steps == 1);
}

std::vector<RankGroups> ddp_groups(const Plan& plan, int, int) {
  if (ddp_of(plan).process_group_size == 0) return {};
  return {{"process_group", static_cast<int>(ddp_of(plan).process_group_size),
           static_cast<int>(ddp_of(plan).process_group_stride)}};
}

Problem check_ddp_ranks(const Plan& plan, int ranks, int) {
  const std::int64_t block = ddp_of(plan).process_group_size * ddp_of(plan).process_group_stride;
  if (block > 0 && ranks % block != 0)
    return {"/plan/process_group_size",
            "groups of " + std::to_string(ddp_of(plan).process_group_size) + " ranks, " +
                std::to_string(ddp_of(plan).process_group_stride) + " apart, do not part " +
                std::to_string(ranks) + " ranks: a multiple of " + std::to_string(block) +
                " ranks"};
  if (ddp_of(plan).joined_ranks > 0 && ddp_of(plan).joined_ranks >= ranks)
    return {"/plan/joined_ranks", "0 to " + std::to_string(ranks - 1) + " of " +
                                      std::to_string(ranks) + " ranks: one has inputs"};
  return {};
}

std::uint32_t join_notify(StepBuilder& b) {
  return b.collective(kJoinNotify, kNoSubject, kFloat, DType::Float32);
}
void join_count(StepBuilder& b, std::uint32_t notified) {
  b.wait(kJoinCountWait, kNoSubject, notified);
}
void join_find_source(StepBuilder& b) {
  b.wait(kJoinSourceWait, kNoSubject,
         b.collective(kJoinSource, kNoSubject, kInteger, DType::Int64));
}
void join_announce(StepBuilder& b) {
  b.collective(kJoinSync, kNoSubject, kFloat, DType::Float32);
}

void copy_in_batched(StepBuilder& b, std::uint32_t k, const Workload& w, bool divides) {
  const Bucket bucket = b.step.buckets[k];
  std::vector<std::int64_t> elements;
  for (TensorIndex t : bucket.tensors) elements.push_back(w.tensors[t].elements());
  const std::int64_t bytes = bucket.bytes.count;
  // torch's launches of _foreach_copy_ are Apex's of two lists: 64 tensors, 320 blocks.
  b.main(kBatchedCopyIn, k, bytes,
         {.traffic = 2 * bytes,
          .kernels = multi_tensor_launches(elements),
          .hooks = std::ssize(elements)});
  if (divides) b.main(kBatchedDivide, k, bytes, {.traffic = 2 * bytes});
}

std::uint32_t update_in_backward(StepBuilder& b, std::uint32_t k, std::uint32_t reduced,
                                 const Workload& w, const StepTimes& times, Lane stream) {
  const Bucket bucket = b.step.buckets[k];
  std::int64_t elements = 0;
  for (TensorIndex t : bucket.tensors) elements += w.tensors[t].elements();
  const std::int64_t bytes = bucket.bytes.count;
  if (!b.gpu()) {
    const double share = fraction(elements, w.elements());
    return b.callback(kUpdateBucket, k, bytes, {.duration = scale(times.optimizer, share)},
                      reduced);
  }
  const std::uint32_t divided =
      b.on_stream(stream, kDivideReduced, k, bytes, {.traffic = 2 * bytes}, std::span(&reduced, 1));
  const std::int64_t traffic = optimizer_traffic(w.optimizer, elements);
  const std::int64_t kernels = optimizer_kernels(w.optimizer, 1) * std::ssize(bucket.tensors);
  return b.on_stream(stream, kUpdateBucket, k, bytes,
                     {.traffic = std::max<std::int64_t>(1, traffic), .kernels = kernels},
                     std::span(&divided, 1));
}

void await_update(StepBuilder& b, std::uint32_t update) {
  b.add_dep(b.event(kUpdatesThere, Lane::Compute), update);
}

SyncedNorms::SyncedNorms(const Workload& w, const StepTimes& times, int ranks, bool current)
    : w_(w), times_(times), ranks_(ranks), current_(current), first_(w.tensors.size()) {
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    if (w.layers[l].op.kind != "batch_norm" || w.layers[l].tensors.empty()) continue;
    first_[w.layers[l].tensors.front()] = norms_.size();
    norms_.push_back(l);
  }
}

// A collective that computation waits for.
std::uint32_t SyncedNorms::blocking(StepBuilder& b, const OpWord& word, std::uint32_t norm,
                                    std::int64_t bytes, bool awaited) const {
  const std::uint32_t op = b.collective(word, norm, bytes, DType::Float32, current_);
  if (awaited) b.wait(kGatherNormWait, norm, op);
  if (!current_) b.before_next_main(op);
  return op;
}

void SyncedNorms::forward(StepBuilder& b) const {
  std::size_t from = 0;
  for (std::uint32_t n = 0; n <= norms_.size(); ++n) {
    const std::size_t to = n < norms_.size() ? norms_[n] : w_.layers.size();
    Stretch s;
    for (std::size_t l = from; l < to; ++l)
      s.add(times_.layers[l].forward, times_.layers[l].host_forward);
    if (to > from) b.forward(kSyncedPart, n, s, from, to);
    from = to;
    if (n == norms_.size()) break;
    const std::int64_t channels = w_.tensors[w_.layers[to].tensors.front()].elements();
    blocking(b, kGatherNorm, n, kFloat * ranks_ * (2 * channels + 1), true);
  }
}

void SyncedNorms::backward(StepBuilder& b, TensorIndex t) const {
  if (!first_[t]) return;
  const std::int64_t channels = w_.tensors[t].elements();
  blocking(b, kReduceNorm, *first_[t], kFloat * 2 * channels, false);
}

}  // namespace ddpsim::systems
