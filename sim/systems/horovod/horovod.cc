// Horovod's DistributedOptimizer over PyTorch. A hook casts the gradient where it is compressed and
// requests its reduction; a background thread of each rank wakes in cycles, and what every rank has
// requested is fused (fusion.h). synchronize() waits on the host until all has come back, then the
// optimizer runs.
//
//   GPU   the thread launches and goes on: a copy of all into the fusion buffer, NCCL's all-reduce
//         (which averages), a copy back; one gradient by itself stays where it is
//   CPU   the thread copies, reduces, scales and copies back before its next cycle
//
// horovod_reductions.cc has what it does in detail, and in other ways. With Adasum a hook updates
// its parameter and requests the reduction of the change, which is applied after synchronize().
//
// Source: horovod 0.28.1: horovod/torch/optimizer.py, horovod/common/operations.cc,
// ops/nccl_operations.cc, ops/gpu_operations.cc, ops/gloo_operations.cc; version.h says where other
// releases differ. docs/model.md section 3.
#include "sim/systems/horovod/horovod.h"

#include <algorithm>

#include "sim/systems/base/frame.h"
#include "sim/systems/horovod/plan.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kCompressTensor{
    "compress/",
    {.does = Does::Copy, .phase = Phase::Backward, .of = Of::Tensor, .touches = Touches::Tensor}};
constexpr OpWord kRequest{"request/",
                          {.does = Does::Request,
                           .phase = Phase::Backward,
                           .of = Of::Tensor,
                           .touches = Touches::Tensor}};
constexpr OpWord kSynchronize{
    "synchronize", {.does = Does::Wait, .phase = Phase::Reduced, .touches = Touches::Everything}};
constexpr OpWord kDecompressTensor{
    "decompress/",
    {.does = Does::Copy, .phase = Phase::Reduced, .of = Of::Tensor, .touches = Touches::Tensor}};
// Adasum's optimizer: a hook updates its parameter and requests the reduction of what that changed.
constexpr OpWord adasum_word(const char* name, Does does, Phase phase) {
  return {name, {.does = does, .phase = phase, .of = Of::Tensor, .touches = Touches::Tensor}};
}
constexpr OpWord kAdasumStart = adasum_word("adasum_start/", Does::Copy, Phase::Backward);
constexpr OpWord kAdasumStep = adasum_word("adasum_step/", Does::Compute, Phase::Update);
constexpr OpWord kAdasumDelta = adasum_word("adasum_delta/", Does::Copy, Phase::Backward);
constexpr OpWord kAdasumApply = adasum_word("adasum_apply/", Does::Copy, Phase::Reduced);
// Asynchronous completion: the device waits where the host does not.
constexpr OpWord kReducedOnDevice{
    "reduced", {.does = Does::Wait, .phase = Phase::Reduced, .touches = Touches::Everything}};
// What DistributedOptimizer's hook takes of a CPU's rank, of one gradient: Python, to the request
// in the queue. Measured on one rank, whose thread never waits: calib/horovod-runs/hook.
constexpr Duration kHook{75'000'000};

constexpr OpWord kHorovodOptimizerWords[] = {kCompressTensor,   kRequest,     kSynchronize,
                                             kDecompressTensor, kAdasumStart, kAdasumStep,
                                             kAdasumDelta,      kAdasumApply, kReducedOnDevice};

// Its streams have the highest priority (ops/gpu_operations.cc): NCCL's kernel waits for thread
// blocks of the one that runs, not for all of it. Between next to nothing and the whole kernel.
constexpr double kBlockOfKernel = 0.5;

constexpr int kBatchedCopies = 160;    // cuda_kernels.h BATCHED_D2D_CAPACITY
constexpr std::int64_t kPadding = 16;  // BATCHED_D2D_PADDING

class HorovodLowering {
 public:
  HorovodLowering(const TimedWorkload& timed, const Plan& plan) : f_(timed, plan, true) {
    f_.program.resident[Holds::Buckets] = knobs().fusion_threshold;
    f_.program.worker_threads = 1;
    f_.program.kernel = scale(f_.program.kernel, kBlockOfKernel);
    if (knobs().adasum) f_.program.resident[Holds::Parameters] *= 2;  // _starting_models
    if (gpu()) f_.program.streams = {"fusion"};
    for (std::int64_t k = 1; gpu() && k < knobs().num_nccl_streams; ++k)
      f_.program.streams.push_back("nccl_" + std::to_string(k));
    f_.program.groups = horovod_groups(plan, timed.ranks, timed.per_host);
    f_.program.coordination = coordination(timed);
    // Words of what is made while it runs, so that all steps know them.
    f_.program.words.push_back(kLaunch.name);
    for (const OpWord& word : horovod_reduction_words()) f_.program.words.push_back(word.name);
  }

