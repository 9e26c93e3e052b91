// Streams of a rank, and DeepSpeed's optimizer step: the norm of all gradients, always; the scaled
// gradients of four bytes; the optimizer over a shard; the weights from it.
//
// Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py, step(); utils/timer.py (0.14.5).
#include "sim/systems/zero/zero_step.h"

#include <algorithm>

#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/zero_3_offload.h"
#include "sim/systems/zero/zero_exchange.h"
#include "sim/systems/zero/zero_offload.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kEndTimer{"wait/timer", {.does = Does::Wait, .in_micro_step = true}};
constexpr OpWord kOverflow = update_word("overflow", Does::Compute);
constexpr OpWord kReduceOverflow = update_word("allreduce/overflow", Does::Communicate);
constexpr OpWord kAwaitOverflow = update_word("wait/overflow", Does::Wait);
constexpr OpWord kNorm = update_word("grad_norm/group.", Does::Compute, Of::Number);
constexpr OpWord kReduceNorm = update_word("allreduce/grad_norm.", Does::Communicate, Of::Number);
// Numbers that the host reads of the device one by one.
constexpr OpWord kAwaitSums = update_word("wait/grad_sums.", Does::Wait, Of::Number);
constexpr OpWord kReadSums = update_word("read/grad_sums.", Does::Host, Of::Number);
constexpr OpWord kAwaitEachNorm = update_word("wait/grad_norms.", Does::Wait, Of::Number);
constexpr OpWord kReadEachNorm = update_word("read/grad_norms.", Does::Host, Of::Number);
constexpr OpWord kAwaitNorm = update_word("wait/grad_norm.", Does::Wait, Of::Number);
constexpr OpWord kAwaitClip = update_word("wait/clip.", Does::Wait, Of::Number);
constexpr OpWord kGradientsOfShard = update_word("flat_gradient/group.", Does::Copy, Of::Number);
constexpr OpWord kUnscaleShard = update_word("unscale/group.", Does::Compute, Of::Number);
constexpr OpWord kUpdateShard =
    update_word("optimizer/group.", Does::Compute, Of::Number, Touches::Everything);
constexpr OpWord kWeightsOfShard = update_word("copy_weights/group.", Does::Copy, Of::Number);
constexpr OpWord kZeroStepWords[] = {
    kZeroToBucket,     kZeroAverage,    kZeroAllReduce,  kZeroKeep,  kZeroReduced, kEndTimer,
    kOverflow,         kReduceOverflow, kAwaitOverflow,  kNorm,      kReduceNorm,  kUnscaleShard,
    kGradientsOfShard, kUpdateShard,    kWeightsOfShard, kAwaitSums, kReadSums,    kAwaitEachNorm,
    kReadEachNorm,     kAwaitNorm,      kAwaitClip};

// Kernels over single numbers: those that sum and test the norm, and those that clip.
constexpr std::int64_t kOfNorm = 16;
constexpr std::int64_t kOfClipping = 4;

}  // namespace

