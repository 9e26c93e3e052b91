// PyTorch nn.DataParallel over G devices of one host: one process, in which device 0, the master,
// has the model, the loss and the optimizer. Each forward and backward, as the master has them:
//
//   scatter    the host parts the batch
//   replicate  of each group of weights: a flat copy on the master, a broadcast to all
//   forward    one thread a replica, under one interpreter lock: G replicas' host time
//   gather     every replica's output to the master; the loss of the whole batch, there
//   backward   of the loss; its gradient to the replicas; theirs, in one thread a device
//   reduce     when all gradients of all replicas are there: of each group a flat copy on every
//              device, and their sum on the master
//
// and then the optimizer, on the master. A Program is every rank's; this one is the master's, and
// the replicas go through it, too: they compute as long in forward and backward, and what the
// master does alone they wait for. Everything is on the devices' current streams.
//
// Source: PyTorch 1.13 and 2.7, torch/nn/parallel/{data_parallel,replicate,parallel_apply,
// scatter_gather,_functions,comm}.py, torch/csrc/cuda/comm.cpp. docs/model.md section 3.
#include "sim/systems/data_parallel/data_parallel.h"

#include <algorithm>
#include <array>
#include <map>

#include "sim/systems/base/frame.h"
#include "sim/units/by.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kDpScatter{"scatter/inputs",
                            {.does = Does::Host, .phase = Phase::Forward, .in_micro_step = true}};
constexpr OpWord kDpFlattenWeights = bucket_word("flatten/weights.", Does::Copy, Phase::Forward);
constexpr OpWord kDpBroadcastWeights =
    bucket_word("broadcast/weights.", Does::Communicate, Phase::Forward, Operation::Broadcast);
constexpr OpWord kDpFlattenBuffers{
    "flatten/replica_buffers.",
    {.does = Does::Copy, .phase = Phase::Forward, .of = Of::Number, .in_micro_step = true}};
constexpr OpWord kDpBroadcastBuffers{"broadcast/replica_buffers.",
                                     {.does = Does::Communicate,
                                      .phase = Phase::Forward,
                                      .of = Of::Number,
                                      .operation = Operation::Broadcast,
                                      .in_micro_step = true}};
constexpr OpWord kDpGather{"gather/outputs",
                           {.does = Does::Communicate,
                            .phase = Phase::Forward,
                            .operation = Operation::Reduce,
                            .in_micro_step = true}};
constexpr OpWord kDpLoss{"loss", {.phase = Phase::Forward, .in_micro_step = true}};
constexpr OpWord kDpLossBackward{"loss_backward",
                                 {.phase = Phase::Backward, .in_micro_step = true}};
constexpr OpWord kDpScatterGradient{"scatter/output_gradient",
                                    {.does = Does::Communicate,
                                     .phase = Phase::Backward,
                                     .operation = Operation::Broadcast,
                                     .in_micro_step = true}};
constexpr OpWord kDpFlattenGradients =
    bucket_word("flatten/gradients.", Does::Copy, Phase::Backward);
constexpr OpWord kDpReduce =
    bucket_word("reduce/gradients.", Does::Communicate, Phase::Backward, Operation::Reduce);
constexpr OpWord kDataParallelWords[] = {
    kDpScatter, kDpFlattenWeights, kDpBroadcastWeights, kDpFlattenBuffers,  kDpBroadcastBuffers,
    kDpGather,  kDpLoss,           kDpLossBackward,     kDpScatterGradient, kDpFlattenGradients,
    kDpReduce};

constexpr std::int64_t kCoalesced = 10 * kMiB;
constexpr std::int64_t kTensorsOfFlatCopy = 128;  // of a launch of torch.cat

// As they are replicated; frozen ones are taken to be registered after the others.
std::vector<Tensor> all_parameters(const Workload& w) {
  std::vector<Tensor> all = w.tensors;
  all.insert(all.end(), w.frozen.begin(), w.frozen.end());
  return all;
}

class DataParallelLowering {
 public:
  DataParallelLowering(const TimedWorkload& timed, const Plan& plan)
      : f_(timed, plan),
        replicas_(timed.ranks),
        weights_(coalesced_groups(all_parameters(f_.w))),
        buffers_(coalesced_groups(f_.w.buffers)),
        loss_(f_.times.layers.size() == f_.w.layers.size() ? first_loss_layer(f_.w)
                                                           : f_.w.layers.size()),
        output_(loss_ < f_.w.layers.size()
                    ? static_cast<std::int64_t>(output_bytes(f_.w) * f_.w.batch)
                    : 0) {
    name_frozen(f_.program, f_.w);
    for (std::size_t l = loss_; l < f_.w.layers.size(); ++l) {
      loss_forward_.add(f_.times.layers[l].forward * replicas_, f_.times.layers[l].host_forward);
      loss_backward_ += f_.times.layers[l].backward;
      loss_host_backward_ += f_.times.layers[l].host_backward;
    }
  }

