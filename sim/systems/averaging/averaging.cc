// Plain gradient averaging: forward, backward, then all_reduce(p.grad) and p.grad /= N for every
// parameter in registration order, or for one flat copy of all of them. Blocking: each collective
// is waited for before the next (Gloo: on the host; NCCL: in stream order).
#include "sim/systems/averaging/averaging.h"

#include "sim/systems/averaging/plan.h"
#include "sim/systems/base/frame.h"

namespace ddpsim::systems {
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
      : f_(timed, plan, true), host_memory_(timed.host_memory) {}

  Program run(Steps steps) {
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    b.set_graphed(f_.w.cuda_graphs && kind == StepKind::Steady);
    b.set_staging(host_memory_);
    const bool grads_exist = f_.keeps_gradients(kind);
    if (grads_exist) zero_gradients(b, f_.w, f_.plan);
    f_.micro_steps(b, [&](int m, bool) {
      b.forward(f_.times);
      f_.backward(b, m > 0 || grads_exist, [](TensorIndex) {});
    });
    if (averaging_of(f_.plan).granularity == Granularity::Flat)
      reduce_flat(b);
    else if (averaging_of(f_.plan).async_op)
      reduce_async(b);
    else
      reduce_blocking(b);
    b.update(f_.times);
    return std::move(b.step);
  }

  bool on_current_stream() const {
    return !averaging_of(f_.plan).async_op &&
           f_.plan.pytorch.has(pytorch::Change::BlockingOnTheCallersStream);
  }

  void divide(StepBuilder& b, TensorIndex t, std::uint32_t reduced) {
    b.await(kGradWait, t, reduced);
    b.main_after(kGradDivide, t, f_.bytes_of(t), {.traffic = 2 * f_.bytes_of(t)}, reduced);
  }

  void reduce_blocking(StepBuilder& b) {
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t) {
      if (f_.unused[t]) continue;
      divide(b, t,
             b.collective(kGradAllReduce, t, f_.bytes_of(t), f_.w.tensors[t].dtype,
                          on_current_stream()));
    }
  }

  void reduce_async(StepBuilder& b) {
    std::vector<std::uint32_t> reduced(f_.w.tensors.size(), kNoOp);
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t)
      if (!f_.unused[t])
        reduced[t] = b.collective(kGradAllReduce, t, f_.bytes_of(t), f_.w.tensors[t].dtype);
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t)
      if (!f_.unused[t]) divide(b, t, reduced[t]);
  }

  void reduce_flat(StepBuilder& b) {
    Bucket flat;
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t)
      if (!f_.unused[t]) flat.tensors.push_back(t), flat.bytes.count += f_.bytes_of(t);
    flat.wire_bytes = flat.bytes;
    const std::int64_t kernels = std::ssize(flat.tensors);
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

  Frame f_;
  const std::optional<HostMemory> host_memory_;
};

}  // namespace

std::span<const OpWord> averaging_words() {
  return kAveragingWords;
}

Program lower_averaging(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return AveragingLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
