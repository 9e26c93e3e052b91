// Horovod's DistributedOptimizer over PyTorch. A hook casts the gradient where it is compressed and
// requests its reduction; a background thread of each rank wakes in cycles, and what every rank has
// requested is fused (fusion.h). synchronize() waits on the host until all has come back, then the
// optimizer runs.
//
//   GPU   the thread launches and goes on: a copy of all into the fusion buffer, NCCL's all-reduce
//         (which averages), a copy back; one gradient by itself stays where it is
//   CPU   the thread copies, reduces, scales and copies back before its next cycle
//
// Source: horovod 0.28.1: horovod/torch/optimizer.py, horovod/common/operations.cc,
// ops/nccl_operations.cc, ops/gpu_operations.cc, ops/gloo_operations.cc. sim/MODEL.md section 3.
#include "sim/strategy/horovod.h"

#include <algorithm>
#include <numeric>

#include "sim/strategy/bucketing.h"
#include "sim/strategy/builder.h"
#include "sim/strategy/lower.h"

namespace ddpsim::strategy {
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
// What the background thread does.
constexpr OpWord kCoordinate{"coordinate/cycle.",
                             {.does = Does::Host, .phase = Phase::Backward, .of = Of::Number}};
constexpr OpWord kFuse{
    "copy_in/fused.",
    {.does = Does::Copy, .phase = Phase::Backward, .of = Of::Bucket, .touches = Touches::Bucket}};
constexpr OpWord kReduceFused{"allreduce/fused.",
                              {.does = Does::Communicate,
                               .phase = Phase::Backward,
                               .of = Of::Bucket,
                               .touches = Touches::Bucket,
                               .operation = Operation::AllReduce}};
constexpr OpWord kUnfuse{"copy_out/fused.",
                         {.does = Does::Copy,
                          .phase = Phase::Reduced,
                          .of = Of::Bucket,
                          .touches = Touches::Bucket,
                          .divides = true}};
constexpr OpWord kHorovodWords[] = {kCompressTensor, kRequest, kSynchronize, kDecompressTensor,
                                    kCoordinate,     kFuse,    kReduceFused, kUnfuse};

constexpr int kBatchedCopies = 160;    // cuda_kernels.h BATCHED_D2D_CAPACITY
constexpr std::int64_t kPadding = 16;  // BATCHED_D2D_PADDING

class HorovodLowering {
 public:
  HorovodLowering(const TimedWorkload& timed, const Plan& plan)
      : w_(timed.workload),
        times_(timed.times),
        plan_(plan),
        unused_(unused_tensors(w_, plan)),
        timeline_(backward_timeline(timed, unused_)),
        program_(empty_program(timed, plan)),
        memory_(w_, false, timed.winograd) {
    set_to_none_ = plan.set_to_none.value_or(behaviour(plan.pytorch).set_to_none);
    program_.resident = resident(w_, !set_to_none_);
    program_.activations_known = memory_.known();
    of(program_.resident, Holds::Buckets) = knobs().fusion_threshold;
    program_.worker_threads = 1;
    if (timed.device == DeviceKind::Gpu) program_.streams = {"fusion"};
    program_.coordination = coordination();
    // Words of what is made while it runs, so that all steps know them.
    program_.words.push_back(kLaunch.name);
    for (const OpWord& word : kHorovodWords) program_.words.push_back(word.name);
  }

  Program run(Steps steps) {
    if (steps == Steps::All) program_.warmup.push_back(step(StepKind::First));
    program_.steady = step(StepKind::Steady);
    return std::move(program_);
  }

 private:
  const HorovodPlan& knobs() const { return plan_.horovod; }
  bool gpu() const { return program_.device == DeviceKind::Gpu; }

