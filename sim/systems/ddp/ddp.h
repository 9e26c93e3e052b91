// PyTorch DDP under another optimizer step: forward, backward and the reduction of its buckets are
// DDP's, what follows is somebody else's.
#pragma once

#include <functional>

#include "sim/systems/base/builder.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp; docs/model.md
// section 3.
Program lower_ddp(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> ddp_words();
std::span<const KnobRecord> ddp_knobs();
std::vector<Operation> ddp_operations(const Plan& p);
// Checks of plans that have DDP's knobs (ddp_checks.cc).
Problem check_buckets(const Plan& p);
Problem validate_ddp(const Plan& p, const Workload& w, DeviceKind device);
Problem check_ddp_job(const Plan& p, const Workload& w, DeviceKind device, int ranks, int per_host);
// DDP's words for a plan (ddp_says.cc); SystemRecord says what each is.
std::string ddp_heading(const Plan& plan, DeviceKind device);
std::vector<PlanChange> ddp_levers(const Plan& plan, const Workload& w);
std::vector<PlanChange> ddp_extremes(const Plan& plan);
std::vector<std::string> ddp_script(const Plan& plan, const Workload& w, DeviceKind device,
                                    int ranks, int per_host);
std::vector<std::string> ddp_warnings(const Plan& plan);
const char* ddp_schedule_of(const Plan& plan);

// Adds what a rank does from its reduced gradients to the next forward.
using UpdateStep = std::function<void(StepBuilder&)>;
Program lower_on_ddp(const TimedWorkload& workload, const Plan& plan, Steps steps,
                     const UpdateStep& update);

// Several of DDP's steps as one, once its buckets are made: rounds of post-local SGD. Gradients are
// reduced within groups (Program::groups[group - 1]) by PyTorch's post-local SGD hook, or stay
// where they are (post_local_gradient_allreduce=False); steps before are over all ranks.
struct DdpRound {
  int batches = 0;  // 0 = no rounds
  std::vector<RankGroups> groups = {};
  std::uint8_t group = 0;
  bool reduces = true;
};
// The same for batch `batch` of a round; -1: of a step before the rounds.
using BatchUpdate = std::function<void(StepBuilder&, int batch)>;
Program lower_rounds_on_ddp(const TimedWorkload& workload, const Plan& plan, Steps steps,
                            const DdpRound& round, const BatchUpdate& update);

}  // namespace ddpsim::systems
