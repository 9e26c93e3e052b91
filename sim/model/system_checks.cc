#include "sim/model/system_checks.h"

#include <algorithm>

namespace ddpsim {

Problem check_apex(const Plan& p, const Workload& w, bool gpus) {
  const ApexPlan& a = p.apex;
  if (!gpus)
    return {"/plan/system",
            "apex is modelled on GPUs, over NCCL: it reduces on CUDA streams (pytorch_ddp takes "
            "CPUs and gloo)"};
  if (a.message_size < 1 || a.message_size > std::int64_t{1} << 40)
    return {"/plan/message_size", "1 to 2^40 elements (Apex counts elements, not bytes)"};
  if (a.num_allreduce_streams < 1 || a.num_allreduce_streams > kMostApexStreams)
    return {"/plan/num_allreduce_streams",
            "1 to " + std::to_string(kMostApexStreams) + " streams, each with a communicator"};
  if (a.delay_allreduce && a.num_allreduce_streams > 1)
    return {"/plan/num_allreduce_streams",
            "more than one only without delay_allreduce (Apex: \"may only be used if "
            "delay_allreduce=False\"); leave out one of the two"};
  if (a.delay_allreduce && !a.allreduce_trigger_params.empty())
    return {"/plan/allreduce_trigger_params",
            "\"is only valid if delay_allreduce=False\" (Apex); leave out one of the two"};
  if (!a.allreduce_trigger_params.empty() && a.message_size != ApexPlan{}.message_size)
    return {"/plan/message_size", "is ignored by Apex where allreduce_trigger_params is given"};
  for (std::size_t i = 0; i < a.allreduce_trigger_params.size(); ++i) {
    const std::string& name = a.allreduce_trigger_params[i];
    auto is_it = [&](const Tensor& t) { return t.name == name; };
    if (std::none_of(w.tensors.begin(), w.tensors.end(), is_it))
      return {"/plan/allreduce_trigger_params/" + std::to_string(i),
              "the workload has no parameter \"" + name + "\""};
  }
  if (a.gradient_predivide_factor &&
      !(*a.gradient_predivide_factor > 0 && *a.gradient_predivide_factor <= 1e9))
    return {"/plan/gradient_predivide_factor", "a positive number, at most 1e9"};
  if (a.disable_allreduce && p.accumulation_steps == 1)
    return {"/plan/disable_allreduce",
            "is of micro-steps before the last, and there is one (--set accumulation_steps=4)"};
  for (const Tensor& t : w.tensors)
    if (t.dtype == DType::BFloat16)
      return {"/plan/system",
              "Apex's DDP sorts gradients into half, float and double, and stops at bfloat16 (" +
                  t.name + ") with a KeyError: fp16, or autocast with weights of four bytes"};
  return {};
}

Problem check_data_parallel(const Plan& p, DeviceKind device) {
  if (device != DeviceKind::Gpu || backend_of(p, device) != Backend::Nccl)
    return {"/plan/system",
            "nn.DataParallel copies between the GPUs of one process, over NCCL (on CPUs, and over "
            "other backends: pytorch_ddp)"};
  return {};
}

Problem check_mirrored(const Plan& p, const Workload& w, DeviceKind device) {
  const MirroredPlan& m = p.mirrored;
  const bool collective = m.cross_device_ops == CrossDeviceOps::CollectiveAllReduce;
  Plan free = p;
  free.backend.reset();
  if (p.backend && *p.backend != backend_of(free, device))
    return {"/plan/backend", std::string("follows from implementation, which makes it ") +
                                 name_of(backend_of(free, device)) +
                                 " here (NCCL: nccl; RING and AUTO: tcp); leave it out"};
  if (!collective && device == DeviceKind::Cpu)
    return {"/plan/cross_device_ops", "is modelled on GPUs; on CPUs: collective_all_reduce"};
  if (device == DeviceKind::Cpu && m.implementation == TensorflowCollective::Nccl)
    return {"/plan/implementation", "NCCL needs GPUs; on CPUs: RING"};
  if (!collective && m.implementation)
    return {
        "/plan/implementation",
        "is of cross_device_ops collective_all_reduce; the others are NCCL's, or copies between "
        "GPUs"};
  if (!collective && m.bytes_per_pack != 0)
    return {"/plan/bytes_per_pack",
            "is of cross_device_ops collective_all_reduce; the others pack by num_packs"};
  if (!collective && m.eager)
    return {"/plan/eager", "is modelled of cross_device_ops collective_all_reduce"};
  if (m.bytes_per_pack < 0 || m.bytes_per_pack > std::int64_t{1} << 40)
    return {"/plan/bytes_per_pack", "0 (one pack) to 2^40 bytes"};
  const bool packs = m.cross_device_ops == CrossDeviceOps::NcclAllReduce ||
                     m.cross_device_ops == CrossDeviceOps::HierarchicalCopyAllReduce;
  if (!packs && m.num_packs != MirroredPlan{}.num_packs)
    return {"/plan/num_packs",
            "is of cross_device_ops nccl_all_reduce and hierarchical_copy_all_reduce; "
            "collective_all_reduce packs by bytes_per_pack"};
  constexpr std::int64_t kMostPacks = 10'000;
  if (m.num_packs < 0 || m.num_packs > std::min(kMostPacks, w.elements()))
    return {"/plan/num_packs",
            "0 (each gradient by itself) to 10,000, and at most an element each"};
  for (const Tensor& t : w.tensors)
    if (t.dtype != w.tensors.front().dtype && !m.eager && m.num_packs > 0)
      return {"/plan/system",
              "TensorFlow concatenates gradients of one type, and this workload has two (" +
                  t.name + " is " + name_of(t.dtype) +
                  "): --set eager=true reduces them one by one"};
  if (w.compile != Compile::None)
    return {"/workload/compile",
            "torch.compile is PyTorch's, and XLA is not modelled; what one device takes for a step "
            "can be given (--measured-step 97ms), with workload.compile=none"};
  return {};
}

Problem check_parameter_server(const Plan& p, const Workload& w) {
  const ParameterServerPlan& s = p.parameter_server;
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

namespace {

Problem check_averaging(const LocalSgdPlan& l, std::int64_t steps) {
  const auto& periods = l.averaging_periods;
  if (periods.empty() && l.averaging_group_sizes.empty()) return {};
  if (periods.size() != l.averaging_group_sizes.size())
    return {"/plan/averaging_group_sizes",
            "one for each of averaging_periods: " + std::to_string(periods.size()) + ", not " +
                std::to_string(l.averaging_group_sizes.size())};
  if (periods.size() > 6) return {"/plan/averaging_periods", "at most 6 levels"};
  if (periods.back() != steps)
    return {"/plan/averaging_periods",
            "the last is the round's, of accumulation_steps=" + std::to_string(steps) + " batches"};
  for (std::size_t i = 0; i < periods.size(); ++i) {
    const std::string at = "/" + std::to_string(i);
    if (periods[i] < 1 || steps % periods[i] != 0)
      return {"/plan/averaging_periods" + at,
              "divides the last, so that every round is alike (" + std::to_string(steps) + ")"};
    if (l.averaging_group_sizes[i] < 2)
      return {"/plan/averaging_group_sizes" + at, "at least 2 ranks"};
    if (i > 0 && (periods[i] <= periods[i - 1] ||
                  l.averaging_group_sizes[i] <= l.averaging_group_sizes[i - 1]))
      return {
          "/plan/averaging_periods" + at,
          "periods and groups grow from level to level, as in PyTorch's example (4: 8, 16: 16)"};
  }
  return {};
}

}  // namespace

Problem check_local_sgd(const Plan& p, const Workload& w) {
  const LocalSgdPlan& l = p.local_sgd;
  const LocalSgdPlan plain;
  const bool diloco = p.outer_optimizer != OuterOptimizer::None;
  if (l.subgroup_size < 0 || l.subgroup_size == 1 || l.subgroup_size > 1'000'000)
    return {"/plan/subgroup_size", "0 (gradients stay on their rank, without DDP) or 2 and more"};
  if (l.subgroup_size == 0)
    for (auto [knob, set] :
         {std::pair{"start_localSGD_iter", l.start_localSGD_iter != plain.start_localSGD_iter},
          std::pair{"post_local_gradient_allreduce", !l.post_local_gradient_allreduce},
          std::pair{"bucket_cap_mb", p.bucket_cap_mb.has_value()},
          std::pair{"first_bucket_bytes", p.first_bucket_bytes != Plan{}.first_bucket_bytes},
          std::pair{"broadcast_buffers", !p.broadcast_buffers},
          std::pair{"gradient_as_bucket_view", p.gradient_as_bucket_view}})
      if (set)
        return {std::string("/plan/") + knob,
                "is DDP's, with PostLocalSGDState's subgroup (--set subgroup_size=RANKS)"};
  if (diloco && (l.subgroup_size > 0 || !l.averaging_periods.empty()))
    return {"/plan/outer_optimizer",
            "DiLoCo's takes the place of subgroups and averaging; leave out one of the two"};
  if (l.start_localSGD_iter < 2 || l.start_localSGD_iter > 1'000'000'000)
    return {
        "/plan/start_localSGD_iter",
        "2 to 1e9 steps that are reduced over all ranks: a round is of steps after DDP has made "
        "its buckets"};
  if (Problem problem = check_averaging(l, p.accumulation_steps)) return problem;
  if (l.subgroup_size > 0 && w.arrival.size() != w.tensors.size())
    return {"/plan/subgroup_size", "parameters without a gradient are modelled without subgroups"};
  if (loop_work(w).clip > 0 || loop_work(w).unscale > 0)
    return {"/workload/loop",
            "is modelled once a step, and a round of local SGD has several: without clipping and "
            "without a GradScaler (--set workload.loop={}, workload.precision=bf16)"};
  for (const Tensor& t : w.tensors)
    if (t.dtype != w.tensors.front().dtype)
      return {"/plan/system",
              "parameters of several types, whose flat copy is cast, are not "
              "modelled for local_sgd"};
  return {};
}

Problem check_gloo_on_gpus(const Plan& p, const Workload& w) {
  const std::string gloo = "gloo with CUDA tensors (copies through the hosts' memory) ";
  switch (p.system) {
    case System::PytorchDdp:
    case System::Averaging:
      break;
    case System::Fsdp:
    case System::Fsdp2:
    case System::Zero:
    case System::Megatron:
      return {"/plan/backend",
              gloo + "has no reduce-scatter for " + name_of(p.system) +
                  " (PyTorch 2.7 and earlier stop with an error); use nccl, or pytorch_ddp"};
    default:
      return {"/plan/backend", gloo + "is modelled of pytorch_ddp and averaging, not of " +
                                   name_of(p.system) + "; use nccl"};
  }
  if (w.cuda_graphs)
    return {"/workload/cuda_graphs",
            "the host waits for gloo in every step, which a CUDA graph cannot hold "
            "(cuda_graphs=false, or backend=nccl)"};
  const bool power = p.comm_hook == CommHook::PowerSgd;
  for (auto [knob, set] : {std::pair{"comm_hook", power},
                           std::pair{"optimizer_in_backward", p.ddp.optimizer_in_backward},
                           std::pair{"sync_batch_norm", p.ddp.sync_batch_norm},
                           std::pair{"process_group_size", p.ddp.process_group_size > 0}})
    if (set) return {std::string("/plan/") + knob, gloo + "is modelled without it; use nccl"};
  return {};
}

Problem check_ddp(const Plan& p, const Workload& w, DeviceKind device) {
  const DdpPlan& d = p.ddp;
  const bool gpu = device == DeviceKind::Gpu;
  const Backend b = backend_of(p, device);
  const bool power = p.comm_hook == CommHook::PowerSgd;
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
  if (d.batched_grad_copy && !p.pytorch.has(pytorch::Change::CopiesGradientsTogether))
    return {"/plan/batched_grad_copy", "PyTorch 2.12 is the first to have it (--set pytorch=2.12)"};
  if (d.optimizer_in_backward) {
    if (gpu && !p.pytorch.has(pytorch::Change::OptimizerInBackwardOnGpus))
      return {"/plan/optimizer_in_backward",
              std::string("is modelled as of PyTorch ") +
                  first_with(pytorch::Change::OptimizerInBackwardOnGpus)};
    if (p.system != System::PytorchDdp)
      return {"/plan/optimizer_in_backward",
              "ZeroRedundancyOptimizer updates after backward; leave out one of the two"};
    if (p.comm_hook != CommHook::None)
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
  }
  if (d.skip_all_reduce_unused_params) {
    if (!p.pytorch.has(pytorch::Change::SkipsUnusedBuckets))
      return {"/plan/skip_all_reduce_unused_params",
              "PyTorch 2.8 is the first to have it (#151503): --set pytorch=2.8"};
    if (!p.find_unused_parameters || p.static_graph)
      return {
          "/plan/skip_all_reduce_unused_params",
          "skips buckets whose parameters the search found unused, and there is no search (--set "
          "find_unused_parameters=true)"};
  }
  if (d.process_group_stride != 1 && d.process_group_size == 0)
    return {"/plan/process_group_stride", "is of process_group_size (--set process_group_size=4)"};
  if (d.process_group_size != 0) {
    if (d.process_group_size < 2 || d.process_group_size > 1'000'000)
      return {"/plan/process_group_size", "0 (all ranks) or 2 and more"};
    if (d.process_group_stride < 1 || d.process_group_stride > 1'000'000)
      return {"/plan/process_group_stride", "1 or more: how far the next rank of a group is"};
    if (p.system != System::PytorchDdp || d.join || d.sync_batch_norm)
      return {"/plan/process_group_size",
              "groups are modelled of plain DDP: without ZeroRedundancyOptimizer, join and "
              "sync_batch_norm, whose own groups are all ranks unless told otherwise"};
  }
  if (d.sync_batch_norm) {
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
  }
  if (!d.divide_by_initial_world_size && !d.join)
    return {"/plan/divide_by_initial_world_size", "is of join (--set join=true)"};
  if (d.joined_ranks != 0 && !d.join) return {"/plan/joined_ranks", "is of join (--set join=true)"};
  if (d.joined_ranks != 0 && p.system != System::PytorchDdp)
    return {"/plan/joined_ranks",
            "is modelled of plain DDP: with ZeroRedundancyOptimizer a rank without inputs still "
            "updates its share"};
  if (d.joined_ranks < 0 || d.joined_ranks > 1'000'000)
    return {"/plan/joined_ranks", "0 to all ranks but one"};
  if (d.join && p.accumulation_steps > 1)
    return {"/plan/join", "is modelled with a backward in each step (accumulation_steps=1)"};
  return {};
}

}  // namespace ddpsim
