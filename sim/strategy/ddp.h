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

}  // namespace ddpsim::strategy
