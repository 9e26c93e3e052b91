// What a plan of one system asks for and that system refuses, or that is not modelled; parts of
// validate(plan, workload, device).
#pragma once

#include "sim/model/plan.h"

namespace ddpsim {

// `gpus`: the job computes on GPUs, over NCCL or ddpsim's own executor.
// apex.parallel.DistributedDataParallel: apex/parallel/distributed.py, __init__ and create_hooks.
Problem check_apex(const Plan& p, const Workload& w, bool gpus);
// torch.nn.DataParallel.
Problem check_data_parallel(const Plan& p, DeviceKind device);
// TensorFlow's MirroredStrategy and MultiWorkerMirroredStrategy.
Problem check_mirrored(const Plan& p, const Workload& w, DeviceKind device);
// Parameter servers.
Problem check_parameter_server(const Plan& p, const Workload& w);
// Model averaging, post-local SGD, and DiLoCo.
Problem check_local_sgd(const Plan& p, const Workload& w);
// DistributedDataParallel's knobs that its buckets do not depend on (Plan::ddp, comm_hook).
Problem check_ddp(const Plan& p, const Workload& w, DeviceKind device);
// REQUIRES: stages_collectives(p, device).
Problem check_gloo_on_gpus(const Plan& p, const Workload& w);

}  // namespace ddpsim
