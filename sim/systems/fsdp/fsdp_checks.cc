#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp/wrapping.h"

namespace ddpsim::systems {

Problem validate_units(const Plan& p, const Workload& w, DeviceKind device) {
  const std::string name = p.system.name();
  if (!on_gpus(p, device)) return {"/plan/system", name + " is modelled on GPUs, over NCCL"};
  if (w.layers.empty())
    return {
        "/plan/system",
        name +
            " gathers weights layer by layer, and this capture knows forward only as a whole: "
            "capture it again (tools/python/ddpsim_capture.py notes when each layer begins, and "
            "ddpsim import kineto, of a trace with sequence numbers), or use a described "
            "workload (ddpsim list workloads)"};
  if (!p.unused_parameters.empty())
    return {"/plan/unused_parameters",
            "parameters without a gradient are modelled for pytorch_ddp and averaging only"};
  if (Problem problem = check_wrapping(fsdp_of(p), w)) return problem;
  return check_frozen_units(p, w);
}

Problem validate_fsdp(const Plan& p, const Workload& w, DeviceKind device) {
  if (Problem problem = validate_units(p, w, device)) return problem;
  if (!p.pytorch.has(pytorch::Change::Fsdp))
    return {"/plan/pytorch", std::string("FullyShardedDataParallel is modelled as of PyTorch ") +
                                 first_with(pytorch::Change::Fsdp) + " and later"};
  return {};
}

}  // namespace ddpsim::systems
