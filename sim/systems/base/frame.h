// Frame is what the lowering of a system that keeps gradients whole begins with, and the parts of
// a step that such systems share.
#pragma once

#include <utility>
#include <vector>

#include "sim/systems/base/builder.h"

namespace ddpsim::systems {

struct Frame {
  // `timed` and `plan` are there as long as the frame.
  Frame(const TimedWorkload& timed, const Plan& plan, bool winograd = false);
  Frame(const Frame&) = delete;

  const Workload& w;
  const StepTimes& times;
  const Plan& plan;
  const std::vector<bool> unused;  // by tensor: gets no gradient
  const BackwardTimeline timeline;
  const ModelMemory memory;
  const bool set_to_none;  // zero_grad frees gradients
  Program program;         // resident: weights, states, gradients that stay

  std::int64_t bytes_of(TensorIndex t) const { return program.tensor_bytes[t]; }
  // Gradients of the step before are there.
  bool keeps_gradients(StepKind kind) const { return !set_to_none && kind != StepKind::First; }

  // The Program of what `step` makes: a first step unless it is not asked for, and a steady one.
  template <class Step>
  Program run(Steps steps, Step step) {
    if (steps == Steps::All) program.warmup.push_back(step(StepKind::First));
    program.steady = step(StepKind::Steady);
    return std::move(program);
  }

  // `micro(m, last)` for each micro-step, whose operations bear its number.
  template <class Micro>
  void micro_steps(StepBuilder& b, Micro micro) const {
    for (int m = 0; m < plan.accumulation_steps; ++m) {
      if (plan.accumulation_steps > 1) b.set_micro(m);
      micro(m, m + 1 == plan.accumulation_steps);
    }
    b.set_micro(-1);
  }

  // Backward, gradient by gradient. `adds`: each is added to one that is there. `made(t, op)` after
  // each operation that makes part of a gradient, `ready(t)` when it is there.
  template <class Made, class Ready>
  void backward(StepBuilder& b, bool adds, Made made, Ready ready) const {
    for (const Segment& s : timeline.segments) {
      b.host_time(s.host);
      if (s.device.ps > 0) made(s.tensor, b.main(kBackward, s.tensor, 0, {.duration = s.device}));
      b.gradient(s.tensor, !adds);
      if (adds) made(s.tensor, accumulate(b, s.tensor));
      ready(s.tensor);
    }
    backward_tail(b);
  }
  template <class Ready>
  void backward(StepBuilder& b, bool adds, Ready ready) const {
    backward(
        b, adds, [](TensorIndex, std::uint32_t) {}, ready);
  }
  std::uint32_t accumulate(StepBuilder& b, TensorIndex t) const;
  // The rest of backward, behind the last gradient.
  void backward_tail(StepBuilder& b) const;
};

}  // namespace ddpsim::systems
