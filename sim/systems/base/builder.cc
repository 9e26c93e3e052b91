#include "sim/systems/base/builder.h"

#include <algorithm>
#include <utility>

namespace ddpsim::systems {

Stretch forward_of(const StepTimes& times) {
  Stretch s;
  for (const LayerDurations& l : times.layers) s.add(l.forward, l.host_forward);
  Duration host = times.host ? times.host->forward : Duration{};
  if (s.device == times.forward && s.host == host) return s;
  return {times.forward, host, std::max(Duration{}, host - times.forward)};
}

StepBuilder::StepBuilder(Program& program, StepKind kind, const Workload& w,
                         const ModelMemory& model)
    : program_(program), workload_(w), model_(model) {
  step.kind = kind;
  step.ops.reserve(6 * program.tensor_names.size() + 32);
  step.memory.reserve(8 * program.tensor_names.size() + 32);
}

// Words are literals: equal addresses are equal words, and what is not known by its address is
// looked up.
std::uint16_t StepBuilder::number_of(const OpWord& word) {
  for (std::size_t i = known_.size(); i-- > 0;)
    if (known_[i] == word.name) return numbers_[i];
  auto at = std::find(program_.words.begin(), program_.words.end(), word.name);
  auto number = static_cast<std::uint16_t>(at - program_.words.begin());
  if (at == program_.words.end()) program_.words.push_back(word.name);
  known_.push_back(word.name);
  numbers_.push_back(number);
  return number;
}

Op& StepBuilder::push(const OpWord& word, Lane lane, std::uint32_t subject, std::int64_t bytes) {
  const std::uint32_t index = step.next_op();
  if (lane == Lane::Host) last_host_ = index;
  if (lane == Lane::Compute) last_compute_ = index;
  Op& op = step.ops.emplace_back();
  op.kind = word.kind;
  op.word = number_of(word);
  op.lane = lane;
  // Buckets belong to the step, whichever micro-step launches them.
  const bool of_batch =
      of_batch_ && !is_launch(word.kind);  // its name has that of what it launches
  op.micro = word.kind.in_micro_step || of_batch ? micro_ : std::int16_t{-1};
  op.subject = subject;
  op.bytes = bytes;
  return op;
}

void StepBuilder::add_dep(std::uint32_t op, std::uint32_t dep) {
  if (dep == kNoOp) return;
  for (std::uint32_t& slot : step.ops[op].dep) {
    if (slot == dep) return;
    if (slot == kNoOp) {
      slot = dep;
      return;
    }
  }
  step.extra_deps.push_back({op, dep});
}

// The launch directly precedes the operation that it launches.
std::uint32_t StepBuilder::launch(Work work, Cost cost) {
  Op& op = push(kLaunch, Lane::Host, step.next_op() + 1, 0);
  op.duration = std::exchange(host_carry_, {});
  if (graphed_) return last();
  op.cost = cost;
  op.kernels = static_cast<std::int32_t>(work.kernels);
  op.hooks = static_cast<std::int32_t>(work.hooks);
  return last();
}

void StepBuilder::take(const Work& work, Op& op) {
  op.duration = work.duration;
  op.traffic = work.traffic;
  op.cost = work.cost();
  op.kernels = static_cast<std::int32_t>(work.kernels);
}

std::uint32_t StepBuilder::main(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                Work work) {
  return main_after(word, subject, bytes, work, kNoOp);
}

std::uint32_t StepBuilder::forward(const StepTimes& times) {
  return forward(kForward, kNoSubject, forward_of(times), 0, model_.layers());
}

std::uint32_t StepBuilder::forward(const OpWord& word, std::uint32_t subject, const Stretch& s,
                                   std::size_t from, std::size_t to) {
  host_time(s.head);
  std::uint32_t index = main(word, subject, 0, {.duration = s.device});
  activations(model_.forward(from, to));
  layer_ = to;
  host_time(s.host - s.head);
  return index;
}

void StepBuilder::change(std::uint32_t op, Holds holds, std::int64_t bytes, bool at_end) {
  if (bytes == 0) return;
  if (op == kNoOp) op = last();
  step.memory.push_back({op, holds, at_end, bytes});
}

void StepBuilder::activations(const LayersMemory& m) {
  const std::int64_t kept = std::max<std::int64_t>(0, m.change);
  allocate(Holds::Activations, kept);
  allocate(Holds::Temporaries, m.most - kept);
  release(Holds::Temporaries, m.most - kept);
  release(Holds::Activations, kept - m.change);
}

void StepBuilder::all_forward() {
  activations(model_.forward(0, model_.layers()));
  layer_ = model_.layers();
}

void StepBuilder::gradient(TensorIndex t, bool kept) {
  if (t != kNoTensor && kept) allocate(Holds::Gradients, workload_.tensors[t].bytes().count);
  const std::size_t down_to = t == kNoTensor ? 0 : model_.layer_of(t);
  if (!model_.known() || down_to >= layer_) return;
  activations(model_.backward(down_to, layer_));
  layer_ = down_to;
}

void StepBuilder::release_gradients() {
  std::int64_t made = 0;
  for (const MemoryChange& c : step.memory)
    if (c.holds == Holds::Gradients) made += c.bytes;
  release(Holds::Gradients, made);
}

void StepBuilder::optimize(const StepTimes& times, std::int64_t elements) {
  const Workload& w = workload_;
  const std::int64_t bytes = w.gradient_bytes().count;
  const LoopWork loop = loop_work(w);
  std::uint32_t last = last_compute_;
  if (loop.unscale > 0)
    last = main(kUnscale, kNoSubject, bytes,
                {.traffic = loop.unscale, .kernels = loop.unscale_kernels});
  if (loop.clip > 0)
    last = main(kClip, kNoSubject, bytes, {.traffic = loop.clip, .kernels = loop.clip_kernels});
  if (loop.waits && gpu()) wait(kAwaitFinite, kNoSubject, last);
  const std::int64_t all = std::max<std::int64_t>(1, w.elements());
  auto share = [&](Duration whole) {
    return elements == w.elements() ? whole : scale(whole, fraction(elements, all));
  };
  if (times.host) host_time(share(times.host->optimizer));
  main(kOptimizer, kNoSubject, bytes, {.duration = share(times.optimizer)});
  const std::int64_t beside = optimizer_temporaries(w.optimizer, elements) * bytes / all;
  allocate(Holds::Temporaries, beside);
  release(Holds::Temporaries, beside);
}

void StepBuilder::end_update() {
  release_gradients();
  if (workload_.loop.loss_item && gpu()) wait(kReadLoss, kNoSubject, last_compute_);
}

std::uint32_t StepBuilder::main_after(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                      Work work, std::uint32_t dep) {
  std::uint32_t launched = kNoOp;
  if (gpu()) launched = launch(work, work.traffic == 0 ? Cost::Measured : Cost::Launch);
  Op& op = push(word, gpu() ? Lane::Compute : Lane::Host, subject, bytes);
  take(work, op);
  op.hooks = gpu() ? 0 : static_cast<std::int32_t>(work.hooks);
  const std::uint32_t index = last();
  add_dep(index, launched);
  if (gpu()) {
    for (std::uint32_t d : carried_) add_dep(index, d);
    if (dep != kNoOp && step.ops[dep].lane != Lane::Compute) add_dep(index, dep);
  }
  carried_.clear();
  return index;
}

std::uint32_t StepBuilder::collective(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                      DType dtype, bool on_current_stream) {
  if (!gpu()) {
    std::uint32_t issuer = last_host_;
    Op& op = push(word, Lane::Worker, subject, bytes);
    op.dtype = dtype;
    const std::uint32_t index = last();
    add_dep(index, issuer);
    return index;
  }
  if (staged()) return staged_collective(word, subject, bytes, dtype);
  std::uint32_t event = on_current_stream ? kNoOp : last_compute_;
  std::uint32_t launched = launch({.kernels = 0}, Cost::LaunchCollective);
  Op& op = push(word, on_current_stream ? Lane::Compute : Lane::Comm, subject, bytes);
  op.dtype = dtype;
  const std::uint32_t index = last();
  add_dep(index, launched);
  add_dep(index, event);
  return index;
}

// The caller's thread begins the first copy, the worker that performed the collective the second.
// Each has a stream of the pool's; all that go one way share an engine of the device, in order.
std::uint32_t StepBuilder::staged_collective(const OpWord& word, std::uint32_t subject,
                                             std::int64_t bytes, DType dtype) {
  const Duration copy = staging_ ? staging_->copy(bytes) : Duration{};
  const std::uint32_t event = last_compute_;
  const std::uint32_t launched = launch({.kernels = 1}, Cost::LaunchCollective);
  const std::uint32_t there = step.next_op();
  push(kStageToHost, stream(0), there + 1, bytes).duration = copy;
  add_dep(there, launched);
  add_dep(there, event);
  push(word, Lane::Worker, subject, bytes).dtype = dtype;
  add_dep(there + 1, there);
  push(kStageBack, stream(1), there + 1, bytes).duration = copy;
  add_dep(there + 2, there + 1);
  return there + 2;
}

void StepBuilder::await(const OpWord& word, std::uint32_t subject, std::uint32_t dep) {
  if (dep == kNoOp || (gpu() && !staged())) return;
  while (staged() && !is_collective(step.ops[dep].kind)) dep = step.ops[dep].dep[0];
  wait(word, subject, dep);
}

std::uint32_t StepBuilder::wait(const OpWord& word, std::uint32_t subject, std::uint32_t dep) {
  push(word, Lane::Host, subject, 0);
  add_dep(last(), dep);
  return last();
}

std::uint32_t StepBuilder::callback(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                    Work work, std::uint32_t dep) {
  Op& op = push(word, Lane::Callback, subject, bytes);
  take(work, op);
  const std::uint32_t index = last();
  add_dep(index, dep);
  return index;
}

std::uint32_t StepBuilder::beside(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                  DType dtype, Duration d, std::uint32_t dep) {
  Op& op = push(word, Lane::Callback, subject, bytes);
  op.dtype = dtype;
  op.duration = d;
  const std::uint32_t index = last();
  add_dep(index, dep);
  return index;
}

std::uint32_t StepBuilder::on_stream(Lane stream, const OpWord& word, std::uint32_t subject,
                                     std::int64_t bytes, Work work,
                                     std::span<const std::uint32_t> after) {
  std::uint32_t launched = launch(work, work.traffic == 0 ? Cost::Measured : Cost::Launch);
  Op& op = push(word, stream, subject, bytes);
  take(work, op);
  const std::uint32_t index = last();
  add_dep(index, launched);
  for (std::uint32_t d : after) add_dep(index, d);
  return index;
}

std::uint32_t StepBuilder::collective_after(const OpWord& word, std::uint32_t subject,
                                            std::int64_t bytes, DType dtype,
                                            std::span<const std::uint32_t> after, Lane lane) {
  std::uint32_t launched = launch({.kernels = 0}, Cost::LaunchCollective);
  Op& op = push(word, lane, subject, bytes);
  op.dtype = dtype;
  const std::uint32_t index = last();
  add_dep(index, launched);
  for (std::uint32_t d : after) add_dep(index, d);
  return index;
}

std::uint32_t StepBuilder::event(const OpWord& word, Lane lane) {
  push(word, lane, kNoSubject, 0);
  return last();
}

std::uint32_t StepBuilder::host(const OpWord& word, Cost cost, std::uint32_t subject) {
  Op& op = push(word, Lane::Host, subject, 0);
  op.cost = cost;
  return last();
}

std::uint32_t StepBuilder::host(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                Duration d) {
  push(word, Lane::Host, subject, bytes).duration = d;
  return last();
}

void zero_gradients(StepBuilder& b, const Workload& w, const Plan& plan) {
  constexpr std::int64_t kBatch = 110;  // tensors that one foreach kernel takes
  const std::int64_t tensors = std::ssize(w.tensors);
  const bool batched = plan.pytorch.has(pytorch::Change::ZeroGradTakesFewKernels);
  const std::int64_t bytes = w.gradient_bytes().count;
  b.main(kZeroGrad, kNoSubject, bytes,
         {.traffic = bytes, .kernels = batched ? tensors / kBatch + 1 : tensors});
}

}  // namespace ddpsim::systems
