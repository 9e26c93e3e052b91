// One iteration on a GPU's streams.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "sim/analysis/trace.h"

namespace ddpsim::analysis {

// Whether a device computed anything that the iteration enqueued.
bool on_a_device(const Trace& trace, const Iteration& iteration);

struct DeviceStep {
  StepTimes times;
  Duration hooks;           // kernels of DDP during backward
  TimePoint forward_begin;  // as in TracedStep
  TimePoint forward_end;
  TimePoint gradients_end;
  TimePoint reduced;
  TimePoint update_end;
  std::vector<TimePoint> arrived;
  std::array<Duration, 3> waits{};  // of the host, for the device: in forward, backward, update
};
// `at`, `done`: on the host, when each gradient was accumulated and its hooks had run.
DeviceStep device_step(const Trace& trace, const Iteration& iteration,
                       std::optional<Iteration> before, const TracedStep& host,
                       const std::vector<TimePoint>& at, const std::vector<TimePoint>& done);
// A phase ("forward", "backward", "the update") of a step on a device in which the host calls the
// runtime, or of which nothing tells when it did, and whose work is not in the trace; nullptr:
// none.
const char* phase_without_work(const Trace& trace, const TracedStep& step);
// Time in which the device computes, merged and sorted, of what begins in [from, to).
std::vector<std::pair<TimePoint, TimePoint>> computing(const Trace& trace, TimePoint from,
                                                       TimePoint to);

// Of [from, to): when the device computes nothing because the host has not enqueued its next kernel
// yet, and waits for nothing itself; sorted, apart.
std::vector<std::pair<TimePoint, TimePoint>> late_host(const Trace& trace, TimePoint from,
                                                       TimePoint to);

}  // namespace ddpsim::analysis
