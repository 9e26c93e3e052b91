#include "sim/model/plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string_view>

#include "sim/model/system_checks.h"
#include "sim/model/wrapping.h"

namespace ddpsim {

const char* name_of(System s) {
  constexpr std::array<const char*, kSystems> kNames{
      "pytorch_ddp",           "averaging",       "fsdp", "fsdp2",         "horovod",   "zero",
      "zero_redundancy",       "megatron",        "apex", "data_parallel", "local_sgd", "mirrored",
      "multi_worker_mirrored", "parameter_server"};
  return kNames[static_cast<std::size_t>(s)];
}
const char* name_of(Sharding s) {
  constexpr std::array<const char*, 5> kNames{"full_shard", "shard_grad_op", "no_shard",
                                              "hybrid_shard", "_hybrid_shard_zero2"};
  return kNames[static_cast<std::size_t>(s)];
}
const char* name_of(BackwardPrefetch p) {
  constexpr std::array<const char*, 3> kNames{"none", "backward_pre", "backward_post"};
  return kNames[static_cast<std::size_t>(p)];
}
const char* name_of(Backend b) {
  constexpr std::array<const char*, 4> kNames{"nccl", "gloo", "tcp", "mpi"};
  return kNames[static_cast<std::size_t>(b)];
}
const char* name_of(CommHook h) {
  constexpr std::array<const char*, 5> kNames{"none", "allreduce", "fp16_compress", "bf16_compress",
                                              "powerSGD"};
  return kNames[static_cast<std::size_t>(h)];
}

bool uses_no_sync(const Plan& plan) {
  return plan.no_sync.value_or(plan.system != System::Fsdp && plan.system != System::Fsdp2);
}

bool goes_apart(const Plan& plan) {
  return plan.system == System::ParameterServer && !plan.parameter_server.synchronous;
}

bool stages_collectives(const Plan& plan, DeviceKind device) {
  return device == DeviceKind::Gpu && backend_of(plan, device) == Backend::Gloo;
}

bool offloads(const Plan& plan) {
  return (plan.system == System::Zero && plan.zero.offload_optimizer) ||
         ((plan.system == System::Fsdp || plan.system == System::Fsdp2) && plan.fsdp.cpu_offload);
}

// TensorFlow's ring is a ring over TCP: ddpsim's own. AUTO gives no hint, and then it is that
// (collective_param_resolver_local.cc, AssignCollectiveType).
bool rings_by_itself(const Plan& plan, DeviceKind device) {
  if (!is_mirrored(plan.system)) return false;
  if (device == DeviceKind::Cpu) return true;
  const bool one_host = plan.system == System::Mirrored;
  return plan.mirrored.implementation.value_or(one_host ? TensorflowCollective::Nccl
                                                        : TensorflowCollective::Auto) !=
         TensorflowCollective::Nccl;
}

Backend backend_of(const Plan& plan, DeviceKind device) {
  if (!plan.backend && (rings_by_itself(plan, device) || plan.system == System::ParameterServer))
    return Backend::Tcp;
  return plan.backend.value_or(device == DeviceKind::Gpu ? Backend::Nccl : Backend::Gloo);
}

int worker_threads(const Plan& plan, Backend backend) {
  if (backend == Backend::Mpi) return 1;
  return backend == Backend::Tcp ? plan.tcp_streams : plan.gloo_threads;
}

Algorithm all_reduce_algorithm(const Plan& plan, Backend backend) {
  if (backend == Backend::Tcp) return plan.algorithm;
  return backend == Backend::Gloo ? plan.gloo_algorithm : Algorithm::Ring;
}

// Gradients times micro-steps of a step that accumulates: its prediction takes some 10 microseconds
// and 4 KB for each, spans and their JSON counted.
constexpr std::int64_t kMostAccumulated = 200'000;

// What DeepSpeed refuses (config.py, stage_1_and_2.py), and what is not modelled.
Problem check_zero(const Plan& p, const Workload& w, bool gpus) {
  const ZeroPlan& z = p.zero;
  if (!gpus) return {"/plan/system", "zero is modelled on GPUs, over NCCL"};
  if (z.stage < 1 || z.stage > 3) return {"/plan/stage", "1, 2 or 3"};
  if (z.stage == 3 && w.layers.empty())
    return {
        "/plan/stage",
        "stage 3 gathers weights module by module, and this capture knows forward only as a "
        "whole: capture it again (tools/python/ddpsim_capture.py notes when each layer begins, and "
        "ddpsim import kineto, of a trace with sequence numbers), or use a described workload "
        "(ddpsim list workloads)"};
  if (!p.unused_parameters.empty())
    return {"/plan/unused_parameters",
            "parameters without a gradient are modelled for pytorch_ddp and averaging only"};
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"reduce_bucket_size", z.reduce_bucket_size},
      {"allgather_bucket_size", z.allgather_bucket_size},
      {"stage3_prefetch_bucket_size", z.stage3_prefetch_bucket_size},
      {"stage3_param_persistence_threshold", z.stage3_param_persistence_threshold},
      {"stage3_max_live_parameters", z.stage3_max_live_parameters},
      {"stage3_max_reuse_distance", z.stage3_max_reuse_distance},
      {"sub_group_size", z.sub_group_size}};
  for (const auto& [name, elements] : sizes)
    if (elements < 0 || elements > std::int64_t{1} << 40)
      return {std::string("/plan/") + name, "0 to 2^40 elements"};
  if (z.stage < 3 && z.allgather_bucket_size % 2 != 0)
    return {"/plan/allgather_bucket_size",
            "is a multiple of 2 (nccl_start_alignment_factor): stages 1 and 2 stop with an error"};
  if (z.zero_hpz_partition_size < 0 || z.zero_hpz_partition_size > 1 << 20)
    return {"/plan/zero_hpz_partition_size", "ranks: 0 or 1 (none) to those of the job"};
  if (z.zero_hpz_partition_size > 1 && z.stage != 3)
    return {"/plan/zero_hpz_partition_size",
            "is of stage 3, which gathers weights (--set stage=3)"};
  if (z.zero_quantized_weights && z.stage != 3)
    return {"/plan/zero_quantized_weights", "is of stage 3, which gathers weights (--set stage=3)"};
  if (z.zero_quantized_weights && w.tensors.front().dtype != DType::Float16)
    return {"/plan/zero_quantized_weights",
            "reads and writes float16 alone (DeepSpeed's quantize_kernel and dequantize): "
            "workload.precision=fp16 with workload.casting=master_weights"};
  if (z.zero_quantized_weights)
    for (const Tensor& t : w.frozen)
      if (t.dtype != DType::Float16)
        return {"/plan/zero_quantized_weights", "reads and writes float16 alone, and frozen \"" +
                                                    t.name + "\" is " + name_of(t.dtype)};
  if (z.zero_quantized_gradients && z.stage != 3)
    return {"/plan/zero_quantized_gradients",
            "is of stage 3: no other asks for it (--set stage=3)"};
  if (z.zero_quantized_gradients && !z.reduce_scatter)
    return {"/plan/zero_quantized_gradients",
            "DeepSpeed stops: \"when enable all_to_all_reduce, reduce_scatter should also be "
            "enabled\" (--set reduce_scatter=true)"};
  if (z.zero_quantized_gradients && w.tensors.front().dtype != DType::Float16)
    return {"/plan/zero_quantized_gradients",
            "reads gradients as float16 whatever they are (DeepSpeed's swizzle_quant): "
            "workload.precision=fp16 with workload.casting=master_weights"};
  if (z.offload_pin_memory && !z.offload_optimizer)
    return {"/plan/offload_pin_memory", "there is nothing to pin (--set offload_optimizer=cpu)"};
  if (z.offload_param && z.stage != 3)
    return {"/plan/offload_param",
            "is of stage 3, whose weights are in shards (DeepSpeed: \"valid only with stage 3\"; "
            "--set stage=3)"};
  if (z.offload_param && !z.offload_optimizer)
    return {"/plan/offload_param",
            "is modelled together with the optimizer's (--set offload_optimizer=cpu)"};
  if (z.offload_param && z.zero_hpz_partition_size > 1)
    return {"/plan/zero_hpz_partition_size",
            "with offload_param, where the second copy of weights is the host's, is not modelled"};
  if (z.offload_optimizer && z.stage < 3 && !z.contiguous_gradients)
    return {"/plan/contiguous_gradients",
            "is always true with offload_optimizer (DeepSpeed sets it)"};
  if (z.offload_optimizer && w.optimizer.kind != Optimizer::Kind::Adam &&
      w.optimizer.kind != Optimizer::Kind::AdamW)
    return {"/plan/offload_optimizer",
            "updates with DeepSpeedCPUAdam: the workload's optimizer is adam or adamw"};
  if (w.casting == Casting::Pure)
    return {"/workload/casting",
            "DeepSpeed's optimizer always has a copy of the weights of four bytes: "
            "master_weights, or autocast with weights of four bytes"};
  if (w.loop.grad_scaler.value_or(false))
    return {"/workload/loop/grad_scaler",
            "DeepSpeed takes no GradScaler: it scales the loss itself where weights are fp16 "
            "(workload.casting=master_weights)"};
  return {};
}

