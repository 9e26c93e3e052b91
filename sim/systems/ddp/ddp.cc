// PyTorch DistributedDataParallel, one step:
//   [zero_grad] [rebuild: 2 broadcasts, host waits] [buffer broadcast] forward
//   backward: per gradient, hook = copy into bucket (fused division); a bucket is launched when it
//   is full AND all earlier ones were launched after backward: per bucket in order, wait, copy out
//   (one kernel per parameter); optimizer
// A step has one such pass, of which micro-steps but the last run as under no_sync(); or one for
// each micro-step (no_sync=false); or one for each batch of a round (local SGD).
// Where Gloo reduces (CPU, and CUDA tensors through pinned memory) the host waits, too.
#include "sim/systems/ddp/ddp.h"

#include <algorithm>

#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/ddp_buffers.h"
#include "sim/systems/ddp/ddp_options.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/ddp/power_sgd.h"

namespace ddpsim::systems {
namespace {

// Rank 0's assignment of tensors to buckets, 0: indices, 1: sizes.
constexpr OpWord kRebuildBroadcast{
    "broadcast/rebuild.",
    {.does = Does::Communicate, .of = Of::Number, .operation = Operation::Broadcast}};
constexpr OpWord kRebuildWait{"wait/broadcast/rebuild.", {.does = Does::Wait, .of = Of::Number}};
constexpr OpWord kFindUnused{"find_unused", {.does = Does::Host, .in_micro_step = true}};
constexpr OpWord kCopyIn{"copy_in/",
                         {.does = Does::Copy,
                          .phase = Phase::Backward,
                          .of = Of::Tensor,
                          .touches = Touches::Tensor,
                          .divides = true,
                          .in_micro_step = true}};
constexpr OpWord kCompress{"compress/bucket.",
                           {.does = Does::Copy, .phase = Phase::Backward, .of = Of::Bucket}};
// A comm hook's own division.
constexpr OpWord kDivide{"divide/bucket.",
                         {.does = Does::Copy, .phase = Phase::Backward, .of = Of::Bucket}};
constexpr OpWord kAllReduce{"allreduce/bucket.",
                            {.does = Does::Communicate,
                             .phase = Phase::Backward,
                             .of = Of::Bucket,
                             .touches = Touches::Bucket}};
constexpr OpWord kUnusedAllReduce{"allreduce/unused", {.does = Does::Communicate}};
constexpr OpWord kUnusedWait{"wait/unused", {.does = Does::Wait}};
constexpr OpWord kDecompress{"decompress/bucket.",
                             {.does = Does::Copy, .phase = Phase::Reduced, .of = Of::Bucket}};
constexpr OpWord kBucketWait{"wait/bucket.",
                             {.does = Does::Wait, .phase = Phase::Reduced, .of = Of::Bucket}};
constexpr OpWord kCopyOut{
    "copy_out/",
    {.does = Does::Copy, .phase = Phase::Reduced, .of = Of::Tensor, .touches = Touches::Tensor}};
constexpr OpWord kDdpWords[] = {kRebuildBroadcast, kRebuildWait, kFindUnused, kCopyIn,
                                kCompress,         kDivide,      kAllReduce,  kUnusedAllReduce,
                                kUnusedWait,       kDecompress,  kBucketWait, kCopyOut};

// Which of DDP's lives this step belongs to.
enum class Life { First, Second, Rebuild, Steady };

// The lives of warm-up steps of so many passes each: DDP counts passes that reduce, not steps.
std::vector<std::vector<Life>> warm_up(const Plan& plan, std::size_t passes) {
  std::vector<Life> early{Life::First};
  if (ddp_of(plan).static_graph) early.push_back(Life::Second);
  if (rebuilds(plan)) early.push_back(Life::Rebuild);
  while (early.size() % passes != 0) early.push_back(Life::Steady);
  std::vector<std::vector<Life>> out;
  for (std::size_t i = 0; i < early.size(); i += passes)
    out.emplace_back(early.begin() + i, early.begin() + (i + passes));
  return out;
}

// `compresses`: by PowerSGD.
std::vector<Bucket> buckets_of(const Workload& w, const Plan& plan,
                               const std::vector<std::vector<TensorIndex>>& buckets,
                               bool compresses) {
  const bool half = ddp_of(plan).comm_hook == CommHook::Fp16Compress ||
                    ddp_of(plan).comm_hook == CommHook::Bf16Compress;
  std::vector<Bucket> out;
  for (const std::vector<TensorIndex>& tensors : buckets) {
    Bucket bucket;
    bucket.tensors = tensors;
    bucket.dtype = w.tensors[tensors.front()].dtype;
    std::int64_t elements = 0;
    for (TensorIndex t : tensors) {
      bucket.bytes += w.tensors[t].bytes();
      elements += w.tensors[t].elements();
    }
    bucket.wire_bytes.count = half ? 2 * elements : bucket.bytes.count;
    if (compresses)
      bucket.wire_bytes.count =
          element_size(bucket.dtype) * power_sgd_parts(w, bucket.tensors, ddp_of(plan)).wire();
    out.push_back(std::move(bucket));
  }
  return out;
}

class DdpLowering {
 public:
  DdpLowering(const TimedWorkload& timed, const Plan& plan, const DdpRound& round,
              const BatchUpdate& update)
      : timed_(timed),
        w_(timed.workload),
        times_(timed.times),
        plan_(plan),
        round_(round),
        update_(update),
        unused_(unused_tensors(w_, plan)),
        timeline_(backward_timeline(timed, unused_)),
        buffers_(w_, ddp_of(plan).join
                         ? timed.ranks - 1 - static_cast<int>(ddp_of(plan).joined_ranks)
                         : -1),
        memory_(w_, false, timed.winograd),
        norms_(w_, times_, timed.ranks,
               plan.pytorch.has(pytorch::Change::BlockingOnTheCallersStream)) {
    set_to_none_ = plan.set_to_none.value_or(plan.pytorch.has(pytorch::Change::ZeroGradSetsToNone));
    any_unused_ = std::find(unused_.begin(), unused_.end(), true) != unused_.end();
  }

