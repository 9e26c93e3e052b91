// Plain gradient averaging: forward, backward, then all_reduce(p.grad) and p.grad /= N for every
// parameter in registration order, or for one flat copy of all of them. Blocking: each collective
// is waited for before the next (Gloo: on the host; NCCL: in stream order).
#include "sim/strategy/builder.h"
#include "sim/strategy/lower.h"

namespace ddpsim::strategy {
namespace {

constexpr OpWord kGradAllReduce{"allreduce/",
                                {.does = Does::Communicate,
                                 .phase = Phase::Backward,
                                 .of = Of::Tensor,
                                 .touches = Touches::Tensor}};
constexpr OpWord kGradWait{"wait/",
                           {.does = Does::Wait, .phase = Phase::Reduced, .of = Of::Tensor}};
constexpr OpWord kGradDivide{"div/",
                             {.does = Does::Copy,
                              .phase = Phase::Reduced,
                              .of = Of::Tensor,
                              .touches = Touches::Tensor,
                              .divides = true}};
// One copy of all gradients: bucket 0.
constexpr OpWord kFlattenGrads{"flatten/grads", {.does = Does::Copy, .touches = Touches::Bucket}};
constexpr OpWord kFlatAllReduce{
    "allreduce/flat",
    {.does = Does::Communicate, .phase = Phase::Backward, .touches = Touches::Bucket}};
constexpr OpWord kFlatWait{"wait/flat", {.does = Does::Wait, .phase = Phase::Reduced}};
constexpr OpWord kFlatDivide{"div/flat",
                             {.does = Does::Copy, .phase = Phase::Reduced, .divides = true}};
constexpr OpWord kUnflattenGrads{
    "unflatten/grads", {.does = Does::Copy, .phase = Phase::Reduced, .touches = Touches::Bucket}};
constexpr OpWord kAveragingWords[] = {kGradAllReduce, kGradWait, kGradDivide, kFlattenGrads,
                                      kFlatAllReduce, kFlatWait, kFlatDivide, kUnflattenGrads};

class AveragingLowering {
 public:
  AveragingLowering(const TimedWorkload& timed, const Plan& plan)
      : w_(timed.workload),
        times_(timed.times),
        plan_(plan),
        unused_(unused_tensors(w_, plan)),
        timeline_(backward_timeline(timed, unused_)),
        program_(empty_program(timed, plan)),
        memory_(w_, false, timed.winograd),
        host_memory_(timed.host_memory) {
    set_to_none_ = plan.set_to_none.value_or(plan.pytorch.has(pytorch::Change::ZeroGradSetsToNone));
    program_.resident = resident(w_, !set_to_none_);
    program_.activations_known = memory_.known();
  }

  Program run(Steps steps) {
    if (steps == Steps::All) program_.warmup.push_back(step(StepKind::First));
    program_.steady = step(StepKind::Steady);
    return std::move(program_);
  }

 private:
  StepProgram step(StepKind kind) {
    StepBuilder b(program_, kind, w_, memory_);
    b.set_graphed(w_.cuda_graphs && kind == StepKind::Steady);
    b.set_staging(host_memory_);
    bool grads_exist = !set_to_none_ && kind != StepKind::First;
    if (grads_exist) zero_gradients(b, w_, plan_);
    for (int m = 0; m < plan_.accumulation_steps; ++m) {
      if (plan_.accumulation_steps > 1) b.set_micro(m);
      b.forward(times_);
      for (const Segment& s : timeline_.segments) {
        b.host_time(s.host);
        if (s.device.ps > 0) b.main(kBackward, s.tensor, 0, {.duration = s.device});
        b.gradient(s.tensor, m == 0 && !grads_exist);
        if (m > 0 || grads_exist)
          b.main(kAccumulate, s.tensor, bytes(s.tensor), {.traffic = 3 * bytes(s.tensor)});
      }
      b.host_time(timeline_.tail_host);
      if (timeline_.tail_device.ps > 0)
        b.main(kBackwardTail, kNoSubject, 0, {.duration = timeline_.tail_device});
      b.gradient(StepBuilder::kNoTensor, false);
    }
    b.set_micro(-1);
    if (plan_.granularity == Granularity::Flat)
      reduce_flat(b);
    else if (plan_.async_op)
      reduce_async(b);
    else
      reduce_blocking(b);
    b.update(times_);
    return std::move(b.step);
  }

  std::int64_t bytes(TensorIndex t) const { return program_.tensor_bytes[t]; }
  bool on_current_stream() const {
    return !plan_.async_op && plan_.pytorch.has(pytorch::Change::BlockingOnTheCallersStream);
  }

  void divide(StepBuilder& b, TensorIndex t, std::uint32_t reduced) {
    b.await(kGradWait, t, reduced);
    b.main_after(kGradDivide, t, bytes(t), {.traffic = 2 * bytes(t)}, reduced);
  }

  void reduce_blocking(StepBuilder& b) {
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t) {
      if (unused_[t]) continue;
      divide(b, t,
             b.collective(kGradAllReduce, t, bytes(t), w_.tensors[t].dtype, on_current_stream()));
    }
  }

  void reduce_async(StepBuilder& b) {
    std::vector<std::uint32_t> reduced(w_.tensors.size(), kNoOp);
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t)
      if (!unused_[t]) reduced[t] = b.collective(kGradAllReduce, t, bytes(t), w_.tensors[t].dtype);
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t)
      if (!unused_[t]) divide(b, t, reduced[t]);
  }

  void reduce_flat(StepBuilder& b) {
    Bucket flat;
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t)
      if (!unused_[t]) flat.tensors.push_back(t), flat.bytes.count += bytes(t);
    flat.wire_bytes = flat.bytes;
    auto kernels = static_cast<std::int32_t>(flat.tensors.size());
    std::int64_t total = flat.bytes.count;
    b.step.buckets.push_back(std::move(flat));
    b.main(kFlattenGrads, 0, total, {.traffic = 2 * total});
    b.allocate(Holds::Buckets, total);
    std::uint32_t reduced =
        b.collective(kFlatAllReduce, 0, total, DType::Float32, on_current_stream());
    b.await(kFlatWait, 0, reduced);
    b.main_after(kFlatDivide, 0, total, {.traffic = 2 * total}, reduced);
    b.main(kUnflattenGrads, 0, total, {.traffic = 2 * total, .kernels = kernels});
    b.release(Holds::Buckets, total);
  }

  const Workload& w_;
  const StepTimes& times_;
  const Plan& plan_;
  std::vector<bool> unused_;
  BackwardTimeline timeline_;
  Program program_;
  const ModelMemory memory_;
  const std::optional<HostMemory> host_memory_;
  bool set_to_none_ = true;
};

}  // namespace

std::span<const OpWord> averaging_words() {
  return kAveragingWords;
}

Program lower_averaging(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return AveragingLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::strategy
