// lower: Workload + Plan -> Program. Pure; one file per data-parallel system.
#pragma once

#include <optional>

#include "sim/model/program.h"

namespace ddpsim::strategy {

// What a rank's host takes for what is offloaded to it, with all ranks of the host at work.
struct HostMemory {
  Duration latency;    // of a copy
  double copied = 0;   // bytes per picosecond to the device, or from it
  double touched = 0;  // bytes per picosecond that the host's cores read and write for this rank
  // So many copies, one after another, of so many bytes in all.
  Duration copy(std::int64_t bytes, std::int64_t copies = 1) const {
    return latency * copies + Duration{ceil_ps(static_cast<double>(bytes), copied)};
  }
  Duration touch(std::int64_t bytes) const {
    return {ceil_ps(static_cast<double>(bytes), touched)};
  }
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

// PyTorch DistributedDataParallel. Source: torch/nn/parallel/distributed.py,
// torch/csrc/distributed/c10d/reducer.cpp; docs/model.md section 3.
Program lower_ddp(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);
// Plain c10d gradient averaging after backward, one collective per parameter or one for all.
Program lower_averaging(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// PyTorch FullyShardedDataParallel (FSDP1). Steps after the first, which finds out the order of
// units, are alike: there is no warm-up. REQUIRES: workload.times.layers.
Program lower_fsdp(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// PyTorch fully_shard (FSDP2): as FSDP1, without a warm-up. REQUIRES: workload.times.layers.
Program lower_fsdp2(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// Horovod's DistributedOptimizer: forward, backward with a request at each gradient, the wait for
// all, the optimizer. What is reduced together is not in the Program: Program::coordination says
// how it is decided.
Program lower_horovod(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// DeepSpeed ZeRO, by its stage. Steps after the first are alike: DeepSpeed's own timer begins with
// the third, and stage 3 prefetches from the second on. REQUIRES: of stage 3,
// workload.times.layers.
Program lower_zero(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// PyTorch's ZeroRedundancyOptimizer over DistributedDataParallel: optimizer state in shards.
Program lower_zero_redundancy(const TimedWorkload& workload, const Plan& plan,
                              Steps steps = Steps::All);

// Megatron-LM's DistributedDataParallel and distributed optimizer. The first step reduces after
// backward and gathers nothing. REQUIRES: with overlap_param_gather, workload.times.layers.
Program lower_megatron(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// NVIDIA Apex's DistributedDataParallel. The first step records the order of gradients and reduces
// after backward.
Program lower_apex(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// PyTorch nn.DataParallel: one process on one host. REQUIRES: ranks are devices of one host.
Program lower_data_parallel(const TimedWorkload& workload, const Plan& plan,
                            Steps steps = Steps::All);

// Local SGD and DiLoCo: a step is a round, of accumulation_steps batches with an update each.
Program lower_local_sgd(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// TensorFlow's MirroredStrategy and MultiWorkerMirroredStrategy. Steps after the first, which
// builds the graph, are alike: there is no warm-up.
Program lower_mirrored(const TimedWorkload& workload, const Plan& plan, Steps steps = Steps::All);

// Parameter servers: a worker's step. Steps are alike: there is no warm-up.
Program lower_parameter_server(const TimedWorkload& workload, const Plan& plan,
                               Steps steps = Steps::All);

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

}  // namespace ddpsim::strategy
