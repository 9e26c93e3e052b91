// One step of a rank of DeepSpeed ZeRO: its streams, and what every stage does with its shards.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "sim/systems/base/builder.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/zero.h"

namespace ddpsim::systems {

// A word of a bucket, in a micro-step.
constexpr OpWord zero_word(const char* name, Does does, Phase phase,
                           Operation o = Operation::AllReduce, bool divides = false) {
  OpWord word = bucket_word(name, does, phase, o, divides);
  word.kind.in_micro_step = true;
  return word;
}
// Those of all stages.
inline constexpr OpWord kZeroToBucket{"to_bucket/",
                                      {.does = Does::Copy,
                                       .phase = Phase::Backward,
                                       .of = Of::Tensor,
                                       .touches = Touches::Tensor,
                                       .in_micro_step = true}};
inline constexpr OpWord kZeroAverage =
    zero_word("average/bucket.", Does::Copy, Phase::Backward, Operation::AllReduce, true);
inline constexpr OpWord kZeroAllReduce =
    zero_word("allreduce/bucket.", Does::Communicate, Phase::Backward);
inline constexpr OpWord kZeroKeep = zero_word("keep_shard/bucket.", Does::Copy, Phase::Reduced);
inline constexpr OpWord kZeroReduced{"wait/reductions",
                                     {.does = Does::Wait, .in_micro_step = true}};

// What a lowering keeps from step to step.
struct ZeroJob {
  TimedWorkload timed;
  const Workload& w;
  const ZeroPlan& zero;
  std::int64_t ranks;
  bool overlaps;
  DType type;  // of weights and gradients
  std::int64_t size;
  Program program;
  const ModelMemory memory;
  ZeroJob(const TimedWorkload& timed, const Plan& plan);
  bool has(ZeroChange c) const { return zero.release.has(c); }
  bool checks_overflow() const {
    return type == DType::Float16 || !has(ZeroChange::ChecksFp16Alone);
  }
  // `t`: of Workload::parameter.
  std::int64_t elements(TensorIndex t) const { return w.parameter(t).elements(); }
  // Of an element as it is kept and gathered: a frozen one has its own type.
  DType type_of(TensorIndex t) const { return w.is_frozen(t) ? w.parameter(t).dtype : type; }
  std::int64_t size_of(TensorIndex t) const { return element_size(type_of(t)); }
};

// What is put on a stream begins after all that the stream waits for.
class ZeroStep {
 public:
  // Without overlap_comm all are the compute stream.
  enum Stream : std::size_t { kMain, kReduce, kGather, kStreams };
  ZeroStep(ZeroJob& job, StepKind kind) : b(job.program, kind, job.w, job.memory), job_(job) {}

  void wait(Stream s, Stream other);
  void wait(Stream s, std::uint32_t op);
  void kernel(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes, Work work);
  // Reads and writes so many bytes in all.
  void copy(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes,
            std::int64_t kernels = 1);
  // The stream goes on when it has ended, or at once (async_op).
  std::uint32_t collective(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                           DType type, Lane lane = Lane::Comm, bool asynchronous = false);
  // Operations after which all that is on the stream by now has ended.
  std::vector<std::uint32_t> position(Stream s) const;
  // The host blocks.
  void host_waits(const OpWord& word, std::uint32_t subject, const std::vector<std::uint32_t>& ops);
  void synchronize(const OpWord& word, std::uint32_t subject);  // the device
  // The next bucket, of so many elements of its tensors.
  std::uint32_t bucket(std::vector<TensorIndex> tensors, std::int64_t elements, std::int64_t padded,
                       std::vector<Bucket::Slice> slices = {});
  // Of tensors of one type, which need not be that of gradients.
  std::uint32_t bucket_of(DType type, std::vector<TensorIndex> tensors, std::int64_t elements,
                          std::int64_t padded, std::vector<Bucket::Slice> slices = {});

  // ThroughputTimer.stop(): from its third step on.
  void end_micro_step();
  // fp16: whether any rank's gradients are infinite. `read`: numbers that the host reads for it.
  void check_overflow(Stream s, std::int64_t bytes_per_element, std::int64_t elements,
                      std::int64_t kernels, std::int64_t read = 0);
  // Its second half: after what stream `s` has found out.
  void agree_on_overflow(Stream s);
  void norm(std::uint32_t group, std::int64_t elements, std::int64_t tensors, DType summed);
  void reduce_norm(std::uint32_t group, DType summed);
  void read_norm(std::uint32_t group);  // the host waits for it
  // The optimizer over a shard of four bytes; weights from it.
  void update(std::uint32_t group, std::int64_t elements);
  void read_loss();

  StepBuilder b;

 private:
  // The host waits for the device, and copies so many numbers from it one by one.
  void read_numbers(const OpWord& await, const OpWord& read, std::uint32_t subject,
                    std::int64_t numbers);
  struct State {
    std::uint32_t last = kNoOp;  // of its own lane
    std::vector<std::uint32_t> after;
  };
  std::size_t at(Stream s) const { return job_.overlaps ? s : kMain; }
  static Lane lane_of(std::size_t s) { return s == kMain ? Lane::Compute : stream(s - 1); }

  ZeroJob& job_;
  std::array<State, kStreams> streams_;
};

// The communicator of one of Program::groups, from 1: of those that share a second copy of weights
// (hpZ), of a host, of one place on each host (qgZ).
Lane group_lane(const ZeroJob& job, std::uint8_t group);
// The communicator of all ranks, where there is another one besides (stage 3).
Lane world_lane(const ZeroJob& job);

Program lower_zero_12(const TimedWorkload& workload, const Plan& plan, Steps steps);
Program lower_zero_3(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> zero_12_words();
std::span<const OpWord> zero_fetch_words();
std::span<const OpWord> zero_3_words();

}  // namespace ddpsim::systems
