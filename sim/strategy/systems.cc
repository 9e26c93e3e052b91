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
    {.system = System::PytorchDdp,
     .name = "pytorch_ddp",
     .aliases = {"ddp", "distributeddataparallel"},
     .title = "PyTorch DDP",
     .brief = "DDP",
     .versions = true,
     .units = "buckets",
     .does = "torch.nn.parallel.DistributedDataParallel: gradients in buckets, all-reduced while "
             "backward runs",
     .evidence = kExecutedDdp,
     .words = ddp_words(),
     .knobs = ddp_knobs(),
     .lower = lower_ddp,
     .count =
         [](const Workload& w, const Plan& p) {
           const int passes = uses_no_sync(p) ? 1 : p.accumulation_steps;
           return steady_buckets(w, p).size() * static_cast<std::size_t>(passes);
         },
     .ranked = {{"gradient_as_bucket_view", "true"}, {"comm_hook", "bf16_compress"}},
     .operations = ddp_operations,
     .groups = ddp_groups,
     .check = check_ddp_ranks},
    {.system = System::Averaging,
     .name = "averaging",
     .title = "plain gradient averaging",
     .brief = "averaging",
     .units = "all-reduces",
     .does = "all_reduce of each gradient (or of one flat copy) after backward",
     .evidence = kExecutedByMpiToo,
     .words = averaging_words(),
     .knobs = averaging_knobs(),
     .lower = lower_averaging,
     .count =
         [](const Workload& w, const Plan& p) {
           return p.granularity == Granularity::Flat ? 1 : w.arrival.size();
         }},
    {.system = System::Fsdp,
     .name = "fsdp",
     .aliases = {"fsdp1", "fullyshardeddataparallel"},
     .title = "PyTorch FSDP",
     .brief = "FSDP",
     .versions = true,
     .units = "units",
     .does = "torch.distributed.fsdp.FullyShardedDataParallel: weights gathered unit by unit, "
             "gradients reduced and scattered",
     .evidence = "schedules recorded of 1.13, and of 2.7's Python; never executed",
     .schedule =
         "schedule equal to that of PyTorch's own code, recorded without a GPU (1.13, and 2.7's "
         "Python); its times were never executed",
     .shards = true,
     .words = fsdp_words(),
     .knobs = fsdp_knobs(),
     .lower = lower_fsdp,
     .count = [](const Workload& w, const Plan& p) { return fsdp_units(w, p).size(); },
     .ranked = {{"sharding_strategy", "shard_grad_op"},
                {"sharding_strategy", "hybrid_shard", true}},
     .operations = sharding_operations,
     .groups = fsdp_groups,
     .check = check_fsdp},
    {.system = System::Fsdp2,
     .name = "fsdp2",
     .aliases = {"fully_shard"},
     .title = "PyTorch FSDP2",
     .brief = "FSDP2",
     .versions = true,
     .units = "units",
     .does = "torch.distributed.fsdp.fully_shard: as fsdp, each parameter sharded by itself",
     .evidence =
         "schedules recorded of 2.7's Python with functions of 2.11 to 2.13; never executed",
     .schedule =
         "schedule equal to that of PyTorch's own code, recorded without a GPU (2.7's Python, with "
         "functions of 2.11 to 2.13 put into it); its times were never executed",
     .shards = true,
     .words = fsdp2_words(),
     .knobs = fsdp2_knobs(),
     .lower = lower_fsdp2,
     .count = [](const Workload& w, const Plan& p) { return fsdp_units(w, p).size(); },
     .ranked = {{"reshard_after_forward", "false"},
                {"reshard_after_forward", "", true},
                {"shard_degree", "", true}},
     .operations = sharding_operations,
     .groups = fsdp_groups,
     .check = check_fsdp},
    {.system = System::Horovod,
     .name = "horovod",
     .aliases = {"hvd"},
     .title = "Horovod",
     .brief = "Horovod",
     .units = "fused all-reduces",
     .does = "horovod.torch.DistributedOptimizer: what is ready in a cycle is all-reduced together",
     .evidence = "0.28 over Open MPI on CPUs executed (calib/horovod-runs), its decisions "
                 "recorded; never over "
                 "NCCL",
     .schedule =
         "what is fused differs from step to step: the step and its parts are the mean of 16, the "
         "times of "
         "reductions those of the last; decided as in recordings of Horovod 0.28 over Open MPI on "
         "CPUs, which executed steps, "
         "too; over NCCL never executed",
     .words = horovod_words(),
     .knobs = horovod_knobs(),
     .lower = lower_horovod,
     .ranked = {{"HOROVOD_TORUS_ALLREDUCE", "true", true}},
     .operations = horovod_operations,
     .groups = horovod_groups,
     .check = check_horovod},
    {.system = System::Zero,
     .name = "zero",
     .title = "DeepSpeed ZeRO",
     .brief = "ZeRO",
     .units = "buckets",
     .does = "DeepSpeed ZeRO, stages 1 to 3: optimizer state, gradients and weights in shards",
     .evidence = "collectives recorded of 0.14.5 on CPUs; never executed",
     .schedule = "collectives equal to those that DeepSpeed 0.14.5 issued, recorded without a GPU; "
                 "its times "
                 "were never executed",
     .shards = true,
     .words = zero_words(),
     .knobs = zero_knobs(),
     .lower = lower_zero,
     .ranked = {{"stage", "1"}, {"stage", "3"}},
     .operations =
         [](const Plan& p) {
           std::vector<Operation> out = sharding_operations(p);
           if (!p.zero.use_multi_rank_bucket_allreduce) out.push_back(Operation::Reduce);
           return out;
         },
     .groups = zero_groups,
     .check = check_zero_groups},
    {.system = System::ZeroRedundancy,
     .name = "zero_redundancy",
     .aliases = {"zero-redundancy", "zeroredundancyoptimizer"},
     .title = "PyTorch DDP with ZeroRedundancyOptimizer",
     .brief = "DDP with ZeroRedundancyOptimizer",
     .versions = true,
     .units = "buckets",
     .does =
         "torch.distributed.optim.ZeroRedundancyOptimizer on DDP: each rank updates its parameters "
         "and broadcasts them",
     .evidence = kExecuted,
     .words = zero_redundancy_words(),
     .knobs = zero_redundancy_knobs(),
     .lower = lower_zero_redundancy,
     .count = [](const Workload& w, const Plan& p) { return steady_buckets(w, p).size(); },
     .ranked = {{"parameters_as_bucket_view", "true"}},
     .operations = ddp_operations,
     .check = check_ddp_ranks},
    {.system = System::Megatron,
     .name = "megatron",
     .title = "Megatron-LM",
     .brief = "Megatron-LM",
     .units = "buckets",
     .does = "Megatron-LM's DistributedDataParallel: one buffer of gradients, reduced at once, in "
             "buckets "
             "or scattered",
     .evidence = "schedule from source reading (August 2026), not executed",
     .schedule = "schedule from source reading (August 2026), not executed",
     .shards = true,
     .words = megatron_words(),
     .knobs = megatron_knobs(),
     .lower = lower_megatron,
     .ranked = {{"use_distributed_optimizer", "true"}, {"overlap_grad_reduce", "true"}},
     .operations = sharding_operations},
    {.system = System::Apex,
     .name = "apex",
     .aliases = {"apex_ddp", "apex-ddp"},
     .title = "NVIDIA Apex DDP",
     .brief = "Apex DDP",
     .units = "buckets",
     .does =
         "apex.parallel.DistributedDataParallel: buckets by elements, flattened and all-reduced on "
         "streams of their own",
     .evidence = "schedules recorded of Apex of May 2025 on CPUs; never executed",
     .schedule = "schedule equal to that of Apex's own code (May 2025), recorded without a GPU; "
                 "its times were "
                 "never executed",
     .words = apex_words(),
     .knobs = apex_knobs(),
     .lower = lower_apex,
     .count =
         [](const Workload& w, const Plan& p) {
           return (p.apex.delay_allreduce ? apex_fallback(w, p) : apex_buckets(w, p)).size();
         },
     .ranked = {{"num_allreduce_streams", "2"}, {"delay_allreduce", "true"}}},
    {.system = System::DataParallel,
     .name = "data_parallel",
     .aliases = {"dp", "dataparallel", "nn.dataparallel"},
     .title = "PyTorch nn.DataParallel",
     .brief = "nn.DataParallel",
     .versions = true,
     .units = "sums of gradients",
     .does = "torch.nn.DataParallel: one process, weights broadcast before forward, gradients "
             "summed on "
             "the first GPU",
     .evidence = "schedule from source reading (1.13, 2.7), not executed",
     .schedule = "schedule from source reading (PyTorch 1.13 and 2.7), not executed",
     .shards = true,
     .words = data_parallel_words(),
     .knobs = data_parallel_knobs(),
     .lower = lower_data_parallel,
     .count = [](const Workload& w, const Plan&) { return coalesced_groups(w.tensors).size(); },
     .operations =
         [](const Plan&) {
           return std::vector<Operation>{Operation::Broadcast, Operation::Reduce};
         },
     .one_process = true},
    {.system = System::LocalSgd,
     .name = "local_sgd",
     .aliases = {"localsgd", "local-sgd", "diloco"},
     .title = "local SGD",
     .brief = "local SGD",
     .units = "all-reduces",
     .does =
         "ranks train alone for accumulation_steps batches, then average weights, or take DiLoCo's "
         "outer "
         "step",
     .evidence = "averaging and post-local SGD of PyTorch 1.13 over Gloo executed (calib/runs); "
                 "DiLoCo from "
                 "source reading (torchft, 2025), never executed",
     .schedule = "averaging and post-local SGD executed of PyTorch 1.13 over Gloo, DiLoCo from "
                 "source reading "
                 "(torchft, 2025), never executed. A step is a round",
     .words = local_sgd_words(),
     .knobs = local_sgd_knobs(),
     .lower = lower_local_sgd,
     .ranked = {{"outer_optimizer", "nesterov"}},
     .operations =
         [](const Plan& p) {
           std::vector<Operation> out{Operation::AllReduce};
           if (p.local_sgd.subgroup_size > 0) out.push_back(Operation::Broadcast);
           return out;
         },
     .groups = local_sgd_groups,
     .check = check_local_sgd_ranks},
    {.system = System::Mirrored,
     .name = "mirrored",
     .aliases = {"mirroredstrategy", "tf.distribute.mirroredstrategy"},
     .title = "TensorFlow MirroredStrategy",
     .brief = "MirroredStrategy",
     .units = "packs",
     .does =
         "tf.distribute.MirroredStrategy: gradients of one host's GPUs in packs, all-reduced after "
         "backward",
     .evidence = "schedule from source reading (TensorFlow 2.x), not executed",
     .schedule = kFromTensorflow,
     .words = mirrored_words(),
     .knobs = mirrored_knobs(),
     .lower = lower_mirrored,
     .count = packs_of,
     .ranked = {{"bytes_per_pack", "26214400"}, {"cross_device_ops", "reduction_to_one_device"}},
     .operations = mirrored_operations,
     .groups = mirrored_groups,
     .check = check_mirrored_ranks,
     .one_process = true},
    {.system = System::MultiWorkerMirrored,
     .name = "multi_worker_mirrored",
     .aliases = {"multiworkermirroredstrategy", "mwms", "multi-worker-mirrored",
                 "tf.distribute.multiworkermirroredstrategy"},
     .title = "TensorFlow MultiWorkerMirroredStrategy",
     .brief = "MultiWorkerMirroredStrategy",
     .units = "packs",
     .does =
         "tf.distribute.MultiWorkerMirroredStrategy: the same on several hosts, over gRPC (RING) "
         "unless "
         "NCCL is asked for",
     .evidence = "schedule from source reading (TensorFlow 2.x), not executed",
     .schedule = kFromTensorflow,
     .words = mirrored_words(),
     .knobs = multi_worker_mirrored_knobs(),
     .lower = lower_mirrored,
     .count = packs_of,
     .ranked = {{"implementation", "NCCL"}, {"bytes_per_pack", "26214400"}}},
    {.system = System::ParameterServer,
     .name = "parameter_server",
     .aliases = {"parameterserverstrategy", "parameter-server", "parameter_servers",
                 "tf.distribute.parameterserverstrategy"},
     .title = "parameter servers",
     .brief = "parameter servers",
     .units = "shards",
     .does = "weights on servers, which workers pull and push gradients to: together, or each at "
             "its own "
             "pace",
     .evidence = "schedule from source reading (TensorFlow 2.x; Ho et al. 2013 for staleness), not "
                 "executed",
     .schedule =
         "schedule from source reading (TensorFlow's ParameterServerStrategy; Ho et al. 2013 for "
         "staleness), not executed; computation takes what it takes in PyTorch",
     .words = parameter_server_words(),
     .knobs = parameter_server_knobs(),
     .lower = lower_parameter_server,
     .count = [](const Workload& w, const Plan& p) { return server_shards(w, p).size(); },
     .ranked = {{"synchronous", "true"}, {"pull", "after_push"}},
     .operations =
         [](const Plan&) {
           return std::vector<Operation>{Operation::Push, Operation::Pull};
         },
     .groups = server_groups}};

}  // namespace

std::span<const SystemRecord> systems() {
  return kSystemRecords;
}

std::string title_of(const Plan& plan) {
  const SystemRecord& s = record_of(plan.system);
  const std::string title = s.title;
  if (plan.system == System::Zero) return title + "-" + std::to_string(plan.zero.stage);
  return s.versions ? std::string("PyTorch ") + name_of(plan.pytorch) + " " + s.brief : title;
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