  Program run(Steps steps) {
    program_ = empty_program(timed_, plan_);
    program_.groups = round_.batches > 0 ? round_.groups : ddp_groups(plan_, timed_.ranks, 1);
    // Gradients are views of the buckets, or beside them.
    program_.resident = resident(w_, !set_to_none_ && !ddp_of(plan_).gradient_as_bucket_view);
    program_.resident[Holds::Buckets] = gradient_bytes() + power_sgd_bytes(w_, plan_);
    if (timed_.device == DeviceKind::Gpu && power_sgd()) program_.streams = {"powersgd"};
    if (timed_.device == DeviceKind::Gpu && ddp_of(plan_).optimizer_in_backward)
      program_.streams = {"optimizer"};
    program_.activations_known = memory_.known();
    initial_ = initial_buckets(w_, plan_);
    rebuilt_ = rebuilds(plan_) ? rebuilt_buckets(w_, plan_, ready_order(w_, plan_)) : initial_;
    const std::size_t a_step = round_.batches > 0 ? 1 : static_cast<std::size_t>(passes());
    if (steps == Steps::All)
      for (const std::vector<Life>& lives : warm_up(plan_, a_step))
        program_.warmup.push_back(
            step(lives.front() == Life::Rebuild ? StepKind::Rebuild : StepKind::First, lives));
    program_.steady = step(StepKind::Steady, std::vector<Life>(passes(), Life::Steady));
    return std::move(program_);
  }

 private:
  std::int64_t bytes_of(TensorIndex t) const { return program_.tensor_bytes[t]; }
  std::int64_t gradient_bytes() const { return w_.gradient_bytes().count; }
  bool power_sgd() const { return ddp_of(plan_).comm_hook == CommHook::PowerSgd; }
  bool finds_unused() const {
    return ddp_of(plan_).find_unused_parameters && !ddp_of(plan_).static_graph;
  }

  // Of a steady step: forward and backward that reduce.
  int passes() const {
    if (round_.batches > 0) return round_.batches;
    return uses_no_sync(plan_) ? 1 : plan_.accumulation_steps;
  }
  // Of a pass, all but the last under no_sync().
  int micro_steps() const {
    return round_.batches > 0 || !uses_no_sync(plan_) ? 1 : plan_.accumulation_steps;
  }