  Coordination coordination() const {
    Coordination c;
    c.tensors.resize(w_.tensors.size());
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t) {
      DType type = wire_type(t);
      c.tensors[t] = {w_.tensors[t].elements() * element_size(type), type, kNoSubject};
    }
    // groups=N: the registration order in N parts, the first ones longer by one.
    std::vector<TensorIndex> named;
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t)
      if (!unused_[t]) named.push_back(t);
    const auto groups = static_cast<std::size_t>(knobs().groups);
    for (std::size_t g = 0, at = 0; g < groups; ++g) {
      std::size_t size = named.size() / groups + (g < named.size() % groups ? 1 : 0);
      for (std::size_t k = 0; k < size; ++k)
        c.tensors[named[at++]].group = static_cast<std::uint32_t>(g);
    }
    c.cycle = scale(Duration{1'000'000'000}, knobs().cycle_time.value_or(1));
    c.threshold = knobs().fusion_threshold;
    c.cache = knobs().cache_capacity;
    bool batched = gpu() && knobs().batch_d2d_memcopies;
    c.padding = batched ? kPadding : 1;
    c.batch = batched ? kBatchedCopies : 1;
    c.group_fusion = !knobs().disable_group_fusion;
    return c;
  }
  DType wire_type(TensorIndex t) const {
    return knobs().fp16_compression ? DType::Float16 : w_.tensors[t].dtype;
  }
  bool compresses(TensorIndex t) const { return wire_type(t) != w_.tensors[t].dtype; }

  StepProgram step(StepKind kind) {
    StepBuilder b(program_, kind, w_, memory_);
    latest_ = kNoOp;
    b.step.made_by.assign(w_.tensors.size(), kNoOp);
    bool grads_exist = !set_to_none_ && kind != StepKind::First;
    if (grads_exist) zero_gradients(b, w_, plan_);
    for (int m = 0; m < plan_.accumulation_steps; ++m) {
      if (plan_.accumulation_steps > 1) b.set_micro(m);
      b.forward(times_);
      bool last = m + 1 == plan_.accumulation_steps;
      std::vector<std::uint32_t> left(static_cast<std::size_t>(knobs().groups), 0);
      for (const auto& t : program_.coordination->tensors)
        if (t.group != kNoSubject) ++left[t.group];
      std::vector<std::vector<TensorIndex>> held(left.size());
      for (const Segment& s : timeline_.segments) {
        b.host_time(s.host);
        if (s.device.ps > 0)
          made(b, s.tensor, b.main(kBackward, s.tensor, 0, {.duration = s.device}));
        b.gradient(s.tensor, m == 0 && !grads_exist);
        if (m > 0 || grads_exist)
          made(b, s.tensor,
               b.main(kAccumulate, s.tensor, bytes(s.tensor), {.traffic = 3 * bytes(s.tensor)}));
        if (last) hook(b, s.tensor, left, held);
      }
      b.host_time(timeline_.tail_host);
      if (timeline_.tail_device.ps > 0)
        b.main(kBackwardTail, kNoSubject, 0, {.duration = timeline_.tail_device});
      b.gradient(StepBuilder::kNoTensor, false);
    }
    b.set_micro(-1);
    b.wait(kSynchronize, kNoSubject, kNoOp);
    for (const Segment& s : timeline_.segments)
      if (compresses(s.tensor))
        b.main(kDecompressTensor, s.tensor, bytes(s.tensor),
               {.traffic = bytes(s.tensor) + program_.coordination->tensors[s.tensor].bytes});
    b.update(times_);
    return std::move(b.step);
  }

  // What is next on the device makes the tensor; one that takes no time is there with the last.
  void made(StepBuilder& b, TensorIndex t, std::uint32_t op) {
    b.step.made_by[t] = op;
    latest_ = op;
  }
  // A group's requests are made with its last.
  void hook(StepBuilder& b, TensorIndex t, std::vector<std::uint32_t>& left,
            std::vector<std::vector<TensorIndex>>& held) {
    if (compresses(t))
      made(b, t,
           b.main(kCompressTensor, t, bytes(t),
                  {.traffic = bytes(t) + program_.coordination->tensors[t].bytes}));
    if (b.step.made_by[t] == kNoOp) b.step.made_by[t] = latest_;
    std::vector<TensorIndex> now{t};
    if (std::uint32_t g = program_.coordination->tensors[t].group; g != kNoSubject) {
      held[g].push_back(t);
      if (--left[g] > 0) return;
      now = std::move(held[g]);
    }
    for (TensorIndex r : now) {
      std::uint32_t op = b.host(kRequest, Cost::Launch, r);
      b.step.ops[op].hooks = 1;
    }
  }

  std::int64_t bytes(TensorIndex t) const { return program_.tensor_bytes[t]; }

  const Workload& w_;
  const StepTimes& times_;
  const Plan& plan_;
  std::vector<bool> unused_;
  BackwardTimeline timeline_;
  Program program_;
  const ModelMemory memory_;
  bool set_to_none_ = true;
  std::uint32_t latest_ = kNoOp;
};

// Appends operations of the background thread.
class Thread {
 public:
  Thread(const Program& program, StepProgram& step) : program_(program), step_(step) {}

  std::uint32_t push(const OpWord& word, Lane lane, std::uint32_t subject, std::int64_t bytes,
                     std::initializer_list<std::uint32_t> after) {
    Op op;
    op.kind = word.kind;
    op.word = static_cast<std::uint16_t>(
        std::find(program_.words.begin(), program_.words.end(), word.name) -
        program_.words.begin());
    op.lane = lane;
    op.subject = subject;
    op.bytes = bytes;
    op.kernels = 0;
    auto index = static_cast<std::uint32_t>(step_.ops.size());
    std::size_t k = 0;
    for (std::uint32_t d : after) {
      if (d == kNoOp) continue;
      if (k < 2)
        op.dep[k++] = d;
      else
        step_.extra_deps.push_back({index, d});
    }
    step_.ops.push_back(op);
    return index;
  }

  void copy(std::uint32_t op, std::int64_t traffic, int kernels) {
    step_.ops[op].cost = Cost::Memory;
    step_.ops[op].traffic = traffic;
    step_.ops[op].kernels = kernels;
  }