  Program run(Steps steps) {
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  bool parallel() const { return replicas_ > 1; }

  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    b_ = &b;
    last_ = kNoOp;
    exists_ = f_.keeps_gradients(kind);
    if (exists_) zero_gradients(b, f_.w, f_.plan);
    f_.micro_steps(b, [&](int m, bool) {
      if (parallel()) replicate();
      forward();
      backward(m);
      if (parallel()) reduce(m);
    });
    b.update(f_.times);
    return std::move(b.step);
  }

  // ---- forward

  // Of what is not summed: its type is never asked.
  static DType type_of_bytes(std::int64_t bytes) {
    return bytes % 4 == 0 ? DType::Int32 : DType::UInt8;
  }

  // On the current stream; NCCL launches it on every device, from this one thread.
  void collective(const OpWord& word, std::uint32_t subject, std::int64_t bytes, DType type) {
    const std::uint32_t op = b_->collective(word, subject, bytes, type, true);
    b_->step.ops[op - 1].kernels = replicas_ - 1;  // its launch
    b_->add_dep(op, last_);                        // it is ready when that has ended
    last_ = op;
  }

  // torch.cat of the group; of one tensor it is that tensor.
  bool flatten(const OpWord& word, std::uint32_t subject, std::int64_t bytes, std::size_t tensors) {
    if (tensors < 2) return false;
    const std::int64_t n = tensors;
    last_ = b_->main(
        word, subject, bytes,
        {.traffic = 2 * bytes, .kernels = (n + kTensorsOfFlatCopy - 1) / kTensorsOfFlatCopy});
    b_->allocate(Holds::Buckets, bytes);
    return true;
  }

  std::uint32_t add_bucket(const std::vector<TensorIndex>& tensors) {
    Bucket bucket;
    bucket.tensors = tensors;
    bucket.dtype = f_.w.parameter(tensors.front()).dtype;
    for (TensorIndex t : tensors) bucket.bytes.count += f_.bytes_of(t);
    bucket.wire_bytes = bucket.bytes;
    b_->step.buckets.push_back(std::move(bucket));
    return b_->step.next_bucket() - 1;
  }

  void replicate() {
    const std::uint32_t scatter = b_->host(kDpScatter, Cost::Launch);
    b_->step.ops[scatter].kernels = replicas_;
    for (const auto& group : weights_) {
      const std::uint32_t k = add_bucket(group);
      const Bucket bucket = b_->step.buckets[k];
      const std::int64_t bytes = bucket.bytes.count;
      const bool flat = flatten(kDpFlattenWeights, k, bytes, group.size());
      collective(kDpBroadcastWeights, k, bytes, bucket.dtype);
      if (flat) b_->release(Holds::Buckets, bytes);
    }
    for (std::uint32_t g = 0; g < buffers_.size(); ++g) {
      std::int64_t bytes = 0;
      for (TensorIndex t : buffers_[g]) bytes += f_.w.buffers[t].bytes().count;
      const bool flat = flatten(kDpFlattenBuffers, g, bytes, buffers_[g].size());
      collective(kDpBroadcastBuffers, g, bytes, type_of_bytes(bytes));
      if (flat) b_->release(Holds::Buckets, bytes);
    }
  }

  void forward() {
    Stretch s;
    if (loss_ < f_.w.layers.size()) {
      for (std::size_t l = 0; l < loss_; ++l)
        s.add(f_.times.layers[l].forward, f_.times.layers[l].host_forward * replicas_);
    } else {
      s = forward_of(f_.times);
      s.host = s.host * replicas_;
      s.head = std::max(s.head, s.host - s.device);
    }
    last_ = b_->forward(kForward, kNoSubject, s, 0, loss_);
    if (loss_ == f_.w.layers.size()) return;
    // G - 1 copies, one after another, into one tensor: what a reduction of so many bytes moves
    // into the master.
    if (parallel() && output_ > 0) {
      const std::int64_t bytes = (replicas_ - 1) * output_;
      collective(kDpGather, kNoSubject, bytes, type_of_bytes(bytes));
      b_->allocate(Holds::Activations, replicas_ * output_);
    }
    b_->host_time(loss_forward_.head);
    last_ = b_->main(kDpLoss, kNoSubject, 0, {.duration = loss_forward_.device});
    b_->host_time(loss_forward_.host - loss_forward_.head);
    LayersMemory m = f_.memory.forward(loss_, f_.w.layers.size());
    b_->activations({m.change * replicas_, m.most * replicas_});
  }

  // ---- backward