  StepProgram step(StepKind kind, const std::vector<Life>& lives) {
    StepBuilder b(program_, kind, w_, memory_);
    b.set_graphed(w_.cuda_graphs && kind == StepKind::Steady);
    b.set_staging(timed_.host_memory);
    b_ = &b;
    const bool rounds = round_.batches > 0 && kind == StepKind::Steady;
    for (int pass = 0; pass < std::ssize(lives); ++pass) {
      life_ = lives[pass];
      const bool early = life_ == Life::First || life_ == Life::Second;
      if (pass == 0 || life_ == Life::Rebuild) add_buckets(early ? initial_ : rebuilt_);
      gradients_there_ = (!set_to_none_ && life_ != Life::First) || (pass > 0 && !rounds);
      if (pass == 0 && !rounds && gradients_there_) zero_gradients(b, w_, plan_);
      if (lives.size() > 1) b.set_batch(pass);
      if (rounds && gradients_there_) zero_gradients(b, w_, plan_);
      reduced_pass();
      if (rounds) update_(b, pass);
    }
    b.set_batch(-1);
    if (!rounds) update_(b, -1);
    if (ddp_of(plan_).process_group_size > 0)
      for (Op& op : b.step.ops)
        if (is_collective(op.kind)) op.group = 1;
    return std::move(b.step);
  }

  // Forward and backward of micro-steps, and one reduction.
  void reduced_pass() {
    StepBuilder& b = *b_;
    if (ddp_of(plan_).join) notified_ = join_notify(b);
    if (life_ == Life::Rebuild) rebuild();
    if (ddp_of(plan_).broadcast_buffers) buffers_.broadcast(b);
    if (ddp_of(plan_).join) join_announce(b);
    const int micros = micro_steps();
    for (int m = 0; m < micros; ++m) micro_step(m);
    if (micros > 1) b.set_micro(-1);
    finalize();
  }

  // A round reduces within its ranks' subgroup, or not at all.
  bool local() const { return round_.batches > 0 && life_ == Life::Steady; }

  // The buckets from now on; those of passes before stay the step's.
  void add_buckets(const std::vector<std::vector<TensorIndex>>& buckets) {
    std::vector<Bucket>& all = b_->step.buckets;
    base_ = b_->step.next_bucket();
    for (Bucket& bucket : buckets_of(w_, plan_, buckets, compresses()))
      all.push_back(std::move(bucket));
    bucket_of_.assign(w_.tensors.size(), 0);
    for (std::uint32_t k = base_; k < all.size(); ++k)
      for (TensorIndex t : all[k].tensors) bucket_of_[t] = k;
  }

  // Rank 0's assignment wins: indices, then sizes; both read back on the host.
  void rebuild() {
    const std::int64_t bytes[2] = {4 * (std::ssize(w_.tensors) + 1),
                                   4 * (std::ssize(b_->step.buckets) - base_)};
    for (std::uint32_t i = 0; i < 2; ++i) {
      std::uint32_t op = b_->collective(kRebuildBroadcast, i, bytes[i], DType::Int32);
      b_->wait(kRebuildWait, i, op);
    }
  }

  // PowerSGD, in steps behind those that it reduces as they are.
  bool compresses() const { return power_sgd() && life_ == Life::Steady; }

