// ZeRO-3's offload_optimizer. Of a bucket that was reduced, parameter by parameter, a rank's part
//
//   goes to the host's buffer of gradients, and comes back; from the second micro-step on what the
//   host has comes first, and is added; in the last one its norm, and a copy into the optimizer's
//   gradients of four bytes, which the host waits for
//
// A copy between types that blocks is cast on the CPU (PyTorch, Copy.cu). The step is the host's,
// group by group (sub_group_size): a norm that it asks for, unscaling, DeepSpeedCPUAdam, a cast,
// and weights to the device, which it waits for. With offload_param these stay on the host: each
// gathering begins with copies of its parameters' shards, for each of which the host waits, pinned
// or not.
//
// Source: deepspeed/runtime/zero/stage3.py (0.14.5): partition_grads, has_overflow,
// complete_grad_norm_calculation_for_cpu_offload, unscale_and_clip_grads, _optimizer_step,
// _reassign_or_swap_out_partitioned_parameters; partition_parameters.py: all_gather_coalesced,
// _allgather_params_coalesced.
#include "sim/systems/zero/zero_3_offload.h"

#include "sim/systems/zero/zero_offload.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kShardNorms = zero_word("norm_shards/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kToOptimizer = zero_word("to_optimizer/bucket.", Does::Move, Phase::Reduced);
constexpr OpWord kAwaitOptimizer = zero_word("wait/to_optimizer.", Does::Wait, Phase::Reduced);
constexpr OpWord kHostSingles = zero_word("host_to_float/bucket.", Does::Host, Phase::Reduced);
constexpr OpWord kSinglesForHost =
    zero_word("to_float_for_host/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kOutOfPinned = zero_word("out_of_pinned/bucket.", Does::Host, Phase::Reduced);
constexpr OpWord kFetchShards = zero_word("fetch_shards/bucket.", Does::Move, Phase::Between);
constexpr OpWord kAwaitShards = zero_word("wait/fetch_shards.", Does::Wait, Phase::Between);

constexpr OpWord group_word(const char* name, Does does, Touches touches = Touches::Nothing) {
  return update_word(name, does, Of::Number, touches);
}
constexpr OpWord kHostOverflow = update_word("host_overflow", Does::Compute);
constexpr OpWord kSumNorms = group_word("sum_norms/group.", Does::Compute);
constexpr OpWord kAwaitGroupNorms = group_word("wait/norms.", Does::Wait);
constexpr OpWord kAwaitGroupNormSum = group_word("wait/norm_sum.", Does::Wait);
constexpr OpWord kHostUnscaleGroup = group_word("host_unscale/group.", Does::Compute);
constexpr OpWord kHostUpdateGroup =
    group_word("host_optimizer/group.", Does::Compute, Touches::Everything);
constexpr OpWord kHostCastGroup = group_word("host_cast/group.", Does::Compute);
constexpr OpWord kGroupBack = group_word("to_device/group.", Does::Move);
constexpr OpWord kAwaitGroup = group_word("wait/to_device.", Does::Wait);
constexpr OpWord kPersistentShards = update_word("fetch_shards/persistent", Does::Move);
constexpr OpWord kAwaitPersistentShards = update_word("wait/fetch_shards", Does::Wait);
constexpr OpWord kZero3OffloadWords[] = {kShardNorms,
                                         kToOptimizer,
                                         kAwaitOptimizer,
                                         kHostSingles,
                                         kFetchShards,
                                         kAwaitShards,
                                         kHostOverflow,
                                         kSumNorms,
                                         kAwaitGroupNorms,
                                         kAwaitGroupNormSum,
                                         kHostUnscaleGroup,
                                         kHostUpdateGroup,
                                         kHostCastGroup,
                                         kGroupBack,
                                         kAwaitGroup,
                                         kPersistentShards,
                                         kAwaitPersistentShards,
                                         kSinglesForHost,
                                         kOutOfPinned};

Work moved(const ZeroJob& job, std::int64_t bytes, std::int64_t copies) {
  return {.duration = job.timed.host_memory->copy(bytes, copies), .kernels = copies};
}

}  // namespace

std::span<const OpWord> zero_3_offload_words() {
  return kZero3OffloadWords;
}

void bring_shards(ZeroStep& s, const ZeroJob& job, std::uint32_t k, std::int64_t bytes,
                  std::int64_t tensors) {
  s.kernel(ZeroStep::kGather, kFetchShards, k, bytes, moved(job, bytes, tensors));
  s.b.allocate(Holds::Temporaries, bytes);
  s.host_waits(kAwaitShards, k, s.position(ZeroStep::kGather));
}

