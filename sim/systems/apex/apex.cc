// NVIDIA Apex's DistributedDataParallel, one step:
//
//   forward
//   backward   a hook counts; with the last gradient of a bucket whose predecessors are reduced:
//   its
//              flat copy on the compute stream; then on the bucket's stream (round-robin over
//              num_allreduce_streams, each with a communicator) [to fp32] [x 1/predivide],
//              all-reduce, [x predivide/ranks], [from fp32], [copy out]: all beside backward
//   after it   the compute stream waits for these streams; optimizer
//
// The first step records in which order gradients arrive and reduces after backward: rank 0's
// buckets are broadcast as one tensor that the host reads number by number, then one flat copy of
// each type is all-reduced on the compute stream. So is every step with delay_allreduce, without
// the broadcast. A flat copy of one gradient is a view of it (torch/csrc/utils/tensor_flatten.h).
//
// Source: NVIDIA/apex, apex/parallel/distributed.py before May 2025; csrc/flatten_unflatten.cpp,
// csrc/multi_tensor_apply.cuh; version.h says where older ones differ. docs/model.md section 3.
#include "sim/systems/apex/apex.h"

#include <algorithm>
#include <array>
#include <set>

#include "sim/systems/apex/plan.h"
#include "sim/systems/base/frame.h"
#include "sim/systems/base/streams.h"
#include "sim/systems/ddp/bucketing.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kApexStructure{"broadcast/structure",
                                {.does = Does::Communicate, .operation = Operation::Broadcast}};