  DType compressed_type() const {
    return ddp_of(plan_).comm_hook == CommHook::Bf16Compress ? DType::BFloat16 : DType::Float16;
  }
  void micro_step(int m) {
    bool last = m + 1 == micro_steps();
    if (micro_steps() > 1) b_->set_micro(m);
    if (ddp_of(plan_).sync_batch_norm)
      norms_.forward(*b_);
    else
      b_->forward(times_);
    if (last && finds_unused()) b_->host(kFindUnused, Cost::Traverse);
    bool accumulates = m > 0 || gradients_there_;
    if (last) begin_reduction();
    for (const Segment& s : timeline_.segments) {
      b_->host_time(s.host);
      if (ddp_of(plan_).sync_batch_norm) norms_.backward(*b_, s.tensor);
      if (s.device.ps > 0) b_->main(kBackward, s.tensor, 0, {.duration = s.device});
      b_->gradient(s.tensor, !accumulates && !ddp_of(plan_).gradient_as_bucket_view);
      if (accumulates)
        b_->main(kAccumulate, s.tensor, bytes_of(s.tensor), {.traffic = 3 * bytes_of(s.tensor)});
      if (last) hook(s.tensor);
    }
    b_->host_time(timeline_.tail_host);
    if (timeline_.tail_device.ps > 0)
      b_->main(kBackwardTail, kNoSubject, 0, {.duration = timeline_.tail_device});
    b_->gradient(StepBuilder::kNoTensor, false);
    if (last && delayed()) reduce_after_backward();
  }

  // static_graph's first iteration only counts hooks and reduces everything after backward.
  bool delayed() const { return ddp_of(plan_).static_graph && life_ == Life::First; }

  void begin_reduction() {
    pending_.clear();
    for (const Bucket& bucket : b_->step.buckets) pending_.push_back(bucket.tensors.size());
    next_ = base_;
    hooked_ = false;
    reduced_.assign(b_->step.buckets.size(), kNoOp);
    bitmap_ = kNoOp;
  }

  void hook(TensorIndex t) {
    if (delayed()) return;
    for (TensorIndex u = 0; !hooked_ && any_unused_ && u < unused_.size(); ++u)
      if (unused_[u]) copy_in(u), mark_ready(u);
    if (!hooked_ && !ddp_of(plan_).divide_by_initial_world_size) join_count(*b_, notified_);
    hooked_ = true;
    copy_in(t);
    mark_ready(t);
  }

  // mul_out(bucket_view, grad, 1 / world): read S, write S, one kernel; zero_() of an unused
  // gradient's view: write S.
  void copy_in(TensorIndex t) {
    if (ddp_of(plan_).batched_grad_copy && !unused_[t]) return;  // with its bucket
    std::int64_t s = bytes_of(t);
    b_->main(kCopyIn, t, s, {.traffic = unused_[t] ? s : 2 * s, .hooks = 1});
  }

  void mark_ready(TensorIndex t) {
    --pending_[bucket_of_[t]];
    while (next_ < pending_.size() && pending_[next_] == 0) launch(next_++);
    if (next_ == pending_.size() && finds_unused()) all_reduce_bitmap();
  }

  void launch(std::uint32_t k) {
    const Bucket bucket = b_->step.buckets[k];
    std::int64_t s = bucket.bytes.count;
    if (sends_nothing(bucket)) return;
    if (ddp_of(plan_).batched_grad_copy)
      copy_in_batched(*b_, k, w_, ddp_of(plan_).comm_hook == CommHook::None);
    if (compresses()) {
      reduced_[k] = reduce_by_power_sgd(*b_, k, power_sgd_parts(w_, bucket.tensors, ddp_of(plan_)),
                                        ddp_of(plan_), stream(0));
      return;
    }
    bool half = bucket.wire_bytes.count != s;
    // Compression: cast (read S, write S/2), divide (read and write S/2); back: read S/2, write S.
    if (half)
      b_->main(kCompress, k, s,
               {.traffic = s + 3 * bucket.wire_bytes.count, .kernels = 2, .divides_half = true});
    else if (divides_itself())
      b_->main(kDivide, k, s, {.traffic = 2 * s});
    reduced_[k] = b_->collective(kAllReduce, k, bucket.wire_bytes.count,
                                 half ? compressed_type() : bucket.dtype);
    if (local()) b_->step.ops[reduced_[k]].group = round_.group;
    if (half)
      reduced_[k] =
          b_->callback(kDecompress, k, s, {.traffic = s + bucket.wire_bytes.count}, reduced_[k]);
    if (ddp_of(plan_).optimizer_in_backward)
      reduced_[k] = update_in_backward(*b_, k, reduced_[k], w_, times_, stream(0));
  }

