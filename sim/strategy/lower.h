// lower: Workload + Plan -> Program. Pure; one file per data-parallel system.
#pragma once

#include "sim/model/program.h"

namespace ddpsim::strategy {

// REQUIRES: validate(plan, workload) found nothing; workload has times (captured, or filled from a Profile by predict::timed).
Program lower(const Workload& workload, const Plan& plan);

// PyTorch DistributedDataParallel. Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp; sim/MODEL.md section 3.
Program lower_ddp(const Workload& workload, const Plan& plan);
// Plain c10d gradient averaging after backward, one collective per parameter or one for all.
Program lower_averaging(const Workload& workload, const Plan& plan);

// Everything before the steps: names, sizes, threads.
Program empty_program(const Workload& workload, const Plan& plan);

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
BackwardTimeline backward_timeline(const Workload& workload, const std::vector<bool>& unused);
// By tensor: named in the plan, or never arriving.
std::vector<bool> unused_tensors(const Workload& workload, const Plan& plan);

}  // namespace ddpsim::strategy