constexpr OpWord kApexStructureWait{"wait/structure", {.does = Does::Wait}};
constexpr OpWord kApexReadStructure{"read/structure", {.does = Does::Host}};
constexpr OpWord kApexFlatten = bucket_word("flatten/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kApexToFloat = bucket_word("to_fp32/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kApexPredivide = bucket_word("predivide/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kApexReduce = bucket_word("allreduce/bucket.", Does::Communicate, Phase::Backward);
constexpr OpWord kApexAverage =
    bucket_word("mean/bucket.", Does::Copy, Phase::Reduced, Operation::AllReduce, true);
constexpr OpWord kApexFromFloat = bucket_word("from_fp32/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kApexUnflatten = bucket_word("unflatten/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kApexWords[] = {
    kApexStructure, kApexStructureWait, kApexReadStructure, kApexFlatten,   kApexToFloat,
    kApexPredivide, kApexReduce,        kApexAverage,       kApexFromFloat, kApexUnflatten};

constexpr std::array kApexTypes{DType::Float16, DType::Float32, DType::Float64};
std::size_t type_of(const Workload& w, TensorIndex t) {
  const auto at = std::find(kApexTypes.begin(), kApexTypes.end(), w.tensors[t].dtype);
  return static_cast<std::size_t>(at - kApexTypes.begin()) % kApexTypes.size();
}

// Tensors of a launch of torch.cat.
constexpr std::int64_t kTensorsOfCat = 128;  // CAT_ARRAY_BATCH_SIZE

class ApexLowering {
 public:
  ApexLowering(const TimedWorkload& timed, const Plan& plan)
      : f_(timed, plan),
        apex_(apex_of(plan)),
        buckets_(apex_buckets(timed.workload, plan)),
        streams_(1 + apex_.num_allreduce_streams) {
    const std::int64_t n = apex_.num_allreduce_streams;
    for (std::int64_t i = 0; i < n; ++i)
      f_.program.streams.push_back("bucket_stream" + (n > 1 ? std::to_string(i) : ""));
    // Retained: gradients are views of flat buffers, which are there until the next forward ends.
    const bool retained = apex_.retain_allreduce_buffers;
    f_.program.resident = resident(f_.w, !f_.set_to_none && !retained);
    if (retained)
      for (const auto& bucket : buckets_) f_.program.resident[Holds::Buckets] += bytes_of(bucket);
  }

  Program run(Steps steps) {
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  using Stream = DeviceStreams::Stream;
  static constexpr Stream kMain = DeviceStreams::kCompute;

  std::int64_t bytes_of(TensorIndex t) const { return f_.program.tensor_bytes[t]; }
  std::int64_t bytes_of(const std::vector<TensorIndex>& bucket) const {
    std::int64_t sum = 0;
    for (TensorIndex t : bucket) sum += bytes_of(t);
    return sum;
  }

  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    b_ = &b;
    streams_.begin(b);
    recorded_ = kind != StepKind::First;
    grads_exist_ = f_.keeps_gradients(kind);
    views_ = grads_exist_;
    if (grads_exist_) zero_gradients(b, f_.w, f_.plan);
    f_.micro_steps(b, [&](int m, bool last) { micro_step(m, last); });
    b.update(f_.times);
    return std::move(b.step);
  }

  void micro_step(int m, bool last) {
    forward();
    if (m == 0 && !views_) b_->release(Holds::Buckets, f_.program.resident[Holds::Buckets]);
    const bool reduces = last || !apex_.disable_allreduce;
    const bool delayed = apex_.delay_allreduce || !recorded_;
    if (reduces) begin_reduction(delayed ? apex_fallback(f_.w, f_.plan) : buckets_);
    for (const Segment& s : f_.timeline.segments) {
      b_->host_time(s.host);
      if (s.device.ps > 0) streams_.kernel(kMain, kBackward, s.tensor, 0, {.duration = s.device});
      b_->gradient(s.tensor, m == 0 && !grads_exist_);
      if (m > 0 || grads_exist_)
        streams_.copy(kMain, kAccumulate, s.tensor, 3 * bytes_of(s.tensor));
      if (reduces && !delayed) hook(s.tensor);
    }
    b_->host_time(f_.timeline.tail_host);
    if (f_.timeline.tail_device.ps > 0)
      streams_.kernel(kMain, kBackwardTail, kNoSubject, 0, {.duration = f_.timeline.tail_device});
    b_->gradient(StepBuilder::kNoTensor, false);
    if (!reduces) return;
    if (delayed) reduce_after_backward();
    for (Stream s = 1; s <= used_; ++s)
      last ? b_->before_next_main(streams_.last(s)) : streams_.wait(kMain, s);
    views_ = true;
  }

  void forward() {
    Stretch f = forward_of(f_.times);
    b_->host_time(f.head);
    streams_.kernel(kMain, kForward, kNoSubject, 0, {.duration = f.device});
    b_->all_forward();
    b_->host_time(f.host - f.head);
  }

  // ---- the reduction

  // Of a micro-step: its buckets stand behind those of the micro-steps before.
  void begin_reduction(const std::vector<std::vector<TensorIndex>>& buckets) {
    base_ = b_->step.next_bucket();
    bucket_of_.assign(f_.w.tensors.size(), 0);
    missing_.clear();
    next_ = 0;
    used_ = 0;
    for (const auto& tensors : buckets) {
      for (TensorIndex t : tensors) bucket_of_[t] = static_cast<std::uint32_t>(missing_.size());
      missing_.push_back(tensors.size());
      Bucket bucket;
      bucket.tensors = tensors;
      bucket.dtype = f_.w.tensors[tensors.front()].dtype;
      bucket.bytes.count = bytes_of(tensors);
      bucket.wire_bytes.count =
          bucket.bytes.count / element_size(bucket.dtype) * element_size(wire_type(bucket.dtype));
      b_->step.buckets.push_back(std::move(bucket));
    }
  }
  DType wire_type(DType type) const { return apex_.allreduce_always_fp32 ? DType::Float32 : type; }

  void hook(TensorIndex t) {
    --missing_[bucket_of_[t]];
    for (; next_ < missing_.size() && missing_[next_] == 0; ++next_) {
      const auto k = static_cast<Stream>(next_);
      const Stream s = 1 + k % static_cast<Stream>(apex_.num_allreduce_streams);
      used_ = std::max(used_, s);
      reduce(base_ + next_, s);
    }
  }

  // allreduce_params(): the structure that rank 0 has recorded, then all gradients.
  void reduce_after_backward() {
    b_->set_micro(-1);
    if (!recorded_ && !apex_.delay_allreduce) {
      std::size_t numbers = 1 + buckets_.size();
      for (const auto& bucket : buckets_) numbers += bucket.size();
      const std::uint32_t sent = b_->collective(
          kApexStructure, kNoSubject, 4 * static_cast<std::int64_t>(numbers), DType::Int32,
          f_.plan.pytorch.has(pytorch::Change::BlockingOnTheCallersStream));
      b_->wait(kApexStructureWait, kNoSubject, sent);
      const std::uint32_t read = b_->host(kApexReadStructure, Cost::Launch);
      b_->step.ops[read].kernels = static_cast<std::int32_t>(numbers);
    }
    recorded_ = true;
    for (std::uint32_t k = base_; k < b_->step.buckets.size(); ++k) reduce(k, kMain);
  }

  // allreduce_bucket(), on the compute stream or beside it.
  void reduce(std::uint32_t k, Stream s) {
    const Bucket bucket = b_->step.buckets[k];
    const std::int64_t bytes = bucket.bytes.count;
    const std::int64_t wire = bucket.wire_bytes.count;
    const std::int64_t tensors = bucket.tensors.size();
    const DType type = wire_type(bucket.dtype);
    const bool casts = type != bucket.dtype;
    const bool on_main = apex_.release.has(apex::Change::FlattensOnTheMainStream);
    if (s != kMain && !on_main) streams_.wait(s, kMain);
    if (tensors > 1) {
      streams_.kernel(on_main ? kMain : s, kApexFlatten, k, bytes,
                      {.traffic = 2 * bytes,
                       .kernels = (tensors + kTensorsOfCat - 1) / kTensorsOfCat,
                       .hooks = tensors});
      b_->allocate(Holds::Buckets, bytes);
    }
    if (s != kMain && on_main) streams_.wait(s, kMain);
    if (casts) {
      streams_.copy(s, kApexToFloat, k, bytes + wire);
      b_->allocate(Holds::Buckets, wire);
    }
    if (apex_.gradient_predivide_factor.value_or(1) != 1)
      streams_.copy(s, kApexPredivide, k, 2 * wire);
    std::uint32_t last = all_reduce(k, s, wire, type);
    if (apex_.gradient_average) last = streams_.copy(s, kApexAverage, k, 2 * wire);
    if (casts) {
      last = streams_.copy(s, kApexFromFloat, k, bytes + wire);
      b_->release(Holds::Buckets, wire, last, true);
    }
    if (!apex_.retain_allreduce_buffers) {
      std::vector<std::int64_t> elements;
      for (TensorIndex t : bucket.tensors) elements.push_back(f_.w.tensors[t].elements());
      const std::int64_t launches = apex_.release.has(apex::Change::UnflattensTogether)
                                        ? multi_tensor_launches(elements)
                                        : tensors;
      last = streams_.copy(s, kApexUnflatten, k, 2 * bytes, static_cast<std::int32_t>(launches));
      if (tensors > 1) b_->release(Holds::Buckets, bytes, last, true);
    } else {
      if (tensors == 1) b_->allocate(Holds::Buckets, bytes);
      // Gradients are views of it now: those that were there go, or the buffer of which they were.
      b_->release(views_ ? Holds::Buckets : Holds::Gradients, bytes);
    }
    if (s == kMain && is_collective(b_->step.ops[last].kind)) b_->before_next_main(last);
  }

  std::uint32_t all_reduce(std::uint32_t k, Stream s, std::int64_t bytes, DType type) {
    if (s != kMain) {
      const Lane lane = apex_.num_allreduce_streams > 1 ? DeviceStreams::lane_of(s) : Lane::Comm;
      return streams_.collective(s, kApexReduce, k, bytes, type, 0, lane);
    }
    const std::uint32_t op =
        b_->collective(kApexReduce, k, bytes, type,
                       f_.plan.pytorch.has(pytorch::Change::BlockingOnTheCallersStream));
    streams_.set_last(kMain, op);
    return op;
  }

  Frame f_;
  const ApexPlan& apex_;
  const std::vector<std::vector<TensorIndex>> buckets_;
  DeviceStreams streams_;
  // of the step being built
  StepBuilder* b_ = nullptr;
  bool recorded_ = false;  // the order of arrival
  bool grads_exist_ = false;
  bool views_ = false;      // retained: gradients are views of buffers that are there
  std::uint32_t base_ = 0;  // of the micro-step's buckets
  std::vector<std::uint32_t> bucket_of_;
  std::vector<std::size_t> missing_;
  std::uint32_t next_ = 0;
  Stream used_ = 0;
};

}  // namespace

std::int64_t multi_tensor_launches(const std::vector<std::int64_t>& elements) {
  constexpr std::int64_t kChunk = 2048 * 32;  // multi_tensor_applier's, of Apex's DDP
  constexpr int kTensors = 64;                // of a launch, of two lists
  constexpr std::int64_t kBlocks = 320;
  std::int64_t launches = 0;
  std::int64_t blocks = 0;
  int tensors = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::int64_t chunks = (elements[i] + kChunk - 1) / kChunk;
    ++tensors;
    for (std::int64_t c = 1; c <= chunks; ++c) {
      ++blocks;
      const bool full = tensors == kTensors && c == chunks;
      const bool end = i + 1 == elements.size() && c == chunks;
      if (!full && blocks < kBlocks && !end) continue;
      ++launches;
      blocks = 0;
      tensors = c == chunks ? 0 : 1;
    }
  }
  return std::max<std::int64_t>(1, launches);
}

std::vector<std::vector<TensorIndex>> apex_buckets(const Workload& w, const Plan& plan) {
  const std::vector<bool> unused = unused_tensors(w, plan);
  const auto& names = apex_of(plan).allreduce_trigger_params;
  const std::set<std::string> triggers(names.begin(), names.end());
  std::array<std::vector<TensorIndex>, kApexTypes.size()> open;
  std::array<std::int64_t, kApexTypes.size()> elements{};
  std::vector<std::vector<TensorIndex>> out;
  for (TensorIndex t : w.arrival) {
    if (unused[t]) continue;
    const std::size_t type = type_of(w, t);
    open[type].push_back(t);
    elements[type] += w.tensors[t].elements();
    const bool ships = triggers.empty() ? elements[type] >= apex_of(plan).message_size
                                        : triggers.count(w.tensors[t].name) > 0;
    if (!ships) continue;
    out.push_back(std::move(open[type]));
    open[type].clear();
    elements[type] = 0;
  }
  for (auto& left : open)
    if (!left.empty()) out.push_back(std::move(left));
  return out;
}

std::vector<std::vector<TensorIndex>> apex_fallback(const Workload& w, const Plan& plan) {
  const std::vector<bool> unused = unused_tensors(w, plan);
  std::array<std::vector<TensorIndex>, kApexTypes.size()> of_type;
  for (TensorIndex t = 0; t < w.tensors.size(); ++t)
    if (!unused[t]) of_type[type_of(w, t)].push_back(t);
  std::vector<std::vector<TensorIndex>> out;
  for (auto& tensors : of_type)
    if (!tensors.empty()) out.push_back(std::move(tensors));
  return out;
}

std::span<const OpWord> apex_words() {
  return kApexWords;
}

Program lower_apex(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return ApexLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
