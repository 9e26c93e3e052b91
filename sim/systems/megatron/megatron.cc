// Megatron-LM's DistributedDataParallel, one step without pipeline, tensor or expert parallelism:
//
//   zero one buffer of gradients
//   forward    overlap_param_gather: before the first layer that needs a bucket its all-gather is
//              waited for, and that of the next bucket issued
//   backward   a gradient is added to the buffer; overlap_grad_reduce: of the last micro-step a
//              bucket that is full is checked, scaled and reduced
//   after it   what was not yet reduced is, bucket by bucket; computation waits
//   optimizer  gradients of four bytes, norm, clipping, update of what the rank owns, weights from
//              it; all-gather of weights, unless forward does that
//   the host waits for the update; ranks average the loss
//
// The first step counts the hooks and reduces nothing before its end; it finds its weights whole.
//
// Source: NVIDIA/Megatron-LM (August 2026), megatron/core/distributed/distributed_data_parallel.py
// and param_and_grad_buffer.py; core/optimizer/{optimizer,distrib_optimizer,clip_grads}.py;
// megatron/training/{training,arguments}.py. docs/model.md section 3.
#include "sim/systems/megatron/megatron.h"

#include <algorithm>

#include "sim/systems/base/frame.h"
#include "sim/systems/megatron/plan.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kForwardPart{"fwd/part.",
                              {.phase = Phase::Forward, .of = Of::Number, .in_micro_step = true}};
constexpr OpWord kGatherAhead =
    bucket_word("all_gather/fwd.bucket.", Does::Communicate, Phase::Forward, Operation::AllGather);
constexpr OpWord kNormOfBucket{"norm/bucket.",
                               {.does = Does::Copy, .phase = Phase::Backward, .of = Of::Bucket}};
constexpr OpWord kAwaitNorm{"wait/norm.", {.does = Does::Wait, .of = Of::Bucket}};
constexpr OpWord kScale =
    bucket_word("grad_scale/bucket.", Does::Copy, Phase::Backward, Operation::AllReduce, true);
constexpr OpWord kReduce = bucket_word("allreduce/bucket.", Does::Communicate, Phase::Backward);
constexpr OpWord kScatter = bucket_word("reduce_scatter/bucket.", Does::Communicate,
                                        Phase::Backward, Operation::ReduceScatter);
constexpr OpWord kSingles = update_word("copy_gradients", Does::Copy);
constexpr OpWord kReduceFound = update_word("allreduce/found_inf", Does::Communicate);
constexpr OpWord kNorm = update_word("grad_norm", Does::Compute);
constexpr OpWord kReduceNorm = update_word("allreduce/grad_norm", Does::Communicate);
constexpr OpWord kWeights = update_word("copy_weights", Does::Copy);
constexpr OpWord kGather =
    bucket_word("all_gather/updated.", Does::Communicate, Phase::Update, Operation::AllGather);
constexpr OpWord kAwaitUpdate = update_word("wait/updated", Does::Wait);
constexpr OpWord kReduceLoss = update_word("allreduce/loss", Does::Communicate);
constexpr OpWord kMegatronWords[] = {kForwardPart, kGatherAhead, kNormOfBucket, kAwaitNorm,
                                     kScale,       kReduce,      kScatter,      kSingles,
                                     kReduceFound, kNorm,        kReduceNorm,   kWeights,
                                     kGather,      kAwaitUpdate, kReduceLoss};

// Norm, isnan, and isinf's two.
constexpr std::int32_t kKernelsOfCheck = 4;
// Over single numbers: those that square the norm and take its root, and the coefficient's three.
constexpr std::int32_t kKernelsOfNorm = 5;

// By tensor: the weight of a linear layer that nothing else shares, whose product adds to the
// buffer.
std::vector<bool> fused_tensors(const Workload& w, bool fuses) {
  std::vector<bool> out(w.tensors.size());
  std::vector<bool> embedded(w.tensors.size());
  for (const Layer& l : w.layers)
    for (TensorIndex t : l.tensors) {
      if (l.op.kind == "embedding") embedded[t] = true;
      if (l.op.kind == "linear" && w.tensors[t].elements() == l.op.inputs * l.op.outputs)
        out[t] = fuses;
    }
  for (std::size_t t = 0; t < out.size(); ++t) out[t] = out[t] && !embedded[t];
  return out;
}

class MegatronLowering {
 public:
  MegatronLowering(const TimedWorkload& timed, const Plan& plan)
      : f_(timed, plan, true),
        plan_(megatron_of(plan)),
        ranks_(timed.ranks),
        blocking_on_compute_(plan.pytorch.has(pytorch::Change::BlockingOnTheCallersStream)),
        buffer_(timed.workload, plan_, timed.ranks),
        owned_(buffer_.owned()),
        fused_(fused_tensors(timed.workload, plan_.gradient_accumulation_fusion)) {
    weights_ = f_.w.tensors.front().dtype;
    const bool single = plan_.grad_reduce_in_fp32.value_or(weights_ == DType::BFloat16);
    gradients_ = single ? DType::Float32 : weights_;
    checks_ = plan_.check_for_nan_in_grad.value_or(weights_ != DType::Float16);
    Held& held = f_.program.resident = resident(f_.w, 0, 0);
    held[Holds::Parameters] = buffer_.elements() * size() + f_.w.frozen_bytes().count;
    if (halves()) held[Holds::MasterParameters] = kSingle * owned_.elements;
    held[Holds::OptimizerState] = kSingle * optimizer_copies(f_.w.optimizer) * owned_.elements;
    held[Holds::Buckets] = buffer_.elements() * element_size(gradients_);
  }

