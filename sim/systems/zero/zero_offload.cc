// ZeRO-Offload, stages 1 and 2. Of a bucket that was reduced, what a rank owns goes to the host:
//
//   [accumulation: what the host has comes back and is added; before the last micro-step the sum
//   goes to the host again]; in the last one the norm of each slice, a look for infinities that the
//   host waits for, gradients of four bytes, which are copied; the host waits for copies into
//   memory that is not pinned
//
// and the step is the host's: norms, unscaling, DeepSpeedCPUAdam; then weights of four bytes are
// copied to the device, which the host waits for, and cast.
//
// Source: deepspeed/runtime/zero/stage_1_and_2.py (0.14.5): copy_grads_in_partition,
// async_accumulate_grad_in_cpu_via_gpu, update_overflow_tracker_for_param_grad,
// async_inplace_copy_grad_to_fp32_buffer_from_gpu, complete_grad_norm_calculation_for_cpu_offload,
// step; csrc/adam/cpu_adam_impl.cpp.
#include "sim/systems/zero/zero_offload.h"

#include <algorithm>
#include <map>

namespace ddpsim::systems {
namespace {

constexpr OpWord kCheckSlices = zero_word("check_slices/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kAwaitCheck = zero_word("wait/check_slices.", Does::Wait, Phase::Reduced);
constexpr OpWord kSinglesOf = zero_word("to_float/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kAwaitNorms = update_word("wait/norms", Does::Wait);
constexpr OpWord kReduceNorms = update_word("allreduce/norms", Does::Communicate);
constexpr OpWord kAwaitNormSum = update_word("wait/norm_sum", Does::Wait);
constexpr OpWord kWeightsBack = update_word("to_device/weights", Does::Move);
constexpr OpWord kAwaitWeights = update_word("wait/weights", Does::Wait);
constexpr OpWord kCastWeights = update_word("cast_weights", Does::Copy);
constexpr OpWord kHostCastWeights = update_word("host_cast_weights", Does::Compute);
constexpr OpWord kZeroOffloadWords[] = {
    kZeroFromHost, kZeroAddHosts,  kCheckSlices, kAwaitCheck,     kSinglesOf,
    kZeroToHost,   kZeroAwaitHost, kAwaitNorms,  kReduceNorms,    kAwaitNormSum,
    kWeightsBack,  kAwaitWeights,  kCastWeights, kHostCastWeights};

}  // namespace

std::span<const OpWord> zero_offload_words() {
  return kZeroOffloadWords;
}

Held ZeroOffload::resident() const {
  Held held = systems::resident(job_.w, 0, 0);
  held[Holds::Parameters] = job_.w.elements() * job_.size + job_.w.frozen_bytes().count;
  std::int64_t largest = 0;
  for (const Tensor& t : job_.w.tensors) largest = std::max(largest, t.elements());
  held[Holds::Buckets] = largest * job_.size;
  return held;
}

// All ranks run the same Program: that of the one that owns the most of this bucket.
ZeroOffload::Owned ZeroOffload::owned(const std::vector<TensorIndex>& tensors) const {
  std::map<std::int64_t, Owned> of_rank;
  for (TensorIndex t : tensors)
    for (const ZeroPartition::Slice& s : partition_.slices(t)) {
      Owned& o = of_rank[s.rank];
      o.elements += s.elements;
      o.whole += job_.elements(t);
      ++o.slices;
    }
  Owned most;
  for (const auto& [rank, o] : of_rank)
    if (o.elements > most.elements) most = o;
  return most;
}

void ZeroOffload::move(ZeroStep& s, ZeroStep::Stream stream, const OpWord& word,
                       std::uint32_t subject, std::int64_t bytes) const {
  s.kernel(stream, word, subject, bytes, {.duration = job_.timed.host_memory->copy(bytes)});
}

void ZeroOffload::on_host(ZeroStep& s, const OpWord& word, std::int64_t bytes) const {
  s.b.host(word, kNoSubject, bytes, job_.timed.host_memory->touch(bytes));
}

void ZeroOffload::take(ZeroStep& s, std::uint32_t k, const std::vector<TensorIndex>& tensors,
                       int micro) const {
  const ZeroStep::Stream stream = ZeroStep::kReduce;
  const Owned o = owned(tensors);
  const std::int64_t size = job_.size;
  const auto to_host = [&](std::int64_t bytes) {
    move(s, stream, kZeroToHost, k, bytes);
    if (!pins(job_.zero)) s.host_waits(kZeroAwaitHost, k, s.position(stream));
  };
  if (micro > 0) {
    move(s, stream, kZeroFromHost, k, size * o.whole);
    s.copy(stream, kZeroAddHosts, k, 3 * size * o.whole, o.slices);
  }
  const bool last = micro + 1 == micro_steps_;
  const bool keeps = job_.has(ZeroChange::HostKeepsEach)       ? true
                     : job_.has(ZeroChange::HostKeepsTheFirst) ? micro == 0
                                                               : !last;
  if (keeps && micro_steps_ > 1) to_host(size * o.whole);
  if (!last) return;
  // The norm of doubles (read, write 8, read 8); as float (4), isnan and isinf (5 each), logical_or
  // (3), as float and max (9): _has_inf_or_nan, of each slice. Before, as float (4) and its sum
  // (4).
  const bool flags = job_.has(ZeroChange::OverflowStaysOnTheDevice);
  s.copy(stream, kCheckSlices, k, (size + 16 + size + (flags ? 26 : 8)) * o.elements,
         (flags ? 8 : 4) * o.slices);
  s.host_waits(kAwaitCheck, k, s.position(stream));
  if (size != kSingle) {
    s.copy(stream, kSinglesOf, k, (size + kSingle) * o.elements, o.slices);
    s.b.allocate(Holds::Temporaries, kSingle * o.elements);
  }
  to_host(kSingle * o.elements);
  if (size != kSingle) s.b.release(Holds::Temporaries, kSingle * o.elements);
}

void ZeroOffload::update(ZeroStep& s) const {
  const std::int64_t shard = partition_.shard();
  s.check_overflow(ZeroStep::kMain, 0, shard, 1);
  s.synchronize(kAwaitNorms, kNoSubject);
  const std::uint32_t op =
      s.collective(ZeroStep::kMain, kReduceNorms, kNoSubject, kSingle, DType::Float32);
  s.host_waits(kAwaitNormSum, kNoSubject, {op});
  on_host(s, kHostUnscale, 2 * kSingle * shard);
  on_host(s, kHostOptimizer, kHostAdam * shard);
  bring_weights(s);
}

void ZeroOffload::bring_weights(ZeroStep& s) const {
  const std::int64_t shard = partition_.shard();
  const bool buffer = job_.has(ZeroChange::CopiesHalvesBack);  // of the host, pinned where all is
  if (!buffer && job_.has(ZeroChange::CopiesSinglesBack)) {
    move(s, ZeroStep::kMain, kWeightsBack, kNoSubject, kSingle * shard);
    s.b.allocate(Holds::Temporaries, kSingle * shard);
    s.host_waits(kAwaitWeights, kNoSubject, s.position(ZeroStep::kMain));
    s.copy(ZeroStep::kMain, kCastWeights, kNoSubject, (kSingle + job_.size) * shard);
    s.b.release(Holds::Temporaries, kSingle * shard);
    return;
  }
  if (buffer || job_.size != kSingle) on_host(s, kHostCastWeights, (kSingle + job_.size) * shard);
  move(s, ZeroStep::kMain, kWeightsBack, kNoSubject, job_.size * shard);
  if (!buffer || !pins(job_.zero))
    s.host_waits(kAwaitWeights, kNoSubject, s.position(ZeroStep::kMain));
}

}  // namespace ddpsim::systems
