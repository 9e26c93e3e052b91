// lower: Workload + Plan -> Program. Pure; one folder per data-parallel system.
#pragma once

#include <optional>

#include "sim/model/program.h"

namespace ddpsim::systems {

// What a rank's host takes for what is offloaded to it, with all ranks of the host at work.
struct HostMemory {
  Duration latency;    // of a copy
  double copied = 0;   // bytes per picosecond to the device, or from it
  double touched = 0;  // bytes per picosecond that the host's cores read and write for this rank
  // So many copies, one after another, of so many bytes in all.
  Duration copy(std::int64_t bytes, std::int64_t copies = 1) const {
    return latency * copies + time_of(Bytes{bytes}, copied);
  }
  Duration touch(std::int64_t bytes) const { return time_of(Bytes{bytes}, touched); }
};

// A workload with the times of its step on a device: captured ones are its own, described ones come
// from a Profile (predict::step_times).
struct TimedWorkload {
  const Workload& workload;
  const StepTimes& times;
  DeviceKind device;
  int ranks;                                   // of the job: what a shard is part of
  int per_host;                                // of them, on a host
  std::optional<HostMemory> host_memory = {};  // of a plan that offloads, or has servers
  bool winograd = false;                       // convolutions of fp32 are not in TF32 (ModelMemory)
  TimedWorkload(const Workload& w, const StepTimes& t, DeviceKind d, int n,
                int devices_per_host = 1)
      : workload(w), times(t), device(d), ranks(n), per_host(devices_per_host) {}
  TimedWorkload(const Workload& w)
      : TimedWorkload(w, w.times, w.device, 1) {
  }  // NOLINT: a captured one, of a system that does not shard
};

// Steps to lower: steady alone is what sweeps play.
enum class Steps : std::uint8_t { All, SteadyOnly };

// REQUIRES: validate(plan, workload) found nothing.
Program lower(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// Everything before the steps: names, sizes, threads.
Program empty_program(const TimedWorkload& workload, const Plan& plan);
// Of a system that communicates them: frozen parameters are tensors of its Program, too, after the
// others (Workload::parameter).
void name_frozen(Program& program, const Workload& w);

// Gradients that arrive, with the device and host time of each segment of backward.
struct Segment {
  TensorIndex tensor;
  Duration device;
  Duration host;
};
struct BackwardTimeline {
  std::vector<Segment> segments;
  Duration tail_device;
  Duration tail_host;
};
// Unused parameters are merged into the segment that follows.
BackwardTimeline backward_timeline(const TimedWorkload& workload, const std::vector<bool>& unused);
// By tensor: named in the plan, or never arriving.
std::vector<bool> unused_tensors(const Workload& workload, const Plan& plan);

}  // namespace ddpsim::systems