  // The host's part of what goes to the device. Returns the launch.
  std::uint32_t launch(Cost cost, int kernels, std::uint32_t after) {
    auto next = static_cast<std::uint32_t>(step_.ops.size() + 1);
    std::uint32_t op = push(kLaunch, Lane::Worker, next, 0, {after});
    step_.ops[op].cost = cost;
    step_.ops[op].kernels = kernels;
    return op;
  }

  // Returns what the next one of the thread waits for.
  std::uint32_t reduce(std::uint32_t bucket, std::uint32_t after) {
    const Bucket& b = step_.buckets[bucket];
    const std::int64_t bytes = b.wire_bytes.count;
    const bool several = b.tensors.size() > 1;
    const bool gpu = program_.device == DeviceKind::Gpu;
    const int batch = program_.coordination->batch;
    const int kernels = (static_cast<int>(b.tensors.size()) + batch - 1) / batch;
    std::uint32_t ready = kNoOp;
    for (TensorIndex t : b.tensors)
      if (std::uint32_t made = step_.made_by[t]; made != kNoOp)
        ready = ready == kNoOp ? made : std::max(ready, made);
    // The stream reuses the fusion buffer: what it has been given goes first.
    std::uint32_t before = kNoOp;
    for (auto i = static_cast<std::uint32_t>(step_.ops.size()); gpu && i-- > 0 && before == kNoOp;)
      if (of_bucket(step_.ops[i].kind)) before = i;
    const Lane copies = gpu ? stream(0) : Lane::Worker;
    std::uint32_t thread = after;
    if (several) {
      if (gpu) thread = launch(Cost::Launch, kernels, thread);
      ready = push(kFuse, copies, bucket, bytes, {thread, ready, before});
      before = kNoOp;
      copy(ready, 2 * bytes, kernels);
      if (!gpu) thread = ready;
    }
    if (gpu) thread = launch(Cost::LaunchCollective, 0, thread);
    std::uint32_t reduced =
        push(kReduceFused, gpu ? Lane::Comm : Lane::Worker, bucket, bytes, {thread, ready, before});
    step_.ops[reduced].dtype = b.dtype;
    if (!gpu) thread = reduced;
    // NCCL averages; elsewhere the buffer is scaled.
    if (several || !gpu) {
      if (gpu) thread = launch(Cost::Launch, kernels, thread);
      std::uint32_t out = push(kUnfuse, copies, bucket, bytes, {thread, reduced});
      copy(out, (gpu ? 0 : 2 * bytes) + (several ? 2 * bytes : 0), kernels);
      if (!gpu) thread = out;
    }
    return thread;
  }

 private:
  const Program& program_;
  StepProgram& step_;
};

std::uint32_t wait_of(const StepProgram& step) {
  for (std::uint32_t i = 0; i < step.ops.size(); ++i)
    if (waits_for_requests(step.ops[i].kind)) return i;
  return kNoOp;
}

}  // namespace

std::uint32_t add_reductions(const Program& program, StepProgram& step, Duration coordination,
                             const std::vector<std::vector<TensorIndex>>& fused) {
  Thread thread(program, step);
  std::uint32_t cycle = 0;
  for (const Op& op : step.ops)
    if (op.kind == kCoordinate.kind) ++cycle;
  std::uint32_t first = thread.push(kCoordinate, Lane::Worker, cycle, 0, {});
  step.ops[first].duration = coordination;
  std::uint32_t last = first;
  for (const std::vector<TensorIndex>& together : fused) {
    Bucket b;
    b.tensors = together;
    for (TensorIndex t : together) {
      b.bytes += Bytes{program.tensor_bytes[t]};
      b.wire_bytes += Bytes{program.coordination->tensors[t].bytes};
    }
    b.dtype = program.coordination->tensors[together.front()].dtype;
    step.buckets.push_back(std::move(b));
    last = thread.reduce(static_cast<std::uint32_t>(step.buckets.size() - 1), last);
  }
  return first;
}

StepProgram in_order(const StepProgram& played, std::vector<std::uint32_t>& order) {
  std::uint32_t wait = wait_of(played);
  std::uint32_t made = kNoOp;
  for (std::uint32_t i = 0; i < played.ops.size() && made == kNoOp; ++i)
    if (played.ops[i].kind == kCoordinate.kind) made = i;
  order.resize(played.ops.size());
  std::iota(order.begin(), order.end(), 0u);
  if (made == kNoOp) return played;
  std::rotate(order.begin() + wait, order.begin() + made, order.end());
  std::vector<std::uint32_t> now(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) now[order[i]] = i;
  StepProgram out = played;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    Op& op = out.ops[i] = played.ops[order[i]];
    for (std::uint32_t& d : op.dep)
      if (d != kNoOp) d = now[d];
    if (op.kind.of == Of::Operation) op.subject = now[op.subject];
  }
  for (auto& e : out.extra_deps) e = {now[e.op], now[e.dep]};
  for (std::uint32_t& op : out.made_by)
    if (op != kNoOp) op = now[op];
  return out;
}

std::span<const OpWord> horovod_words() {
  return kHorovodWords;
}

Program lower_horovod(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return HorovodLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::strategy