  Program run(Steps steps) {
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  const HorovodPlan& knobs() const { return horovod_of(f_.plan); }
  bool gpu() const { return f_.program.device == DeviceKind::Gpu; }

  Coordination coordination(const TimedWorkload& timed) const {
    Coordination c;
    c.tensors.resize(f_.w.tensors.size());
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t) {
      DType type = wire_type(t);
      c.tensors[t] = {f_.w.tensors[t].elements() * element_size(type), type, kNoSubject};
    }
    // groups=N: the registration order in N parts, the first ones longer by one.
    std::vector<TensorIndex> named;
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t)
      if (!f_.unused[t]) named.push_back(t);
    const std::size_t groups = knobs().groups;
    for (std::size_t g = 0, at = 0; g < groups; ++g) {
      std::size_t size = named.size() / groups + (g < named.size() % groups ? 1 : 0);
      for (std::size_t k = 0; k < size; ++k)
        c.tensors[named[at++]].group = static_cast<std::uint32_t>(g);
    }
    c.cycle = scale(kMillisecond, cycle_ms(knobs()));
    c.threshold = knobs().fusion_threshold;
    c.cache = knobs().cache_capacity;
    using horovod::Change;
    const horovod::Version release = knobs().release;
    bool batched = gpu() && knobs().batch_d2d_memcopies && release.has(Change::BatchesCopies);
    c.padding = batched ? kPadding : 1;
    c.batch = batched ? kBatchedCopies : 1;
    c.group_fusion = !knobs().disable_group_fusion;
    if (!gpu()) return c;
    c.reduces = reductions_of(knobs(), timed.ranks, timed.per_host);
    c.local_ranks = std::min(timed.ranks, timed.per_host);
    c.streams = static_cast<int>(knobs().num_nccl_streams);
    c.async_completion = knobs().enable_async_completion;
    c.waits_for_gradients = !release.has(Change::WaitsOnTheDevice);
    c.divides = release.has(Change::NcclAverages) ? Coordination::Divides::Nccl
                : batched && release.has(Change::ScalesWithTheCopy)
                    ? Coordination::Divides::TheCopy
                    : Coordination::Divides::AKernel;
    if (timed.host_memory) {
      c.copy_latency = timed.host_memory->latency;
      c.copied = timed.host_memory->copied;
      c.touched = timed.host_memory->touched;
    }
    return c;
  }
  DType wire_type(TensorIndex t) const {
    return knobs().fp16_compression ? DType::Float16 : f_.w.tensors[t].dtype;
  }
  bool compresses(TensorIndex t) const { return wire_type(t) != f_.w.tensors[t].dtype; }

  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    latest_ = kNoOp;
    b.step.made_by.assign(f_.w.tensors.size(), kNoOp);
    const bool grads_exist = f_.keeps_gradients(kind);
    if (grads_exist) zero_gradients(b, f_.w, f_.plan);
    f_.micro_steps(b, [&](int m, bool last) {
      b.forward(f_.times);
      std::vector<std::uint32_t> left(knobs().groups, 0);
      for (const auto& t : f_.program.coordination->tensors)
        if (t.group != kNoSubject) ++left[t.group];
      std::vector<std::vector<TensorIndex>> held(left.size());
      f_.backward(
          b, m > 0 || grads_exist, [&](TensorIndex t, std::uint32_t op) { made(b, t, op); },
          [&](TensorIndex t) {
            if (last) hook(b, t, left, held);
          });
    });
    b.wait(kSynchronize, kNoSubject, kNoOp);
    if (f_.program.coordination->async_completion) b.event(kReducedOnDevice, Lane::Compute);
    for (const Segment& s : f_.timeline.segments)
      if (compresses(s.tensor))
        b.main(
            kDecompressTensor, s.tensor, f_.bytes_of(s.tensor),
            {.traffic = f_.bytes_of(s.tensor) + f_.program.coordination->tensors[s.tensor].bytes});
    if (!knobs().adasum) {
      b.update(f_.times);
      return std::move(b.step);
    }
    for (const Segment& s : f_.timeline.segments)  // start += delta; p = start
      b.main(kAdasumApply, s.tensor, f_.bytes_of(s.tensor),
             {.traffic = 5 * f_.bytes_of(s.tensor), .kernels = 2});
    b.end_update();
    return std::move(b.step);
  }

  // start = p; the optimizer's step on p alone; p -= start.
  void update_alone(StepBuilder& b, TensorIndex t) {
    const double share = fraction(f_.w.tensors[t].elements(), f_.w.elements());
    b.main(kAdasumStart, t, f_.bytes_of(t), {.traffic = 2 * f_.bytes_of(t)});
    if (f_.times.host) b.host_time(scale(f_.times.host->optimizer, share));
    b.main(kAdasumStep, t, f_.bytes_of(t), {.duration = scale(f_.times.optimizer, share)});
    made(b, t, b.main(kAdasumDelta, t, f_.bytes_of(t), {.traffic = 3 * f_.bytes_of(t)}));
  }

  // What is next on the device makes the tensor; one that takes no time is there with the last.
  void made(StepBuilder& b, TensorIndex t, std::uint32_t op) {
    b.step.made_by[t] = op;
    latest_ = op;
  }
  // A group's requests are made with its last.
  void hook(StepBuilder& b, TensorIndex t, std::vector<std::uint32_t>& left,
            std::vector<std::vector<TensorIndex>>& held) {
    if (knobs().adasum) update_alone(b, t);
    if (compresses(t))
      made(b, t,
           b.main(kCompressTensor, t, f_.bytes_of(t),
                  {.traffic = f_.bytes_of(t) + f_.program.coordination->tensors[t].bytes}));
    if (b.step.made_by[t] == kNoOp) b.step.made_by[t] = latest_;
    std::vector<TensorIndex> now{t};
    if (std::uint32_t g = f_.program.coordination->tensors[t].group; g != kNoSubject) {
      held[g].push_back(t);
      if (--left[g] > 0) return;
      now = std::move(held[g]);
    }
    for (TensorIndex r : now) {
      std::uint32_t op = b.host(kRequest, Cost::Launch, r);
      if (b.gpu())
        b.step.ops[op].hooks = 1;  // as DDP's: nobody has executed it there
      else
        b.step.ops[op].duration = kHook;
    }
  }

  Frame f_;
  std::uint32_t latest_ = kNoOp;
};

