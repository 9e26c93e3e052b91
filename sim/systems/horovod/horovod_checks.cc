#include <string>
#include <tuple>
#include <utility>

#include "sim/systems/horovod/horovod.h"
#include "sim/systems/horovod/plan.h"

namespace ddpsim::systems {
namespace {

// Settings that the plan's release does not know.
Problem check_settings(const HorovodPlan& h) {
  using horovod::Change;
  const std::tuple<const char*, bool, Change> later[] = {
      {"groups", h.groups > 0, Change::Groups},
      {"HOROVOD_DISABLE_GROUP_FUSION", h.disable_group_fusion, Change::Groups},
      {"HOROVOD_ENABLE_ASYNC_COMPLETION", h.enable_async_completion, Change::AsyncCompletion},
      {"HOROVOD_TORUS_ALLREDUCE", h.torus_allreduce, Change::TorusAllreduce}};
  for (const auto& [name, set, change] : later)
    if (set && !h.release.has(change))
      return {std::string("/plan/") + name,
              "is of Horovod " + horovod::Version::first_with(change) +
                  " and later, and the plan's is " + h.release.name()};
  return {};
}

}  // namespace

Problem validate_horovod(const Plan& p, const Workload& w, DeviceKind device) {
  if (backend_of(p, device) == Backend::Tcp)
    return {"/plan/backend",
            "is ddpsim's own executor, which plays what was decided before; what Horovod reduces "
            "together is decided while it runs (predicted over nccl on GPUs and gloo on CPUs)"};
  const HorovodPlan& h = horovod_of(p);
  if (Problem problem = check_settings(h)) return problem;
  if (h.cycle_time && !(*h.cycle_time >= 0 && *h.cycle_time <= 1e4))
    return {"/plan/HOROVOD_CYCLE_TIME", "0 to 10,000 ms"};
  if (h.fusion_threshold < 0 || h.fusion_threshold > (std::int64_t{1} << 40))
    return {"/plan/HOROVOD_FUSION_THRESHOLD", "0 to 1 TiB, in bytes"};
  if (h.cache_capacity < 0 || h.cache_capacity > 1'000'000)
    return {"/plan/HOROVOD_CACHE_CAPACITY", "0 to 1,000,000 tensors"};
  const std::int64_t gradients = w.arrival.size();
  if (h.groups < 0 || h.groups > gradients)
    return {"/plan/groups", "0 (none) to the number of gradients, " + std::to_string(gradients)};
  if (device != DeviceKind::Gpu) {
    const std::pair<const char*, bool> of_gpus[] = {
        {"HOROVOD_HIERARCHICAL_ALLREDUCE", h.hierarchical_allreduce},
        {"HOROVOD_TORUS_ALLREDUCE", h.torus_allreduce},
        {"HOROVOD_NUM_NCCL_STREAMS", h.num_nccl_streams != 1},
        {"HOROVOD_ENABLE_ASYNC_COMPLETION", h.enable_async_completion}};
    for (const auto& [name, set] : of_gpus)
      if (set)
        return {std::string("/plan/") + name,
                "is about NCCL on GPUs, and without effect on CPUs: leave it at its default"};
    if (h.adasum)
      return {"/plan/op",
              "Adasum on CPUs is Open MPI's alone (Gloo has none); it is modelled on "
              "GPUs: a cluster of them, or op=average"};
  }
  if (h.hierarchical_allreduce && h.torus_allreduce)
    return {"/plan/HOROVOD_TORUS_ALLREDUCE",
            "is without effect beside HOROVOD_HIERARCHICAL_ALLREDUCE, which Horovod asks first: "
            "set one of the two"};
  if (h.num_nccl_streams < 1 || h.num_nccl_streams > kMostHorovodStreams)
    return {"/plan/HOROVOD_NUM_NCCL_STREAMS",
            "1 to " + std::to_string(kMostHorovodStreams) + " streams"};
  if (h.adasum && (h.hierarchical_allreduce || h.torus_allreduce))
    return {h.torus_allreduce ? "/plan/HOROVOD_TORUS_ALLREDUCE"
                              : "/plan/HOROVOD_HIERARCHICAL_ALLREDUCE",
            "is about averages; Adasum always reduces in hosts first (op=average, or neither)"};
  if (h.adasum && h.groups > 0)
    return {"/plan/groups", "Horovod's optimizer for Adasum takes no groups (groups=0)"};
  if (const LoopWork loop = loop_work(w); h.adasum && (loop.unscale > 0 || loop.clip > 0))
    return {"/workload/loop",
            "with Adasum parameters are updated in hooks, before a loop could unscale or clip "
            "(Horovod: \"Skipping synchronization is not supported when using Adasum "
            "optimizer\"): op=average"};
  if (h.disable_group_fusion && h.groups == 0)
    return {"/plan/HOROVOD_DISABLE_GROUP_FUSION", "there are no groups (groups=N)"};
  return {};
}

}  // namespace ddpsim::systems