// What torch/distributed/optim/zero_redundancy_optimizer.py refuses, and what is not modelled.
Problem check_zero_redundancy(const Plan& p, const Workload& w, Backend b) {
  if (p.zero_redundancy.overlap_with_ddp)
    return {"/plan/overlap_with_ddp",
            b == Backend::Gloo
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
  return {};
}

// What Megatron-LM refuses (training/arguments.py, param_and_grad_buffer.py), and what is not
// modelled.
Problem check_megatron(const Plan& p, const Workload& w, bool gpus) {
  const MegatronPlan& m = p.megatron;
  if (!gpus) return {"/plan/system", "megatron is modelled on GPUs, over NCCL"};
  if (m.overlap_param_gather && !m.use_distributed_optimizer)
    return {"/plan/overlap_param_gather",
            "only with the distributed optimizer (--set use_distributed_optimizer=true)"};
  if (m.overlap_param_gather && !m.overlap_grad_reduce)
    return {"/plan/overlap_param_gather",
            "needs overlap_grad_reduce, too (--set overlap_grad_reduce=true)"};
  if (m.overlap_param_gather && w.layers.empty())
    return {"/plan/overlap_param_gather",
            "gathers weights before the layers that need them, and this capture knows forward only "
            "as a whole: capture it again (tools/python/ddpsim_capture.py notes when each layer "
            "begins, and ddpsim import kineto, of a trace with sequence numbers), or use a "
            "described workload (ddpsim list workloads)"};
  if (m.bucket_size < 0 || m.bucket_size > std::int64_t{1} << 40)
    return {"/plan/bucket_size", "elements, at most 2^40; 0 = max(40e6, 1e6 a rank)"};
  if (m.num_buckets < 0 || m.num_buckets > w.elements())
    return {"/plan/num_buckets", "1 to the elements of the model; 0 = as bucket_size says"};
  if (m.num_buckets > 0 && m.bucket_size > 0)
    return {"/plan/num_buckets", "takes the place of bucket_size; give one of the two"};
  if (!p.unused_parameters.empty() || w.arrival.size() != w.tensors.size())
    return {"/plan/system",
            "a parameter never gets a gradient: Megatron-LM's buckets wait for all of theirs, and "
            "stop with an error (megatron is modelled for models that use every parameter)"};
  for (const Tensor& t : w.tensors)
    if (t.dtype != w.tensors.front().dtype)
      return {"/plan/system",
              "parameters of several types, which Megatron-LM puts into several "
              "buffers, are not modelled"};
  if (is_half(w.precision) && w.casting != Casting::MasterWeights)
    return {"/workload/casting",
            "Megatron-LM trains weights of two bytes with a copy of four: "
            "--set workload.casting=master_weights"};
  if (w.loop.grad_scaler.value_or(false))
    return {"/workload/loop/grad_scaler",
            "Megatron-LM takes no GradScaler: it scales the loss itself where weights are fp16"};
  return {};
}

Problem validate(const Plan& p, const Workload& w, DeviceKind device) {
  if (w.cuda_graphs) {
    if (device != DeviceKind::Gpu) return {"/workload", "CUDA graphs are of a GPU"};
    bool whole = p.system == System::PytorchDdp || p.system == System::Averaging;
    if (!whole || p.find_unused_parameters)
      return {"/workload",
              "a step with find_unused_parameters, Horovod, FSDP, ZeRO, Megatron-LM, Apex, "
              "nn.DataParallel, local SGD or TensorFlow is not replayed as a CUDA graph: its host "
              "decides while "
              "it runs (cuda_graphs=false)"};
  }
  const bool whole = p.system == System::PytorchDdp || p.system == System::ZeroRedundancy ||
                     p.system == System::Averaging || p.system == System::Horovod;
  if (w.compile == Compile::Whole && !whole)
    return {"/workload/compile",
            "one graph of the whole model is of systems that keep gradients whole (PyTorch DDP, "
            "averaging, Horovod); here units are compiled one by one: "
            "--set workload.compile=regional"};
  if (w.compile == Compile::Buckets && p.system != System::PytorchDdp &&
      p.system != System::ZeroRedundancy)
    return {"/workload/compile",
            "graphs that end with DDP's buckets (torch.compile(DistributedDataParallel(model))) "
            "are of PyTorch DDP; elsewhere: --set workload.compile=regional, or none"};
  if (p.accumulation_steps < 1 || p.accumulation_steps > 10'000)
    return {"/plan/accumulation_steps", "1 to 10,000 micro-steps"};
  const auto gradients = static_cast<std::int64_t>(w.arrival.size());
  if (p.accumulation_steps > 1 && p.accumulation_steps * gradients > kMostAccumulated)
    return {"/plan/accumulation_steps",
            "micro-steps times gradients (" + std::to_string(gradients) +
                " of this workload) is at most " + std::to_string(kMostAccumulated) + ": at most " +
                std::to_string(std::max<std::int64_t>(1, kMostAccumulated / gradients)) +
                " micro-steps"};
  if (p.gloo_threads < 1 || p.gloo_threads > 1024)
    return {"/plan/gloo_threads", "1 to 1,024 threads"};
  if (p.tcp_streams < 1 || p.tcp_streams > 16)
    return {"/plan/tcp_streams", "1 to 16 collectives in flight"};
  if (p.bucket_cap_mb && !(*p.bucket_cap_mb > 0 && *p.bucket_cap_mb <= 1e6))
    return {"/plan/bucket_cap_mb", "a positive number of MiB, at most 1e6"};
  for (std::size_t i = 0; i < p.bucket_cap_mb_list.size(); ++i)
    if (!(p.bucket_cap_mb_list[i] > 0 && p.bucket_cap_mb_list[i] <= 1e6))
      return {"/plan/bucket_cap_mb_list/" + std::to_string(i),
              "a positive number of MiB, at most 1e6"};
  if (p.bucket_cap_mb && !p.bucket_cap_mb_list.empty())
    return {"/plan/bucket_cap_mb_list", "takes the place of bucket_cap_mb; give one of the two"};
  if (p.first_bucket_bytes < 1) return {"/plan/first_bucket_bytes", "at least one byte"};
  Backend b = backend_of(p, device);
  if (b == Backend::Gloo && p.comm_hook == CommHook::Bf16Compress &&
      !p.pytorch.has(pytorch::Change::GlooReducesBfloat16))
    return {"/plan/comm_hook", std::string("Gloo of PyTorch ") + name_of(p.pytorch) +
                                   " does not reduce bfloat16; use fp16_compress"};
  if (b == Backend::Mpi && device == DeviceKind::Gpu)
    return {"/plan/backend",
            "mpi with CUDA tensors (a CUDA-aware Open MPI copies them through its own buffers) is "
            "not modelled; use nccl"};
  const bool halves =
      p.comm_hook == CommHook::Fp16Compress || p.comm_hook == CommHook::Bf16Compress;
  if (b == Backend::Mpi && is_on_ddp(p.system) && halves)
    return {"/plan/comm_hook",
            "ProcessGroupMPI has no type for gradients of two bytes and stops with an error; use "
            "gloo, or no comm_hook"};
  if (b == Backend::Nccl && device == DeviceKind::Cpu)
    return {"/plan/backend",
            "nccl needs a workload on GPUs, and this one was captured on a CPU; use gloo"};
  if (stages_collectives(p, device))
    if (auto problem = check_gloo_on_gpus(p, w)) return problem;
  // Ours executes what NCCL does on GPUs (ddpsim run).
  const bool gpus = device == DeviceKind::Gpu && (b == Backend::Nccl || b == Backend::Tcp);
  if (p.system == System::Fsdp || p.system == System::Fsdp2) {
    const std::string name = name_of(p.system);
    if (!gpus) return {"/plan/system", name + " is modelled on GPUs, over NCCL"};
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
  }
  if (p.system == System::Fsdp || p.system == System::Fsdp2) {
    if (Problem problem = check_wrapping(p.fsdp, w)) return problem;
    if (Problem problem = check_frozen_units(p, w)) return problem;
  }
  if (p.system == System::Fsdp && !p.pytorch.has(pytorch::Change::Fsdp))
    return {"/plan/pytorch", std::string("FullyShardedDataParallel is modelled as of PyTorch ") +
                                 first_with(pytorch::Change::Fsdp) + " and later"};
  if (p.system == System::Fsdp2) {
    const FsdpPlan& f = p.fsdp;
    using pytorch::Change;
    if (!p.pytorch.has(Change::FullyShard))
      return {"/plan/pytorch", std::string("fully_shard is modelled as of PyTorch ") +
                                   first_with(Change::FullyShard) + " and later; " +
                                   name_of(p.pytorch) + " has FSDP1 (\"fsdp\")"};
    if (!p.pytorch.has(Change::SeveralInputs))
      for (auto [knob, set] :
           {std::pair{"separate_reduce_scatter_group", f.separate_reduce_scatter_group},
            std::pair{"reduce_scatter_max_input_buffers", f.reduce_scatter_max_input_buffers != 1}})
        if (set)
          return {std::string("/plan/") + knob,
                  "PyTorch 2.13 is the first to have it (--set "
                  "pytorch=2.13)"};
    struct Count {
      const char* knob;
      std::int64_t value, least;
    };
    // Where set_modules_to_backward_prefetch names nothing, the unit before is gathered ahead.
    for (const Count& c :
         {Count{"forward_prefetch_units", f.forward_prefetch_units, 0},
          Count{"backward_prefetch_units", f.backward_prefetch_units, 1},
          Count{"reduce_scatter_max_input_buffers", f.reduce_scatter_max_input_buffers, 1}})
      if (c.value < c.least || c.value > 1000)
        return {std::string("/plan/") + c.knob, std::to_string(c.least) + " to 1,000"};
  }
  if (p.system == System::Zero)
    if (auto problem = check_zero(p, w, gpus)) return problem;
  if (p.system == System::ZeroRedundancy)
    if (auto problem = check_zero_redundancy(p, w, b)) return problem;
  if (p.system == System::Megatron)
    if (auto problem = check_megatron(p, w, gpus)) return problem;
  if (p.system == System::Apex)
    if (auto problem = check_apex(p, w, gpus)) return problem;
  if (p.system == System::DataParallel)
    if (auto problem = check_data_parallel(p, device)) return problem;
  if (p.system == System::LocalSgd)
    if (auto problem = check_local_sgd(p, w)) return problem;
  if (p.system == System::ParameterServer)
    if (auto problem = check_parameter_server(p, w)) return problem;
  if (is_mirrored(p.system))
    if (auto problem = check_mirrored(p, w, device)) return problem;
  if (is_on_ddp(p.system))
    if (auto problem = check_ddp(p, w, device)) return problem;
  if (p.system == System::Horovod) {
    if (b == Backend::Tcp)
      return {"/plan/backend",
              "is ddpsim's own executor, which plays what was decided before; what Horovod reduces "
              "together is decided while it runs (predicted over nccl on GPUs and gloo on CPUs)"};
    const HorovodPlan& h = p.horovod;
    if (h.cycle_time && !(*h.cycle_time >= 0 && *h.cycle_time <= 1e4))
      return {"/plan/HOROVOD_CYCLE_TIME", "0 to 10,000 ms"};
    if (h.fusion_threshold < 0 || h.fusion_threshold > (std::int64_t{1} << 40))
      return {"/plan/HOROVOD_FUSION_THRESHOLD", "0 to 1 TiB, in bytes"};
    if (h.cache_capacity < 0 || h.cache_capacity > 1'000'000)
      return {"/plan/HOROVOD_CACHE_CAPACITY", "0 to 1,000,000 tensors"};
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
  }
  if (p.algorithm != Algorithm::Ring && b != Backend::Tcp)
    return {"/plan/algorithm",
            std::string("is a knob of backend tcp, and the plan's backend is ") + name_of(b)};
  if (p.gloo_algorithm != Algorithm::Ring && b != Backend::Gloo)
    return {"/plan/gloo_algorithm",
            std::string("is a knob of backend gloo, and the plan's backend is ") + name_of(b)};
  std::set<std::string_view> names;
  if (!p.unused_parameters.empty())
    for (const Tensor& t : w.tensors) names.insert(t.name);
  std::vector<std::uint8_t> arrives(w.tensors.size());
  for (TensorIndex t : w.arrival) arrives[t] = 1;
  std::set<std::string> unused(p.unused_parameters.begin(), p.unused_parameters.end());
  for (std::size_t i = 0; i < p.unused_parameters.size(); ++i)
    if (!names.count(p.unused_parameters[i]))
      return {"/plan/unused_parameters/" + std::to_string(i),
              "the workload has no parameter \"" + p.unused_parameters[i] + "\""};
  for (std::size_t i = 0; i < w.tensors.size(); ++i)
    if (!arrives[i]) unused.insert(w.tensors[i].name);
  if (unused.size() == w.tensors.size())
    return {"/plan/unused_parameters", "no parameter is left that gets a gradient"};
  if (is_on_ddp(p.system) && !unused.empty() && !p.find_unused_parameters && !p.static_graph)
    return {
        "/plan/unused_parameters",
        "parameter \"" + *unused.begin() +
            "\" never gets a gradient: PyTorch DDP stops with an error unless "
            "find_unused_parameters or static_graph is true (--set find_unused_parameters=true)"};
  return {};
}

std::vector<int> devices_of(const Scenario& s) {
  if (!s.rank_order.empty()) return s.rank_order;
  std::vector<int> out(static_cast<std::size_t>(s.ranks));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Scenario scenario_of(const OtherJob& job) {
  Scenario s;
  s.plan = job.plan;
  s.ranks = static_cast<int>(job.rank_order.size());
  s.rank_order = job.rank_order;
  return s;
}

Problem validate(const Scenario& s, int devices) {
  if (s.ranks < 1) return {"/ranks", "a job has at least one rank"};
  if (s.ranks > devices)
    return {"/ranks", std::to_string(s.ranks) + " ranks, but the cluster has " +
                          std::to_string(devices) +
                          " devices (raise cluster.hosts or lower ranks)"};
  if (s.plan.algorithm == Algorithm::Direct && s.ranks > kMaxDirectRanks)
    return {"/plan/algorithm",
            "direct sends a message from every rank to every other: at most 1,024 ranks"};
  if (!s.rank_order.empty()) {
    if (s.rank_order.size() != static_cast<std::size_t>(s.ranks))
      return {"/rank_order", "names " + std::to_string(s.rank_order.size()) + " devices for " +
                                 std::to_string(s.ranks) + " ranks"};
    std::set<int> seen;
    for (std::size_t i = 0; i < s.rank_order.size(); ++i) {
      std::string path = "/rank_order/" + std::to_string(i);
      if (s.rank_order[i] < 0 || s.rank_order[i] >= devices)
        return {path, "no device " + std::to_string(s.rank_order[i])};
      if (!seen.insert(s.rank_order[i]).second)
        return {path, "device " + std::to_string(s.rank_order[i]) + " already has a rank"};
    }
  }
  std::vector<int> mine = devices_of(s);
  std::set<int> taken(mine.begin(), mine.end());
  if (s.other_jobs.size() > 16) return {"/other_jobs", "at most 16 other jobs"};
  for (std::size_t k = 0; k < s.other_jobs.size(); ++k) {
    const OtherJob& job = s.other_jobs[k];
    std::string path = "/other_jobs/" + std::to_string(k) + "/rank_order";
    if (job.plan.algorithm == Algorithm::Direct &&
        job.rank_order.size() > static_cast<std::size_t>(kMaxDirectRanks))
      return {"/other_jobs/" + std::to_string(k) + "/plan/algorithm",
              "direct sends a message from every rank to every other: at most 1,024 ranks"};
    if (job.rank_order.size() < 2) return {path, "names the devices of at least two ranks"};
    for (std::size_t i = 0; i < job.rank_order.size(); ++i) {
      if (job.rank_order[i] < 0 || job.rank_order[i] >= devices)
        return {path + "/" + std::to_string(i), "no device " + std::to_string(job.rank_order[i])};
      if (!taken.insert(job.rank_order[i]).second)
        return {path + "/" + std::to_string(i),
                "device " + std::to_string(job.rank_order[i]) + " already has a rank"};
    }
  }
  for (const auto& [rank, factor] : s.slow_ranks) {
    std::string path = "/slow_ranks/" + std::to_string(rank);
    if (rank < 0 || rank >= s.ranks)
      return {path, "no rank " + std::to_string(rank) + "; there are " + std::to_string(s.ranks)};
    if (!(factor > 0 && factor <= 1000))
      return {path, "a factor of compute time, above 0 and at most 1000"};
  }
  constexpr double kMostSamples = 1e12;
  constexpr std::int64_t kMostSampleBytes = std::int64_t{64} << 30;
  if (s.input) {
    const InputPipeline& in = *s.input;
    const bool rate = in.samples_per_s > 0 && in.samples_per_s <= kMostSamples;
    if (!rate && !(in.samples_per_s == 0 && in.bytes_per_sample > 0))
      return {"/input/samples_per_s", "samples of a rank a second, above 0 and at most 1e12"};
    if (in.bytes_per_sample < 0 || in.bytes_per_sample > kMostSampleBytes)
      return {"/input/bytes_per_sample", "0 B to 64 GiB"};
  }
  if (s.jitter) {
    if (!s.other_jobs.empty())
      return {"/jitter", "is played without the other jobs: leave out one of the two"};
    if (!(s.jitter->cv >= 0 && s.jitter->cv <= 1)) return {"/jitter/cv", "0 to 1"};
    if (s.jitter->samples < 1 || s.jitter->samples > 10'000)
      return {"/jitter/samples", "1 to 10,000 steps"};
  }
  return {};
}

}  // namespace ddpsim
