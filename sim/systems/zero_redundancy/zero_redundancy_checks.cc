#include "sim/systems/ddp/ddp.h"
#include "sim/systems/zero_redundancy/plan.h"
#include "sim/systems/zero_redundancy/zero_redundancy.h"

namespace ddpsim::systems {

// What torch/distributed/optim/zero_redundancy_optimizer.py refuses, and what is not modelled.
Problem validate_zero_redundancy(const Plan& p, const Workload& w, DeviceKind device) {
  if (zero_redundancy_of(p).overlap_with_ddp)
    return {"/plan/overlap_with_ddp",
            backend_of(p, device) == Backend::Gloo
                ? "PyTorch refuses it over gloo (\"currently requires NCCL/HCCL backend to avoid "
                  "hangs\"); leave it out"
                : "updating parameters inside DDP's communication hook (hook_with_zero_step) is "
                  "not modelled: no run of it is at hand; leave it out"};
  for (const Tensor& t : w.tensors)
    if (t.dtype != w.tensors.front().dtype)
      return {"/plan/system",
              std::string("ZeroRedundancyOptimizer only supports using the same dense type for "
                          "all parameters, and this workload has ") +
                  name_of(w.tensors.front().dtype) + " (" + w.tensors.front().name + ") and " +
                  name_of(t.dtype) + " (" + t.name + ")"};
  if (w.casting == Casting::MasterWeights)
    return {"/workload/casting",
            "ZeroRedundancyOptimizer keeps optimizers of torch.optim, which have no master copies "
            "of weights (workload.casting=autocast)"};
  return validate_ddp(p, w, device);
}

}  // namespace ddpsim::systems