  void backward(int micro) {
    if (loss_ < f_.w.layers.size()) {
      b_->host_time(loss_host_backward_);
      last_ = b_->main(kDpLossBackward, kNoSubject, 0, {.duration = loss_backward_ * replicas_});
      const LayersMemory m = f_.memory.backward(loss_, f_.w.layers.size());
      b_->activations({m.change * replicas_, m.most * replicas_});
      if (parallel() && output_ > 0) {
        const std::int64_t bytes = (replicas_ - 1) * output_;
        collective(kDpScatterGradient, kNoSubject, bytes, type_of_bytes(bytes));
        b_->release(Holds::Activations, replicas_ * output_);
      }
    }
    Duration device = loss_backward_;
    Duration host = loss_host_backward_;
    for (const Segment& s : f_.timeline.segments) {
      // The loss has no parameters: its time is in that of the first gradient.
      const Duration d = std::max(Duration{}, s.device - device);
      b_->host_time(std::max(Duration{}, s.host - host));
      device = std::max(Duration{}, device - s.device);
      host = std::max(Duration{}, host - s.host);
      if (d.ps > 0) last_ = b_->main(kBackward, s.tensor, 0, {.duration = d});
      const bool accumulates = micro > 0 || exists_;
      b_->gradient(s.tensor, parallel() || !accumulates);
      if (!parallel() && accumulates) accumulate(s.tensor);
    }
    b_->host_time(f_.timeline.tail_host);
    if (f_.timeline.tail_device.ps > 0)
      last_ = b_->main(kBackwardTail, kNoSubject, 0, {.duration = f_.timeline.tail_device});
    b_->gradient(StepBuilder::kNoTensor, false);
  }

  void accumulate(TensorIndex t) { last_ = f_.accumulate(*b_, t); }

  // All parameters come out of one node of autograd, which waits for every gradient of every
  // replica; of a parameter without one, a frozen one too, it sums zeros (Broadcast.backward; their
  // sum is nobody's gradient).
  void reduce(int micro) {
    const bool accumulates = micro > 0 || exists_;
    std::int64_t own = 0;  // the master's replica's, which go when all are summed
    for (const Segment& s : f_.timeline.segments) own += f_.bytes_of(s.tensor);
    std::int64_t summed = 0;
    for (const auto& group : weights_) {
      const std::uint32_t k = add_bucket(group);
      const Bucket bucket = b_->step.buckets[k];
      const std::int64_t bytes = bucket.bytes.count;
      const bool flat = flatten(kDpFlattenGradients, k, bytes, group.size());
      collective(kDpReduce, k, bytes, bucket.dtype);
      b_->allocate(Holds::Gradients, bytes);
      if (flat) b_->release(Holds::Buckets, bytes);
      summed += bytes;
    }
    b_->release(Holds::Gradients, own);
    const std::int64_t nobodys = f_.w.frozen_bytes().count;
    b_->release(Holds::Gradients, nobodys);
    summed -= nobodys;
    if (!accumulates) return;
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t) accumulate(t);
    b_->release(Holds::Gradients, summed);
  }

  Frame f_;
  const int replicas_;
  const std::vector<std::vector<TensorIndex>> weights_;
  const std::vector<std::vector<TensorIndex>> buffers_;
  const std::size_t loss_;     // its first layer
  const std::int64_t output_;  // bytes that a replica returns
  Stretch loss_forward_;       // of the whole batch
  Duration loss_backward_;     // of a replica's part
  Duration loss_host_backward_;
  // of the step being built
  StepBuilder* b_ = nullptr;
  bool exists_ = false;         // a gradient, from the step before
  std::uint32_t last_ = kNoOp;  // on the compute stream
};

bool is_loss(const Layer& l) {
  return l.op.kind.rfind("cross_entropy", 0) == 0;
}

}  // namespace

std::vector<std::vector<TensorIndex>> coalesced_groups(const std::vector<Tensor>& tensors) {
  // A std::map by type: what is left comes in the order of c10::ScalarType.
  constexpr By<DType, int, kDTypes> kScalarType{6, 5, 15, 7, 4, 3, 0, 11};
  struct Group {
    std::vector<TensorIndex> tensors;
    std::int64_t bytes = 0;
  };
  std::map<int, Group> open;
  std::vector<std::vector<TensorIndex>> out;
  for (TensorIndex t = 0; t < tensors.size(); ++t) {
    Group& g = open[kScalarType[tensors[t].dtype]];
    g.tensors.push_back(t);
    g.bytes += tensors[t].bytes().count;
    if (g.bytes < kCoalesced) continue;
    out.push_back(std::move(g.tensors));
    g = {};
  }
  for (auto& [type, left] : open)
    if (!left.tensors.empty()) out.push_back(std::move(left.tensors));
  return out;
}

std::size_t first_loss_layer(const Workload& w) {
  std::size_t first = w.layers.size();
  while (first > 0 && is_loss(w.layers[first - 1])) --first;
  return first;
}

double output_bytes(const Workload& w) {
  const bool halves = w.precision == Precision::Fp16 || w.precision == Precision::Bf16;
  const std::size_t mode = !halves ? 0 : w.casting == Casting::Autocast ? 1 : 2;
  double bytes = 0;
  for (std::size_t l = first_loss_layer(w); l < w.layers.size(); ++l) {
    if (!w.layers[l].memory) return 0;
    // A loss's own output, log probabilities, is as large as what it reads; one that works in
    // single precision reads halves all the same.
    const bool casts = w.layers[l].op.kind == "cross_entropy_single" && mode > 0;
    bytes += w.layers[l].memory->makes[mode] / (casts ? 2 : 1);
  }
  return bytes;
}

std::span<const OpWord> data_parallel_words() {
  return kDataParallelWords;
}

Program lower_data_parallel(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return DataParallelLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
