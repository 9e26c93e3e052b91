#include "sim/systems/base/frame.h"

namespace ddpsim::systems {

Frame::Frame(const TimedWorkload& timed, const Plan& of, bool winograd)
    : w(timed.workload),
      times(timed.times),
      plan(of),
      unused(unused_tensors(timed.workload, of)),
      timeline(backward_timeline(timed, unused)),
      memory(timed.workload, false, winograd && timed.winograd),
      set_to_none(of.set_to_none.value_or(of.pytorch.has(pytorch::Change::ZeroGradSetsToNone))),
      program(empty_program(timed, of)) {
  program.resident = resident(w, !set_to_none);
  program.activations_known = memory.known();
}

std::uint32_t Frame::accumulate(StepBuilder& b, TensorIndex t) const {
  return b.main(kAccumulate, t, bytes_of(t), {.traffic = 3 * bytes_of(t)});
}

void Frame::backward_tail(StepBuilder& b) const {
  b.host_time(timeline.tail_host);
  if (timeline.tail_device.ps > 0)
    b.main(kBackwardTail, kNoSubject, 0, {.duration = timeline.tail_device});
  b.gradient(StepBuilder::kNoTensor, false);
}

}  // namespace ddpsim::systems