std::vector<OpWord> all_horovod_words() {
  std::vector<OpWord> out(std::begin(kHorovodOptimizerWords), std::end(kHorovodOptimizerWords));
  const std::span<const OpWord> more = horovod_reduction_words();
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

bool is_power_of_two(int n) {
  return n > 0 && (n & (n - 1)) == 0;
}

}  // namespace

Coordination::Reduces reductions_of(const HorovodPlan& plan, int ranks, int per_host) {
  using Reduces = Coordination::Reduces;
  if (ranks < 2) return Reduces::Flat;
  if (plan.adasum) return Reduces::Adasum;
  if (ranks <= per_host) return Reduces::Flat;
  return plan.hierarchical_allreduce ? Reduces::Hierarchical
         : plan.torus_allreduce      ? Reduces::Torus
                                     : Reduces::Flat;
}

bool horovod_stages_on_hosts(const Plan& plan, int ranks, int per_host) {
  const auto how = reductions_of(horovod_of(plan), ranks, per_host);
  return how == Coordination::Reduces::Hierarchical || how == Coordination::Reduces::Adasum;
}

std::vector<RankGroups> horovod_groups(const Plan& plan, int ranks, int per_host) {
  using Reduces = Coordination::Reduces;
  const Reduces how = reductions_of(horovod_of(plan), ranks, per_host);
  if (how == Reduces::Flat) return {};
  const int local = std::min(ranks, per_host);
  std::vector<RankGroups> out{{"host", local, 1}};
  // Open MPI 4.1's choice for all but small messages is Rabenseifner's.
  if (how == Reduces::Hierarchical)
    out.push_back({"across", ranks / local, local, -1, Algorithm::HalvingDoubling});
  if (how == Reduces::Torus) out.push_back({"across", ranks / local, local});
  if (how != Reduces::Adasum) return out;
  int level = 0;
  for (int distance = local; distance < ranks; distance *= 2, ++level) {
    const std::string number = std::to_string(level);
    out.push_back({"pair_" + number, 2, distance, -1, Algorithm::Ring});
    out.push_back({"block_" + number, 2 * distance, 1, -1, Algorithm::RecursiveDoubling});
  }
  return out;
}

std::vector<Operation> horovod_operations(const Plan& plan) {
  std::vector<Operation> out{Operation::AllReduce, Operation::Broadcast};
  const HorovodPlan& h = horovod_of(plan);
  if (h.adasum || h.hierarchical_allreduce || h.torus_allreduce)
    for (Operation o : {Operation::ReduceScatter, Operation::AllGather, Operation::Reduce})
      out.push_back(o);
  return out;
}

Problem check_horovod(const Plan& plan, int ranks, int per_host) {
  const HorovodPlan& h = horovod_of(plan);
  if (reductions_of(h, ranks, per_host) == Coordination::Reduces::Flat) return {};
  const int local = std::min(ranks, per_host);
  if (ranks % local != 0)
    return {"/ranks",
            "a reduction in parts is modelled where every host has as many ranks: a "
            "multiple of " +
                std::to_string(per_host)};
  if (!h.adasum) return {};
  if (!is_power_of_two(ranks / local))
    return {"/ranks", "Adasum exchanges halves between 2, 4, 8, ... hosts, and " +
                          std::to_string(ranks / local) +
                          " is no power of two (Horovod: \"Running GPU Adasum with non-power of 2 "
                          "nodes is not supported yet\")"};
  if (ranks > local && !is_power_of_two(local))
    return {"/ranks", "with " + std::to_string(local) +
                          " ranks of a host Adasum's distances (powers of two) do not lead from "
                          "host to host: Horovod would leave hosts apart; 1, 2, 4 or 8 do"};
  if (ranks / local > 1 << kMostAdasumLevels)
    return {"/ranks", "at most " + std::to_string(1 << kMostAdasumLevels) + " hosts with Adasum"};
  return {};
}

std::span<const OpWord> horovod_words() {
  static const std::vector<OpWord> words = all_horovod_words();
  return words;
}

Program lower_horovod(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return HorovodLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
