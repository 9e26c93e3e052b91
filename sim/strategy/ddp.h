// PyTorch DDP under another optimizer step: forward, backward and the reduction of its buckets are
// DDP's, what follows is somebody else's.
#pragma once

#include <functional>

#include "sim/strategy/builder.h"
#include "sim/strategy/lower.h"

namespace ddpsim::strategy {

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

}  // namespace ddpsim::strategy
