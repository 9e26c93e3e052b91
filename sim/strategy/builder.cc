#include "sim/strategy/builder.h"

namespace ddpsim::strategy {

namespace {

// Buckets belong to the step, whichever micro-step launches them.
bool named_by_micro_step(OpKind k) {
  switch (k) {
    case OpKind::Forward:
    case OpKind::FindUnused:
    case OpKind::Backward:
    case OpKind::BackwardTail:
    case OpKind::Accumulate:
    case OpKind::CopyIn:
      return true;
    default:
      return false;
  }
}

}  // namespace

StepBuilder::StepBuilder(const Program& program, StepKind kind) : program_(program) {
  step.kind = kind;
  step.ops.reserve(6 * program.tensor_names.size() + 32);
}

Op StepBuilder::make(OpKind kind, Lane lane, std::uint32_t subject, std::int64_t bytes) const {
  Op op;
  op.kind = kind;
  op.lane = lane;
  op.micro = named_by_micro_step(kind) ? micro_ : std::int16_t{-1};
  op.subject = subject;
  op.bytes = bytes;
  return op;
}

std::uint32_t StepBuilder::push(Op op) {
  auto index = static_cast<std::uint32_t>(step.ops.size());
  if (op.lane == Lane::Host) last_host_ = index;
  if (op.lane == Lane::Compute) last_compute_ = index;
  step.ops.push_back(op);
  return index;
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
std::uint32_t StepBuilder::launch(Cost cost, bool measured) {
  Op op = make(OpKind::Launch, Lane::Host, static_cast<std::uint32_t>(step.ops.size() + 1), 0);
  op.duration = host_carry_;
  host_carry_ = {};
  op.priced = !measured;
  op.kernels = cost.kernels;
  op.hooks = cost.hooks;
  return push(op);
}

std::uint32_t StepBuilder::main(OpKind kind, std::uint32_t subject, std::int64_t bytes, Cost cost) { return main_after(kind, subject, bytes, cost, kNoOp); }

std::uint32_t StepBuilder::main_after(OpKind kind, std::uint32_t subject, std::int64_t bytes, Cost cost, std::uint32_t dep) {
  std::uint32_t launched = kNoOp;
  if (gpu()) launched = launch(cost, cost.traffic == 0);
  Op op = make(kind, gpu() ? Lane::Compute : Lane::Host, subject, bytes);
  op.duration = cost.duration;
  op.traffic = cost.traffic;
  op.priced = cost.traffic > 0;
  op.kernels = cost.kernels;
  op.hooks = gpu() ? 0 : cost.hooks;
  std::uint32_t index = push(op);
  add_dep(index, launched);
  if (gpu()) {
    for (std::uint32_t d : carried_) add_dep(index, d);
    if (dep != kNoOp && step.ops[dep].lane != Lane::Compute) add_dep(index, dep);
  }
  carried_.clear();
  return index;
}

std::uint32_t StepBuilder::collective(OpKind kind, std::uint32_t subject, std::int64_t bytes, bool on_current_stream) {
  if (!gpu()) {
    std::uint32_t issuer = last_host_;
    std::uint32_t index = push(make(kind, Lane::Worker, subject, bytes));
    add_dep(index, issuer);
    return index;
  }
  std::uint32_t event = on_current_stream ? kNoOp : last_compute_;
  std::uint32_t launched = launch({.kernels = 0}, false);
  std::uint32_t index = push(make(kind, on_current_stream ? Lane::Compute : Lane::Comm, subject, bytes));
  add_dep(index, launched);
  add_dep(index, event);
  return index;
}

std::uint32_t StepBuilder::wait(OpKind kind, std::uint32_t subject, std::uint32_t dep) {
  std::uint32_t index = push(make(kind, Lane::Host, subject, 0));
  add_dep(index, dep);
  return index;
}

std::uint32_t StepBuilder::callback(OpKind kind, std::uint32_t subject, std::int64_t bytes, Cost cost, std::uint32_t dep) {
  Op op = make(kind, Lane::Callback, subject, bytes);
  op.traffic = cost.traffic;
  op.priced = true;
  op.kernels = cost.kernels;
  std::uint32_t index = push(op);
  add_dep(index, dep);
  return index;
}

std::uint32_t StepBuilder::host(OpKind kind) {
  Op op = make(kind, Lane::Host, kNoSubject, 0);
  op.priced = true;
  op.kernels = 0;
  return push(op);
}

}  // namespace ddpsim::strategy
