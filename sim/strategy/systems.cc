#include "sim/strategy/systems.h"

#include <algorithm>
#include <cstdio>

#include "sim/strategy/apex.h"
#include "sim/strategy/bucketing.h"
#include "sim/strategy/data_parallel.h"
#include "sim/strategy/ddp_options.h"
#include "sim/strategy/fsdp.h"
#include "sim/strategy/horovod.h"
#include "sim/strategy/mirrored.h"
#include "sim/strategy/parameter_server.h"
#include "sim/strategy/system_knobs.h"
#include "sim/strategy/zero.h"

namespace ddpsim::strategy {
namespace {

std::vector<Operation> sharding_operations(const Plan&) {
  return {Operation::AllGather, Operation::ReduceScatter, Operation::AllReduce};
}

std::vector<Operation> ddp_operations(const Plan& p) {
  std::vector<Operation> out{Operation::AllReduce, Operation::Broadcast};
  if (p.ddp.sync_batch_norm) out.push_back(Operation::AllGather);
  return out;
}

constexpr const char* kExecutedByMpiToo =
    "PyTorch 1.13 over Gloo executed (calib/runs), mpi4py over Open MPI 4.1.4 too "
    "(calib/mpi-runs); other versions, and NCCL, from source reading";
constexpr const char* kExecuted =
    "PyTorch 1.13 over Gloo executed (calib/runs); other versions, and NCCL, from source reading";
constexpr const char* kExecutedDdp =
    "PyTorch 1.13 over Gloo executed (calib/runs), with PowerSGD, join and a fused optimizer, too; "
    "other versions, NCCL and the rest from source reading";

constexpr const char* kFromTensorflow =
    "schedule from source reading (TensorFlow 2.x), not executed; computation takes what it takes "
    "in PyTorch";

std::size_t packs_of(const Workload& w, const Plan& p) {
  const MirroredPlan& m = p.mirrored;
  const bool each =
      m.cross_device_ops == CrossDeviceOps::ReductionToOneDevice || m.eager || m.num_packs == 0;
  if (each) return w.arrival.size();
  return m.cross_device_ops == CrossDeviceOps::CollectiveAllReduce
             ? tensorflow_packs(w, p).size()
             : static_cast<std::size_t>(m.num_packs);
}

std::vector<Operation> mirrored_operations(const Plan& p) {
  const CrossDeviceOps ops = p.mirrored.cross_device_ops;
  if (ops == CrossDeviceOps::CollectiveAllReduce || ops == CrossDeviceOps::NcclAllReduce)
    return {Operation::AllReduce};
  return {Operation::Broadcast, Operation::Reduce};
}

const SystemRecord kSystemRecords[] = {
    {System::PytorchDdp,
     "pytorch_ddp",
     "PyTorch DDP",
     "DDP",
     "buckets",
     "torch.nn.parallel.DistributedDataParallel: gradients in buckets, all-reduced while "
     "backward runs",
     kExecutedDdp,
     "",
     false,
     ddp_words(),
     ddp_knobs(),
     lower_ddp,
     [](const Workload& w, const Plan& p) {
       const int passes = uses_no_sync(p) ? 1 : p.accumulation_steps;
       return steady_buckets(w, p).size() * static_cast<std::size_t>(passes);
     },
     {{"gradient_as_bucket_view", "true"}, {"comm_hook", "bf16_compress"}},
     ddp_operations,
     ddp_groups,
     check_ddp_ranks},
    {System::Averaging, "averaging", "plain gradient averaging", "averaging", "all-reduces",
     "all_reduce of each gradient (or of one flat copy) after backward", kExecutedByMpiToo, "",
     false, averaging_words(), averaging_knobs(), lower_averaging,
     [](const Workload& w, const Plan& p) {
       return p.granularity == Granularity::Flat ? 1 : w.arrival.size();
     }},
    {System::Fsdp,
     "fsdp",
     "PyTorch FSDP",
     "FSDP",
     "units",
     "torch.distributed.fsdp.FullyShardedDataParallel: weights gathered unit by unit, "
     "gradients reduced and scattered",
     "schedules recorded of 1.13, and of 2.7's Python; never executed",
     "schedule equal to that of PyTorch's own code, recorded without a GPU (1.13, and 2.7's "
     "Python); its times were never executed",
     true,
     fsdp_words(),
     fsdp_knobs(),
     lower_fsdp,
     [](const Workload& w, const Plan& p) { return fsdp_units(w, p).size(); },
     {{"sharding_strategy", "shard_grad_op"}, {"sharding_strategy", "hybrid_shard", true}},
     sharding_operations,
     fsdp_groups,
     check_fsdp},
    {System::Fsdp2,
     "fsdp2",
     "PyTorch FSDP2",
     "FSDP2",
     "units",
     "torch.distributed.fsdp.fully_shard: as fsdp, each parameter sharded by itself",
     "schedules recorded of 2.7's Python with functions of 2.11 to 2.13; never executed",
     "schedule equal to that of PyTorch's own code, recorded without a GPU (2.7's Python, with "
     "functions of 2.11 to 2.13 put into it); its times were never executed",
     true,
     fsdp2_words(),
     fsdp2_knobs(),
     lower_fsdp2,
     [](const Workload& w, const Plan& p) { return fsdp_units(w, p).size(); },
     {{"reshard_after_forward", "false"},
      {"reshard_after_forward", "", true},
      {"shard_degree", "", true}},
     sharding_operations,
     fsdp_groups,
     check_fsdp},
    {System::Horovod,
     "horovod",
     "Horovod",
     "Horovod",
     "fused all-reduces",
     "horovod.torch.DistributedOptimizer: what is ready in a cycle is all-reduced together",
     "0.28 over Open MPI on CPUs executed (calib/horovod-runs), its decisions recorded; never over "
     "NCCL",
     "what is fused differs from step to step: the step and its parts are the mean of 16, the "
     "times of "
     "reductions those of the last; decided as in recordings of Horovod 0.28 over Open MPI on "
     "CPUs, which executed steps, "
     "too; over NCCL never executed",
     false,
     horovod_words(),
     horovod_knobs(),
     lower_horovod,
     nullptr,
     {{"HOROVOD_TORUS_ALLREDUCE", "true", true}},
     horovod_operations,
     horovod_groups,
     check_horovod},
    {System::Zero,
     "zero",
     "DeepSpeed ZeRO",
     "ZeRO",
     "buckets",
     "DeepSpeed ZeRO, stages 1 to 3: optimizer state, gradients and weights in shards",
     "collectives recorded of 0.14.5 on CPUs; never executed",
     "collectives equal to those that DeepSpeed 0.14.5 issued, recorded without a GPU; its times "
     "were never executed",
     true,
     zero_words(),
     zero_knobs(),
     lower_zero,
     nullptr,
     {{"stage", "1"}, {"stage", "3"}},
     [](const Plan& p) {
       std::vector<Operation> out = sharding_operations(p);
       if (!p.zero.use_multi_rank_bucket_allreduce) out.push_back(Operation::Reduce);
       return out;
     },
     zero_groups,
     check_zero_groups},
    {System::ZeroRedundancy,
     "zero_redundancy",
     "PyTorch DDP with ZeroRedundancyOptimizer",
     "DDP with ZeroRedundancyOptimizer",
     "buckets",
     "torch.distributed.optim.ZeroRedundancyOptimizer on DDP: each rank updates its parameters "
     "and broadcasts them",
     kExecuted,
     "",
     false,
     zero_redundancy_words(),
     zero_redundancy_knobs(),
     lower_zero_redundancy,
     [](const Workload& w, const Plan& p) { return steady_buckets(w, p).size(); },
     {{"parameters_as_bucket_view", "true"}},
     ddp_operations,
     nullptr,
     check_ddp_ranks},
    {System::Megatron,
     "megatron",
     "Megatron-LM",
     "Megatron-LM",
     "buckets",
     "Megatron-LM's DistributedDataParallel: one buffer of gradients, reduced at once, in buckets "
     "or scattered",
     "schedule from source reading (August 2026), not executed",
     "schedule from source reading (August 2026), not executed",
     true,
     megatron_words(),
     megatron_knobs(),
     lower_megatron,
     nullptr,
     {{"use_distributed_optimizer", "true"}, {"overlap_grad_reduce", "true"}},
     sharding_operations},
    {System::Apex,
     "apex",
     "NVIDIA Apex DDP",
     "Apex DDP",
     "buckets",
     "apex.parallel.DistributedDataParallel: buckets by elements, flattened and all-reduced on "
     "streams of their own",
     "schedules recorded of Apex of May 2025 on CPUs; never executed",
     "schedule equal to that of Apex's own code (May 2025), recorded without a GPU; its times were "
     "never executed",
     false,
     apex_words(),
     apex_knobs(),
     lower_apex,
     [](const Workload& w, const Plan& p) {
       return (p.apex.delay_allreduce ? apex_fallback(w, p) : apex_buckets(w, p)).size();
     },
     {{"num_allreduce_streams", "2"}, {"delay_allreduce", "true"}}},
    {System::DataParallel,
     "data_parallel",
     "PyTorch nn.DataParallel",
     "nn.DataParallel",
     "sums of gradients",
     "torch.nn.DataParallel: one process, weights broadcast before forward, gradients summed on "
     "the first GPU",
     "schedule from source reading (1.13, 2.7), not executed",
     "schedule from source reading (PyTorch 1.13 and 2.7), not executed",
     true,
     data_parallel_words(),
     data_parallel_knobs(),
     lower_data_parallel,
     [](const Workload& w, const Plan&) { return coalesced_groups(w.tensors).size(); },
     {},
     [](const Plan&) {
       return std::vector<Operation>{Operation::Broadcast, Operation::Reduce};
     },
     nullptr,
     nullptr,
     true},
    {System::LocalSgd,
     "local_sgd",
     "local SGD",
     "local SGD",
     "all-reduces",
     "ranks train alone for accumulation_steps batches, then average weights, or take DiLoCo's "
     "outer "
     "step",
     "averaging and post-local SGD of PyTorch 1.13 over Gloo executed (calib/runs); DiLoCo from "
     "source reading (torchft, 2025), never executed",
     "averaging and post-local SGD executed of PyTorch 1.13 over Gloo, DiLoCo from source reading "
     "(torchft, 2025), never executed. A step is a round",
     false,
     local_sgd_words(),
     local_sgd_knobs(),
     lower_local_sgd,
     nullptr,
     {{"outer_optimizer", "nesterov"}},
     [](const Plan& p) {
       std::vector<Operation> out{Operation::AllReduce};
       if (p.local_sgd.subgroup_size > 0) out.push_back(Operation::Broadcast);
       return out;
     },
     local_sgd_groups,
     check_local_sgd_ranks},
    {System::Mirrored,
     "mirrored",
     "TensorFlow MirroredStrategy",
     "MirroredStrategy",
     "packs",
     "tf.distribute.MirroredStrategy: gradients of one host's GPUs in packs, all-reduced after "
     "backward",
     "schedule from source reading (TensorFlow 2.x), not executed",
     kFromTensorflow,
     false,
     mirrored_words(),
     mirrored_knobs(),
     lower_mirrored,
     packs_of,
     {{"bytes_per_pack", "26214400"}, {"cross_device_ops", "reduction_to_one_device"}},
     mirrored_operations,
     mirrored_groups,
     check_mirrored_ranks,
     true},
    {System::MultiWorkerMirrored,
     "multi_worker_mirrored",
     "TensorFlow MultiWorkerMirroredStrategy",
     "MultiWorkerMirroredStrategy",
     "packs",
     "tf.distribute.MultiWorkerMirroredStrategy: the same on several hosts, over gRPC (RING) "
     "unless "
     "NCCL is asked for",
     "schedule from source reading (TensorFlow 2.x), not executed",
     kFromTensorflow,
     false,
     mirrored_words(),
     multi_worker_mirrored_knobs(),
     lower_mirrored,
     packs_of,
     {{"implementation", "NCCL"}, {"bytes_per_pack", "26214400"}}},
    {System::ParameterServer,
     "parameter_server",
     "parameter servers",
     "parameter servers",
     "shards",
     "weights on servers, which workers pull and push gradients to: together, or each at its own "
     "pace",
     "schedule from source reading (TensorFlow 2.x; Ho et al. 2013 for staleness), not executed",
     "schedule from source reading (TensorFlow's ParameterServerStrategy; Ho et al. 2013 for "
     "staleness), not executed; computation takes what it takes in PyTorch",
     false,
     parameter_server_words(),
     parameter_server_knobs(),
     lower_parameter_server,
     [](const Workload& w, const Plan& p) { return server_shards(w, p).size(); },
     {{"synchronous", "true"}, {"pull", "after_push"}},
     [](const Plan&) {
       return std::vector<Operation>{Operation::Push, Operation::Pull};
     },
     server_groups}};

}  // namespace

std::span<const SystemRecord> systems() {
  return kSystemRecords;
}

std::string title_of(const Plan& plan) {
  const SystemRecord& s = record_of(plan.system);
  const std::string title = s.title;
  if (plan.system == System::Zero) return title + "-" + std::to_string(plan.zero.stage);
  if (!title.starts_with("PyTorch ")) return title;
  return std::string("PyTorch ") + name_of(plan.pytorch) + " " + s.brief;
}

const SystemRecord& record_of(System s) {
  return kSystemRecords[static_cast<std::size_t>(s)];
}

std::string setting_of(const Plan& plan, const KnobRecord& knob) {
  Plan copy = plan;
  auto number = [](double v) {
    char text[40];
    std::snprintf(text, sizeof text, "%.10g", v);
    return std::string(text);
  };
  struct Text {
    const Plan& plan;
    decltype(number)& of_number;
    std::string operator()(bool* b) const { return *b ? "true" : "false"; }
    std::string operator()(std::optional<bool>* b) const {
      return !*b ? "" : **b ? "true" : "false";
    }
    std::string operator()(std::int64_t* n) const { return std::to_string(*n); }
    std::string operator()(std::optional<double>* v) const { return *v ? of_number(**v) : ""; }
    std::string operator()(Reshard* r) const {
      if (!r->ranks) return "";
      return *r->ranks > 1 ? std::to_string(*r->ranks) : *r->ranks == 1 ? "true" : "false";
    }
    std::string operator()(std::vector<double>* list) const { return all(*list); }
    std::string operator()(std::vector<std::int64_t>* list) const {
      return all({list->begin(), list->end()});
    }
    std::string operator()(std::vector<std::string>* list) const {
      std::string out;
      for (const std::string& name : *list) out += (out.empty() ? "" : ",") + name;
      return out;
    }
    std::string all(const std::vector<double>& list) const {
      std::string out;
      for (double v : list) out += (out.empty() ? "[" : ",") + of_number(v);
      return out.empty() ? out : out + "]";
    }
    std::string operator()(const Choice& c) const {
      int k = c.get(plan);
      return k < 0 ? "" : c.names[static_cast<std::size_t>(k)];
    }
  };
  return std::visit(Text{plan, number}, knob.field(copy));
}

std::string settings_text(const Plan& plan) {
  Plan initial;
  initial.system = plan.system;
  std::string out;
  for (const KnobRecord& k : record_of(plan.system).knobs) {
    std::string now = setting_of(plan, k);
    if (now != setting_of(initial, k))
      out += (out.empty() ? "" : ", ") + std::string(k.name) + "=" + now;
  }
  return out;
}

const SystemRecord* owner_of(std::string_view knob) {
  for (const SystemRecord& s : kSystemRecords)
    for (const KnobRecord& k : s.knobs)
      if (knob == k.name) return &s;
  return nullptr;
}

}  // namespace ddpsim::strategy