std::span<const OpWord> zero_words() {
  static const std::vector<OpWord> words = [] {
    std::vector<OpWord> all(std::begin(kZeroStepWords), std::end(kZeroStepWords));
    for (auto more : {zero_12_words(), zero_offload_words(), zero_3_offload_words(),
                      zero_fetch_words(), zero_3_words(), zero_exchange_words()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return words;
}

Program lower_zero(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return zero_of(plan).stage == 3 ? lower_zero_3(workload, plan, steps)
                                  : lower_zero_12(workload, plan, steps);
}

ZeroJob::ZeroJob(const TimedWorkload& t, const Plan& plan)
    : timed(t),
      w(t.workload),
      zero(zero_of(plan)),
      ranks(t.ranks),
      overlaps(systems::overlaps(zero_of(plan))),
      type(w.tensors.front().dtype),
      size(element_size(type)),
      program(empty_program(t, plan)),
      memory(w, false, t.winograd) {
  if (zero.stage == 3) name_frozen(program, w);
  program.activations_known = memory.known();
  if (overlaps) program.streams.push_back("reduce");
  if (overlaps && zero.stage == 3) program.streams.push_back("all_gather");
  program.groups = zero_groups(plan, t.ranks, t.per_host);
  for (const RankGroups& g : program.groups) program.streams.push_back("comm_" + g.name);
  if (zero.stage == 3) program.streams.push_back("comm_world");
}

Lane group_lane(const ZeroJob& job, std::uint8_t group) {
  return stream(job.program.streams.size() - 1 - job.program.groups.size() + group - 1);
}

Lane world_lane(const ZeroJob& job) {
  return stream(job.program.streams.size() - 1);
}

std::vector<std::uint32_t> ZeroStep::position(Stream s) const {
  const State& state = streams_[at(s)];
  std::vector<std::uint32_t> out = state.after;
  if (state.last != kNoOp) out.push_back(state.last);
  return out;
}

void ZeroStep::wait(Stream s, Stream other) {
  if (at(s) == at(other)) return;
  for (std::uint32_t op : position(other)) wait(s, op);
}

void ZeroStep::wait(Stream s, std::uint32_t op) {
  std::vector<std::uint32_t>& after = streams_[at(s)].after;
  const Lane lane = b.step.ops[op].lane;
  if (lane == lane_of(at(s))) return;  // in order
  // A lane is in order: of its operations the last one ends last.
  auto same = std::find_if(after.begin(), after.end(),
                           [&](std::uint32_t other) { return b.step.ops[other].lane == lane; });
  if (same == after.end())
    after.push_back(op);
  else
    *same = std::max(*same, op);
}

void ZeroStep::kernel(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                      Work work) {
  State& state = streams_[at(s)];
  state.last = b.on_stream(lane_of(at(s)), word, subject, bytes, work, state.after);
  state.after.clear();
}

void ZeroStep::copy(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                    std::int64_t kernels) {
  kernel(s, word, subject, bytes, {.traffic = bytes, .kernels = kernels});
}

std::uint32_t ZeroStep::collective(Stream s, const OpWord& word, std::uint32_t subject,
                                   std::int64_t bytes, DType type, Lane lane, bool asynchronous) {
  std::uint32_t op = b.collective_after(word, subject, bytes, type, position(s), lane);
  if (!asynchronous) streams_[at(s)].after = {op};
  return op;
}

void ZeroStep::host_waits(const OpWord& word, std::uint32_t subject,
                          const std::vector<std::uint32_t>& ops) {
  std::uint32_t host = b.wait(word, subject, kNoOp);
  for (std::uint32_t op : ops) b.add_dep(host, op);
}

void ZeroStep::synchronize(const OpWord& word, std::uint32_t subject) {
  std::vector<std::uint32_t> all;
  for (std::size_t s = 0; s < kStreams; ++s)
    for (std::uint32_t op : position(static_cast<Stream>(s)))
      if (std::find(all.begin(), all.end(), op) == all.end()) all.push_back(op);
  host_waits(word, subject, all);
}

std::uint32_t ZeroStep::bucket(std::vector<TensorIndex> tensors, std::int64_t elements,
                               std::int64_t padded, std::vector<Bucket::Slice> slices) {
  return bucket_of(job_.type, std::move(tensors), elements, padded, std::move(slices));
}

std::uint32_t ZeroStep::bucket_of(DType type, std::vector<TensorIndex> tensors,
                                  std::int64_t elements, std::int64_t padded,
                                  std::vector<Bucket::Slice> slices) {
  Bucket bucket;
  bucket.tensors = std::move(tensors);
  bucket.dtype = type;
  bucket.bytes = {elements * element_size(type)};
  bucket.wire_bytes = {padded * element_size(type)};
  bucket.slices = std::move(slices);
  b.step.buckets.push_back(std::move(bucket));
  return b.step.next_bucket() - 1;
}

void ZeroStep::end_micro_step() {
  if (b.step.kind == StepKind::Steady) synchronize(kEndTimer, kNoSubject);
}

void ZeroStep::read_numbers(const OpWord& await, const OpWord& read, std::uint32_t subject,
                            std::int64_t numbers) {
  host_waits(await, subject, position(kMain));
  const std::uint32_t op = b.host(read, Cost::Launch, subject);
  b.step.ops[op].kernels = static_cast<std::int32_t>(numbers);
}

void ZeroStep::check_overflow(Stream s, std::int64_t bytes_per_element, std::int64_t elements,
                              std::int64_t kernels, std::int64_t read) {
  if (!job_.checks_overflow()) return;
  copy(s, kOverflow, kNoSubject, bytes_per_element * elements, kernels);
  if (read > 0) read_numbers(kAwaitSums, kReadSums, 0, read);
  agree_on_overflow(s);
}

void ZeroStep::agree_on_overflow(Stream s) {
  wait(kMain, s);
  std::uint32_t op = collective(kMain, kReduceOverflow, kNoSubject, 1, DType::UInt8);
  host_waits(kAwaitOverflow, kNoSubject, {op});
}

// Each gradient in eight bytes (read it, write 8), and the norm of that (read 8).
void ZeroStep::norm(std::uint32_t group, std::int64_t elements, std::int64_t tensors,
                    DType summed) {
  copy(kMain, kNorm, group, (job_.size + 16) * elements, 2 * tensors + kOfNorm);
  const bool reads = job_.zero.stage < 3 && !job_.has(ZeroChange::NormStaysOnTheDevice);
  if (reads) read_numbers(kAwaitEachNorm, kReadEachNorm, group, tensors);
  reduce_norm(group, summed);
  if (reads) read_norm(group);
}

void ZeroStep::reduce_norm(std::uint32_t group, DType summed) {
  collective(kMain, kReduceNorm, group, element_size(summed), summed);
}

void ZeroStep::read_norm(std::uint32_t group) {
  host_waits(kAwaitNorm, group, position(kMain));
}

void ZeroStep::update(std::uint32_t group, std::int64_t elements) {
  const std::int64_t half = job_.size == 4 ? 0 : 1;
  copy(kMain, kGradientsOfShard, group, (2 * job_.size + half * (job_.size + 4)) * elements,
       1 + half);
  if (job_.w.loop.clip_grad_norm && job_.zero.stage < 3 &&
      job_.has(ZeroChange::NormStaysOnTheDevice) && !job_.has(ZeroChange::ClipsOnTheDevice))
    host_waits(kAwaitClip, group, position(kMain));
  copy(kMain, kUnscaleShard, group, 8 * elements,
       1 + (job_.w.loop.clip_grad_norm ? kOfClipping : 0));
  // Gradients of four bytes, beside what the optimizer makes of them.
  const std::int64_t single = 4 * elements;
  b.allocate(Holds::Temporaries, single + 4 * optimizer_temporaries(job_.w.optimizer, elements));
  const Optimizer& o = job_.w.optimizer;
  const std::int64_t traffic = optimizer_traffic(o, elements);
  kernel(kMain, kUpdateShard, group, 4 * elements,
         {.traffic = std::max<std::int64_t>(1, traffic), .kernels = optimizer_kernels(o, 1)});
  copy(kMain, kWeightsOfShard, group, (4 + job_.size) * elements);
  b.release(Holds::Temporaries, single + 4 * optimizer_temporaries(job_.w.optimizer, elements));
}

void ZeroStep::read_loss() {
  if (job_.w.loop.loss_item) host_waits(kReadLoss, kNoSubject, position(kMain));
}

}  // namespace ddpsim::systems