  bool sends_nothing(const Bucket& bucket) const {
    if (local() && !round_.reduces) return true;
    return ddp_of(plan_).skip_all_reduce_unused_params &&
           std::all_of(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](TensorIndex t) { return unused_[t]; });
  }
  // In a pass of its own, as a Python hook does.
  bool divides_itself() const {
    return ddp_of(plan_).comm_hook != CommHook::None || round_.batches > 0 ||
           (ddp_of(plan_).optimizer_in_backward && !b_->gpu());
  }

  void all_reduce_bitmap() {
    if (bitmap_ == kNoOp)
      bitmap_ =
          b_->collective(kUnusedAllReduce, kNoSubject, 4 * std::ssize(w_.tensors), DType::Int32);
  }

  void reduce_after_backward() {
    if (micro_steps() > 1) b_->set_micro(-1);
    all_reduce_bitmap();
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t) copy_in(t);
    for (std::uint32_t k = base_; k < b_->step.buckets.size(); ++k) launch(k);
  }

  void finalize() {
    StepBuilder& b = *b_;
    if ((finds_unused() || delayed()) && any_unused_) b.wait(kUnusedWait, kNoSubject, bitmap_);
    for (std::uint32_t k = base_; k < reduced_.size(); ++k) {
      // Gradients that were used in backward are copied out as they are.
      const bool updated = ddp_of(plan_).optimizer_in_backward && b.gpu();
      std::uint32_t done = updated ? kNoOp : reduced_[k];
      b.await(kBucketWait, k, done);
      bool awaited = false;
      if (!ddp_of(plan_).gradient_as_bucket_view) {
        const std::vector<TensorIndex> tensors = b.step.buckets[k].tensors;
        for (TensorIndex t : tensors) {
          if (unused_[t]) continue;
          b.main_after(kCopyOut, t, bytes_of(t), {.traffic = 2 * bytes_of(t)},
                       awaited ? kNoOp : done);
          awaited = true;
        }
      }
      if (!awaited) b.before_next_main(done);
    }
    if (ddp_of(plan_).optimizer_in_backward && b.gpu()) await_update(b, reduced_.back());
  }

  const TimedWorkload timed_;
  const Workload& w_;
  const StepTimes& times_;
  const Plan& plan_;
  const DdpRound round_;
  const BatchUpdate& update_;
  std::vector<bool> unused_;
  BackwardTimeline timeline_;
  const DdpBuffers buffers_;
  bool set_to_none_ = true;
  bool any_unused_ = false;
  Program program_;
  const ModelMemory memory_;
  const SyncedNorms norms_;
  std::vector<std::vector<TensorIndex>> initial_;
  std::vector<std::vector<TensorIndex>> rebuilt_;
  // of the step being built
  StepBuilder* b_ = nullptr;
  Life life_ = Life::First;
  bool gradients_there_ = false;  // before the pass
  std::uint32_t base_ = 0;        // the first bucket of the pass
  std::vector<std::uint32_t> bucket_of_;
  std::vector<std::size_t> pending_;
  std::uint32_t next_ = 0;
  bool hooked_ = false;
  std::uint32_t notified_ = kNoOp;  // join's
  std::vector<std::uint32_t> reduced_;
  std::uint32_t bitmap_ = kNoOp;
};

}  // namespace

std::span<const OpWord> ddp_words() {
  static const std::vector<OpWord> words = [] {
    std::vector<OpWord> all(std::begin(kDdpWords), std::end(kDdpWords));
    for (std::span<const OpWord> more : {power_sgd_words(), ddp_option_words(), ddp_buffer_words()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return words;
}

Program lower_on_ddp(const TimedWorkload& workload, const Plan& plan, Steps steps,
                     const UpdateStep& update) {
  return DdpLowering(workload, plan, {}, [&](StepBuilder& b, int) { update(b); }).run(steps);
}

Program lower_rounds_on_ddp(const TimedWorkload& workload, const Plan& plan, Steps steps,
                            const DdpRound& round, const BatchUpdate& update) {
  return DdpLowering(workload, plan, round, update).run(steps);
}

Program lower_ddp(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return lower_on_ddp(workload, plan, steps, [&](StepBuilder& b) {
    ddp_of(plan).optimizer_in_backward ? b.end_update() : b.update(workload.times);
  });
}

}  // namespace ddpsim::systems