  Program run(Steps steps) {
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  std::int64_t size() const { return element_size(weights_); }
  bool halves() const { return size() != kSingle; }
  bool sharded() const { return plan_.use_distributed_optimizer; }
  // False of what a search may ask for and Megatron refuses.
  bool gathers_ahead() const {
    return plan_.overlap_param_gather && sharded() && plan_.overlap_grad_reduce;
  }
  std::uint32_t buckets() const { return static_cast<std::uint32_t>(buffer_.buckets().size()); }
  std::int64_t gradient_bytes(std::uint32_t k) const {
    return buffer_.buckets()[k].padded() * element_size(gradients_);
  }

  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    b_ = &b;
    first_ = kind == StepKind::First;
    for (const MegatronBuffer::Bucket& bucket : buffer_.buckets())
      b.step.buckets.push_back({bucket.tensors,
                                {bucket.elements * size()},
                                {bucket.padded() * element_size(gradients_)},
                                weights_});
    const std::int64_t all = buffer_.elements() * element_size(gradients_);
    b.main(kZeroGrad, kNoSubject, all, {.traffic = all});
    f_.micro_steps(b, [&](int m, bool last) {
      m == 0 && gathers_ahead() && !first_ ? forward_as_gathered()
                                           : static_cast<void>(b.forward(f_.times));
      backward(last);
    });
    for (std::uint32_t k = 0; k < buckets(); ++k) finish_reduction(k);
    optimize();
    return std::move(b.step);
  }

  // A collective that computation waits for.
  std::uint32_t blocking(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                         DType type) {
    const std::uint32_t op = b_->collective(word, subject, bytes, type, blocking_on_compute_);
    if (!blocking_on_compute_) b_->before_next_main(op);
    return op;
  }

  // ---- forward

  // All-gathers go from the last bucket, which has the first layers, to the first.
  void gather(std::uint32_t k) {
    gathered_[k] =
        b_->collective(kGatherAhead, k, buffer_.buckets()[k].padded() * size(), weights_);
  }
  // Before a layer. False: its weights are there.
  bool finish_gathering(std::uint32_t k) {
    if (waited_[k]) return false;
    if (gathered_[k] == kNoOp) gather(k);
    b_->before_next_main(gathered_[k]);
    waited_[k] = true;
    if (k > 0 && gathered_[k - 1] == kNoOp) gather(k - 1);
    return true;
  }

  void forward_as_gathered() {
    gathered_.assign(buckets(), kNoOp);
    waited_.assign(buckets(), false);
    std::uint32_t part = 0;
    std::size_t from = 0;
    Stretch s;
    for (std::size_t l = 0; l < f_.w.layers.size(); ++l) {
      const bool waits = std::any_of(f_.w.layers[l].tensors.begin(), f_.w.layers[l].tensors.end(),
                                     [&](TensorIndex t) { return !waited_[buffer_.bucket_of(t)]; });
      if (waits && l > from) {
        b_->forward(kForwardPart, part++, s, from, l);
        from = l;
        s = {};
      }
      std::vector<TensorIndex> tensors = f_.w.layers[l].tensors;
      std::sort(tensors.begin(), tensors.end());
      for (TensorIndex t : tensors) finish_gathering(buffer_.bucket_of(t));
      s.add(f_.times.layers[l].forward, f_.times.layers[l].host_forward);
    }
    b_->forward(kForwardPart, part, s, from, f_.w.layers.size());
  }

  // ---- backward

  void backward(bool last) {
    const bool hooks = last && plan_.overlap_grad_reduce && !first_;
    if (last) {
      missing_.clear();
      for (const MegatronBuffer::Bucket& bucket : buffer_.buckets())
        missing_.push_back(bucket.tensors.size());
      reduced_.assign(buckets(), kNoOp);
    }
    for (const Segment& s : f_.timeline.segments) {
      b_->host_time(s.host);
      if (s.device.ps > 0) b_->main(kBackward, s.tensor, 0, {.duration = s.device});
      b_->gradient(s.tensor, !fused_[s.tensor]);
      if (!fused_[s.tensor]) accumulate(s.tensor);
      const std::uint32_t k = buffer_.bucket_of(s.tensor);
      if (hooks && --missing_[k] == 0) reduced_[k] = start_reduction(k, false);
    }
    b_->host_time(f_.timeline.tail_host);
    if (f_.timeline.tail_device.ps > 0)
      b_->main(kBackwardTail, kNoSubject, 0, {.duration = f_.timeline.tail_device});
    b_->gradient(StepBuilder::kNoTensor, false);
  }