void bring_persistent_shards(ZeroStep& s, const ZeroJob& job, std::int64_t bytes,
                             std::int64_t tensors) {
  s.kernel(ZeroStep::kMain, kPersistentShards, kNoSubject, bytes, moved(job, bytes, tensors));
  s.b.allocate(Holds::Temporaries, bytes);
  s.host_waits(kAwaitPersistentShards, kNoSubject, s.position(ZeroStep::kMain));
}

void Zero3Offload::move(ZeroStep& s, ZeroStep::Stream stream, const OpWord& word,
                        std::uint32_t subject, std::int64_t bytes, std::int64_t copies) const {
  s.kernel(stream, word, subject, bytes, moved(job_, bytes, copies));
}

void Zero3Offload::on_host(ZeroStep& s, const OpWord& word, std::uint32_t subject,
                           std::int64_t bytes) const {
  s.b.host(word, subject, bytes, job_.timed.host_memory->touch(bytes));
}

void Zero3Offload::take(ZeroStep& s, std::uint32_t k, const Part& part, int micro) const {
  constexpr ZeroStep::Stream kStream = ZeroStep::kReduce;
  const std::int64_t bytes = job_.size * part.elements;
  const auto to_host = [&] {
    move(s, kStream, kZeroToHost, k, bytes, part.tensors);
    if (!pins(job_.zero)) s.host_waits(kZeroAwaitHost, k, s.position(kStream));
  };
  if (micro == 0) to_host();
  move(s, kStream, kZeroFromHost, k, bytes, part.tensors);
  s.b.allocate(Holds::Temporaries, job_.size * part.largest);
  if (micro > 0) {
    s.copy(kStream, kZeroAddHosts, k, 3 * bytes, part.tensors);
    to_host();
  }
  if (micro + 1 == micro_steps_) {
    // In eight bytes (read it, write 8), the norm of that (read 8), its square, and the root.
    s.copy(kStream, kShardNorms, k, (job_.size + 16) * part.elements, 4 * part.tensors);
    give_optimizer(s, k, part);
  }
  s.b.release(Holds::Temporaries, job_.size * part.largest);
}

void Zero3Offload::give_optimizer(ZeroStep& s, std::uint32_t k, const Part& part) const {
  constexpr ZeroStep::Stream kStream = ZeroStep::kReduce;
  const bool casts = job_.size != kSingle;
  const bool on_device = job_.has(ZeroChange::CastsForTheHost);
  if (on_device && casts) {
    s.b.allocate(Holds::Temporaries, kSingle * part.largest);
    s.copy(kStream, kSinglesForHost, k, (job_.size + kSingle) * part.elements, part.tensors);
  }
  move(s, kStream, kToOptimizer, k, (on_device ? kSingle : job_.size) * part.elements,
       part.tensors);
  if (!job_.has(ZeroChange::PinsMemory) || !pins(job_.zero))
    s.host_waits(kAwaitOptimizer, k, s.position(kStream));
  if (on_device && casts) s.b.release(Holds::Temporaries, kSingle * part.largest);
  if (!on_device && casts) on_host(s, kHostSingles, k, (job_.size + kSingle) * part.elements);
  if (on_device && !job_.has(ZeroChange::NoBufferBetween))
    on_host(s, kOutOfPinned, k, 2 * kSingle * part.elements);
}

// isinf and isnan write a byte that any() reads.
void Zero3Offload::check_overflow(ZeroStep& s, std::int64_t elements) const {
  if (!job_.checks_overflow()) return;
  on_host(s, kHostOverflow, kNoSubject, (2 * job_.size + 4) * elements);
  s.agree_on_overflow(ZeroStep::kReduce);
}

// Of each parameter its norm, in eight bytes, is squared and added.
void Zero3Offload::norm(ZeroStep& s, std::uint32_t group, std::int64_t tensors, bool last) const {
  s.copy(ZeroStep::kMain, kSumNorms, group, 40 * tensors, 2 * tensors);
  s.host_waits(kAwaitGroupNorms, group, s.position(ZeroStep::kMain));
  s.reduce_norm(group, DType::Float32);
  if (last || !job_.has(ZeroChange::NormOfAllIsRead) ||
      job_.has(ZeroChange::NormOfStage3StaysOnTheDevice))
    s.host_waits(kAwaitGroupNormSum, group, s.position(ZeroStep::kMain));
}

void Zero3Offload::update(ZeroStep& s, std::uint32_t group, std::int64_t elements) const {
  on_host(s, kHostUnscaleGroup, group, 2 * kSingle * elements);
  on_host(s, kHostUpdateGroup, group, kHostAdam * elements);
  if (job_.zero.offload_param || job_.size != kSingle)
    on_host(s, kHostCastGroup, group, (kSingle + job_.size) * elements);
  if (job_.zero.offload_param) return;
  move(s, ZeroStep::kMain, kGroupBack, group, job_.size * elements, 1);
  s.host_waits(kAwaitGroup, group, s.position(ZeroStep::kMain));
}

}  // namespace ddpsim::systems
