#include "sim/systems/parameter_server/parameter_server.h"
#include "sim/systems/parameter_server/plan.h"

namespace ddpsim::systems {

Problem validate_parameter_server(const Plan& p, const Workload& w, DeviceKind) {
  const ParameterServerPlan& s = parameter_server_of(p);
  if (p.backend && *p.backend != Backend::Tcp)
    return {"/plan/backend",
            "workers and servers send one another messages over the network (tcp); leave it out"};
  if (s.servers < 1 || s.servers > kMostServers)
    return {"/plan/servers", "1 to " + std::to_string(kMostServers) + " servers"};
  if (s.staleness < -1 || s.staleness > 1'000'000)
    return {"/plan/staleness", "steps ahead of the slowest worker: 0 to 1,000,000, or -1 (any)"};
  if (s.synchronous && s.staleness != -1)
    return {"/plan/staleness",
            "is of workers that go at their own pace; synchronous ones are in the same step (leave "
            "out one of the two)"};
  if (s.max_shards < 0 || s.max_shards > 100'000)
    return {"/plan/max_shards", "shards of a variable: 1 to 100,000; 0 = as many as servers"};
  if (s.shard_bytes < 1 || s.shard_bytes > std::int64_t{1} << 40)
    return {"/plan/shard_bytes", "1 to 2^40 bytes"};
  const ParameterServerPlan initial;
  const VariablePartitioner how = s.variable_partitioner;
  if (how == VariablePartitioner::None && s.max_shards != initial.max_shards)
    return {"/plan/max_shards",
            "is of a variable_partitioner (fixed_shards, min_size or max_size), and the plan has "
            "none"};
  if (how != VariablePartitioner::MinSize && how != VariablePartitioner::MaxSize &&
      s.shard_bytes != initial.shard_bytes)
    return {"/plan/shard_bytes", "is of variable_partitioner min_size and max_size"};
  if (loop_work(w).clip > 0 || loop_work(w).unscale > 0)
    return {"/workload/loop",
            "servers update each variable when its gradient is there, and no worker has the "
            "gradients of all: without clipping and without a GradScaler (--set workload.loop={}, "
            "workload.precision=bf16)"};
  if (w.casting == Casting::MasterWeights)
    return {"/workload/casting",
            "servers have the only copy of weights: workload.casting=autocast, or pure"};
  if (w.compile != Compile::None)
    return {"/workload/compile",
            "torch.compile is PyTorch's; what one device takes for a step can be given "
            "(--measured-step 97ms), with workload.compile=none"};
  return {};
}

}  // namespace ddpsim::systems