  void accumulate(TensorIndex t) {
    const std::int64_t n = f_.w.tensors[t].elements();
    b_->main(kAccumulate, t, n * size(), {.traffic = n * (2 * element_size(gradients_) + size())});
    b_->release(Holds::Gradients, n * size());
  }

  std::uint32_t start_reduction(std::uint32_t k, bool blocks) {
    const std::int64_t bytes = gradient_bytes(k);
    if (checks_) {
      const std::uint32_t norm =
          b_->main(kNormOfBucket, k, bytes, {.traffic = bytes, .kernels = kKernelsOfCheck});
      b_->wait(kAwaitNorm, k, norm);
    }
    if (!plan_.average_in_collective && ranks_ > 1)
      b_->main(kScale, k, bytes, {.traffic = 2 * bytes});
    return b_->collective(sharded() ? kScatter : kReduce, k, bytes, gradients_,
                          blocks && blocking_on_compute_);
  }

  void finish_reduction(std::uint32_t k) {
    if (reduced_[k] == kNoOp) reduced_[k] = start_reduction(k, !plan_.overlap_grad_reduce);
    b_->before_next_main(reduced_[k]);
  }

  // ---- the optimizer, of what this rank owns

  void optimize() {
    const std::int64_t n = owned_.elements;
    const std::int64_t parts = owned_.parts;
    const std::int64_t lists =
        optimizer_kernels(f_.w.optimizer, owned_.parts) / optimizer_passes(f_.w.optimizer);
    if (halves() && gradients_ != DType::Float32) {
      b_->main(kSingles, kNoSubject, kSingle * n,
               {.traffic = (element_size(gradients_) + kSingle) * n, .kernels = parts});
      b_->allocate(Holds::Gradients, kSingle * n);
    }
    if (weights_ == DType::Float16) {
      std::uint32_t found = b_->main(kUnscale, kNoSubject, kSingle * n,
                                     {.traffic = 2 * kSingle * n, .kernels = lists});
      if (sharded()) found = blocking(kReduceFound, kNoSubject, kSingle, DType::Float32);
      b_->wait(kAwaitFinite, kNoSubject, found);
    }
    if (f_.w.loop.clip_grad_norm) {
      b_->main(kNorm, kNoSubject, kSingle * n,
               {.traffic = kSingle * n, .kernels = lists + kKernelsOfNorm});
      if (sharded()) blocking(kReduceNorm, kNoSubject, kSingle, DType::Float32);
      b_->main(kClip, kNoSubject, kSingle * n, {.traffic = 2 * kSingle * n, .kernels = lists});
    }
    std::uint32_t last = update(n);
    if (halves())
      last = b_->main(kWeights, kNoSubject, size() * n,
                      {.traffic = (kSingle + size()) * n, .kernels = parts});
    b_->release_gradients();
    if (sharded() && !gathers_ahead())
      for (std::uint32_t k = 0; k < buckets(); ++k)
        last = blocking(kGather, k, buffer_.buckets()[k].padded() * size(), weights_);
    b_->wait(kAwaitUpdate, kNoSubject, last);
    last =
        b_->collective(kReduceLoss, kNoSubject, 2 * kSingle, DType::Float32, blocking_on_compute_);
    if (f_.w.loop.loss_item) b_->wait(kReadLoss, kNoSubject, last);
  }

  std::uint32_t update(std::int64_t n) {
    const Optimizer& o = f_.w.optimizer;
    if (f_.times.host) b_->host_time(f_.times.host->optimizer);
    const std::int64_t traffic = optimizer_traffic(o, n);
    const std::uint32_t op = b_->main(kOptimizer, kNoSubject, kSingle * n,
                                      {.traffic = std::max<std::int64_t>(1, traffic),
                                       .kernels = optimizer_kernels(o, owned_.parts)});
    const std::int64_t beside = kSingle * optimizer_temporaries(o, n);
    b_->allocate(Holds::Temporaries, beside);
    b_->release(Holds::Temporaries, beside);
    return op;
  }

  Frame f_;
  const MegatronPlan& plan_;
  const int ranks_;
  const bool blocking_on_compute_;
  const MegatronBuffer buffer_;
  const MegatronBuffer::Owned owned_;
  const std::vector<bool> fused_;
  DType weights_ = DType::Float32;
  DType gradients_ = DType::Float32;  // as they are accumulated and reduced
  bool checks_ = true;
  // of the step being built
  StepBuilder* b_ = nullptr;
  bool first_ = false;
  std::vector<std::uint32_t> gathered_;  // by bucket: its all-gather in this forward
  std::vector<bool> waited_;             // and computation has waited for it
  std::vector<std::size_t> missing_;     // gradients, in the last backward
  std::vector<std::uint32_t> reduced_;
};

}  // namespace

std::span<const OpWord> megatron_words() {
  return kMegatronWords;
}

Program lower_megatron(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return MegatronLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
