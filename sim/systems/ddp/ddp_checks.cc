#include <algorithm>

#include "sim/systems/ddp/ddp.h"
#include "sim/systems/ddp/ddp_options.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/ddp/power_sgd.h"
#include "sim/systems/ddp/record.h"

namespace ddpsim::systems {

Problem check_buckets(const Plan& p) {
  if (ddp_of(p).bucket_cap_mb && !(*ddp_of(p).bucket_cap_mb > 0 && *ddp_of(p).bucket_cap_mb <= 1e6))
    return {"/plan/bucket_cap_mb", "a positive number of MiB, at most 1e6"};
  for (std::size_t i = 0; i < ddp_of(p).bucket_cap_mb_list.size(); ++i)
    if (!(ddp_of(p).bucket_cap_mb_list[i] > 0 && ddp_of(p).bucket_cap_mb_list[i] <= 1e6))
      return {"/plan/bucket_cap_mb_list/" + std::to_string(i),
              "a positive number of MiB, at most 1e6"};
  if (ddp_of(p).bucket_cap_mb && !ddp_of(p).bucket_cap_mb_list.empty())
    return {"/plan/bucket_cap_mb_list", "takes the place of bucket_cap_mb; give one of the two"};
  if (ddp_of(p).first_bucket_bytes < 1) return {"/plan/first_bucket_bytes", "at least one byte"};
  return {};
}

namespace {

// A communication hook needs reductions that the backend has.
Problem check_hook(const Plan& p, Backend b) {
  if (b == Backend::Gloo && ddp_of(p).comm_hook == CommHook::Bf16Compress &&
      !p.pytorch.has(pytorch::Change::GlooReducesBfloat16))
    return {"/plan/comm_hook", std::string("Gloo of PyTorch ") + name_of(p.pytorch) +
                                   " does not reduce bfloat16; use fp16_compress"};
  const bool halves = ddp_of(p).comm_hook == CommHook::Fp16Compress ||
                      ddp_of(p).comm_hook == CommHook::Bf16Compress;
  if (b == Backend::Mpi && halves)
    return {"/plan/comm_hook",
            "ProcessGroupMPI has no type for gradients of two bytes and stops with an error; use "
            "gloo, or no comm_hook"};
  return {};
}

// Gloo with CUDA tensors.
Problem check_staged(const Plan& p) {
  for (auto [knob, set] : {std::pair{"comm_hook", ddp_of(p).comm_hook == CommHook::PowerSgd},
                           std::pair{"optimizer_in_backward", ddp_of(p).optimizer_in_backward},
                           std::pair{"sync_batch_norm", ddp_of(p).sync_batch_norm},
                           std::pair{"process_group_size", ddp_of(p).process_group_size > 0}})
    if (set)
      return {std::string("/plan/") + knob,
              "gloo with CUDA tensors (copies through the hosts' memory) is modelled without it; "
              "use nccl"};
  return {};
}

// PyTorch stops where a parameter gets no gradient and nothing looks for it.
Problem check_unused(const Plan& p, const Workload& w) {
  if (ddp_of(p).find_unused_parameters || ddp_of(p).static_graph) return {};
  const std::vector<bool> unused = unused_tensors(w, p);
  std::string first;
  for (std::size_t i = 0; i < w.tensors.size(); ++i)
    if (unused[i] && (first.empty() || w.tensors[i].name < first)) first = w.tensors[i].name;
  if (first.empty()) return {};
  return {"/plan/unused_parameters",
          "parameter \"" + first +
              "\" never gets a gradient: PyTorch DDP stops with an error unless "
              "find_unused_parameters or static_graph is true (--set find_unused_parameters=true)"};
}

Problem check_power_sgd_knobs(const DdpPlan& d, const Workload& w, Backend b) {
  const bool power = d.comm_hook == CommHook::PowerSgd;
  const DdpPlan plain;
  if (!power)
    for (auto [knob, set] :
         {std::pair{"matrix_approximation_rank",
                    d.matrix_approximation_rank != plain.matrix_approximation_rank},
          std::pair{"start_powerSGD_iter", d.start_powerSGD_iter != plain.start_powerSGD_iter},
          std::pair{"min_compression_rate", d.min_compression_rate.has_value()},
          std::pair{"use_error_feedback", !d.use_error_feedback},
          std::pair{"warm_start", !d.warm_start}})
      if (set)
        return {std::string("/plan/") + knob, "is of PowerSGDState (--set comm_hook=powerSGD)"};
  if (d.matrix_approximation_rank < 1 || d.matrix_approximation_rank > 4096)
    return {"/plan/matrix_approximation_rank", "1 to 4,096 columns"};
  if (d.start_powerSGD_iter < 0 || d.start_powerSGD_iter > 1'000'000'000)
    return {"/plan/start_powerSGD_iter", "2 to 1e9 steps that are reduced as without the hook"};
  if (d.start_powerSGD_iter <= 1)
    return {"/plan/start_powerSGD_iter",
            "at least 2: PyTorch refuses less with use_error_feedback or warm_start, since buckets "
            "change after the first step"};
  if (d.min_compression_rate && !(*d.min_compression_rate >= 0 && *d.min_compression_rate <= 1e9))
    return {"/plan/min_compression_rate", "0 to 1e9: elements before over elements after"};
  if (w.cuda_graphs && (power || d.join))
    return {
        "/workload",
        "a step with powerSGD or join waits for the device on the host, and is not replayed as a "
        "CUDA graph (cuda_graphs=false)"};
  if (power && (b == Backend::Tcp || b == Backend::Mpi))
    return {"/plan/comm_hook", std::string("powerSGD over ") +
                                   (b == Backend::Tcp ? "ddpsim's own executor" : "MPI") +
                                   " is not modelled; use nccl or gloo"};
  return {};
}

Problem check_update_in_backward(const Plan& p, const Workload& w, bool gpu) {
  const DdpPlan& d = ddp_of(p);
  if (!d.optimizer_in_backward) return {};
  if (gpu && !p.pytorch.has(pytorch::Change::OptimizerInBackwardOnGpus))
    return {"/plan/optimizer_in_backward",
            std::string("is modelled as of PyTorch ") +
                first_with(pytorch::Change::OptimizerInBackwardOnGpus)};
  if (p.system != kDdpSystem)
    return {"/plan/optimizer_in_backward",
            "ZeroRedundancyOptimizer updates after backward; leave out one of the two"};
  if (d.comm_hook != CommHook::None)
    return {"/plan/optimizer_in_backward",
            "takes the place of a comm_hook; leave out one of the two"};
  if (p.accumulation_steps > 1)
    return {"/plan/optimizer_in_backward",
            "updates in every backward: PyTorch refuses it together with no_sync, and without it "
            "micro-steps would each update"};
  if (loop_work(w).clip > 0 || loop_work(w).unscale > 0)
    return {"/plan/optimizer_in_backward",
            "has updated a parameter before the norm of all gradients is known: without clipping "
            "and without a GradScaler (--set workload.loop={})"};
  return {};
}

Problem check_skipping(const Plan& p) {
  const DdpPlan& d = ddp_of(p);
  if (!d.skip_all_reduce_unused_params) return {};
  if (!p.pytorch.has(pytorch::Change::SkipsUnusedBuckets))
    return {"/plan/skip_all_reduce_unused_params",
            "PyTorch 2.8 is the first to have it (#151503): --set pytorch=2.8"};
  if (!d.find_unused_parameters || d.static_graph)
    return {"/plan/skip_all_reduce_unused_params",
            "skips buckets whose parameters the search found unused, and there is no search (--set "
            "find_unused_parameters=true)"};
  return {};
}

Problem check_process_group(const Plan& p) {
  const DdpPlan& d = ddp_of(p);
  if (d.process_group_stride != 1 && d.process_group_size == 0)
    return {"/plan/process_group_stride", "is of process_group_size (--set process_group_size=4)"};
  if (d.process_group_size != 0) {
    if (d.process_group_size < 2 || d.process_group_size > 1'000'000)
      return {"/plan/process_group_size", "0 (all ranks) or 2 and more"};
    if (d.process_group_stride < 1 || d.process_group_stride > 1'000'000)
      return {"/plan/process_group_stride", "1 or more: how far the next rank of a group is"};
    if (p.system != kDdpSystem || d.join || d.sync_batch_norm)
      return {"/plan/process_group_size",
              "groups are modelled of plain DDP: without ZeroRedundancyOptimizer, join and "
              "sync_batch_norm, whose own groups are all ranks unless told otherwise"};
  }
  return {};
}

Problem check_synced_norms(const DdpPlan& d, const Workload& w, bool gpu) {
  if (!d.sync_batch_norm) return {};
  auto is_norm = [](const Layer& l) { return l.op.kind == "batch_norm" && !l.tensors.empty(); };
  if (!gpu) return {"/plan/sync_batch_norm", "SyncBatchNorm expects input on a GPU (PyTorch)"};
  if (w.layers.empty())
    return {"/plan/sync_batch_norm",
            "synchronises inside forward, and a capture knows forward only as a whole: use a "
            "described workload (ddpsim list workloads)"};
  if (std::none_of(w.layers.begin(), w.layers.end(), is_norm))
    return {"/plan/sync_batch_norm", "the workload has no batch norm"};
  if (d.join)
    return {"/plan/join",
            "knows only DDP's own collectives: PyTorch refuses SyncBatchNorm inside join, unless "
            "it ends with the first rank"};
  return {};
}

Problem check_join(const Plan& p) {
  const DdpPlan& d = ddp_of(p);
  if (!d.divide_by_initial_world_size && !d.join)
    return {"/plan/divide_by_initial_world_size", "is of join (--set join=true)"};
  if (d.joined_ranks != 0 && !d.join) return {"/plan/joined_ranks", "is of join (--set join=true)"};
  if (d.joined_ranks != 0 && p.system != kDdpSystem)
    return {"/plan/joined_ranks",
            "is modelled of plain DDP: with ZeroRedundancyOptimizer a rank without inputs still "
            "updates its share"};
  if (d.joined_ranks < 0 || d.joined_ranks > 1'000'000)
    return {"/plan/joined_ranks", "0 to all ranks but one"};
  if (d.join && p.accumulation_steps > 1)
    return {"/plan/join", "is modelled with a backward in each step (accumulation_steps=1)"};
  return {};
}

}  // namespace

Problem validate_ddp(const Plan& p, const Workload& w, DeviceKind device) {
  const DdpPlan& d = ddp_of(p);
  const bool gpu = device == DeviceKind::Gpu;
  const Backend b = backend_of(p, device);
  if (Problem problem = check_buckets(p)) return problem;
  if (Problem problem = check_hook(p, b)) return problem;
  if (stages_collectives(p, device))
    if (Problem problem = check_staged(p)) return problem;
  if (w.cuda_graphs && d.find_unused_parameters)
    return {"/workload",
            "a step with find_unused_parameters is not replayed as a CUDA graph: its host decides "
            "while it runs (cuda_graphs=false)"};
  if (Problem problem = check_power_sgd_knobs(d, w, b)) return problem;
  if (d.batched_grad_copy && !p.pytorch.has(pytorch::Change::CopiesGradientsTogether))
    return {"/plan/batched_grad_copy", "PyTorch 2.12 is the first to have it (--set pytorch=2.12)"};
  if (Problem problem = check_update_in_backward(p, w, gpu)) return problem;
  if (Problem problem = check_skipping(p)) return problem;
  if (Problem problem = check_process_group(p)) return problem;
  if (Problem problem = check_synced_norms(d, w, gpu)) return problem;
  if (Problem problem = check_join(p)) return problem;
  return check_unused(p, w);
}

Problem check_ddp_job(const Plan& p, const Workload& w, DeviceKind device, int ranks,
                      int per_host) {
  Problem problem = check_ddp_ranks(p, ranks, per_host);
  return problem ? problem : check_power_sgd(p, w, device);
}

}  // namespace ddpsim::systems
