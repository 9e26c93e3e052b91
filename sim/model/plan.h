// Plan: the data-parallel system, its version and its knobs by their upstream names, in upstream
// units. File format: docs/formats.md.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/algorithm.h"
#include "sim/model/error.h"
#include "sim/model/pytorch.h"
#include "sim/model/workload.h"

namespace ddpsim {

enum class System : std::uint8_t {
  PytorchDdp,
  Averaging,
  Fsdp,
  Fsdp2,
  Horovod,
  Zero,
  ZeroRedundancy,
  Megatron,
  Apex,
  DataParallel,
  LocalSgd,
  Mirrored,
  MultiWorkerMirrored,
  ParameterServer
};
inline constexpr int kSystems = 14;
// TensorFlow's.
constexpr bool is_mirrored(System s) {
  return s == System::Mirrored || s == System::MultiWorkerMirrored;
}
// Gradients in DDP's buckets: what DDP's knobs are of.
constexpr bool is_on_ddp(System s) {
  return s == System::PytorchDdp || s == System::ZeroRedundancy;
}
// Tcp: ddpsim's own executor (calib): plain rings and trees over TCP; collectives in launch order,
// `tcp_streams` in flight. Mpi: Open MPI, one collective at a time.
enum class Backend : std::uint8_t { Nccl, Gloo, Tcp, Mpi };
using PytorchVersion = pytorch::Version;
enum class CommHook : std::uint8_t { None, AllReduce, Fp16Compress, Bf16Compress, PowerSgd };
// Of local SGD, at the end of a round: none averages parameters, Nesterov is DiLoCo's.
enum class OuterOptimizer : std::uint8_t { None, Nesterov };
enum class Granularity : std::uint8_t { PerParameter, Flat };

// FullyShardedDataParallel. FullShard: weights are gathered for forward and again for backward;
// ShardGradOp: once, for both; NoShard: never, and gradients are all-reduced. Hybrid: in groups of
// ranks, and gradients' shards are all-reduced among the groups.
enum class Sharding : std::uint8_t {
  FullShard,
  ShardGradOp,
  NoShard,
  HybridShard,
  HybridShardZero2
};
constexpr bool is_hybrid(Sharding s) {
  return s == Sharding::HybridShard || s == Sharding::HybridShardZero2;
}
enum class BackwardPrefetch : std::uint8_t { None, Pre, Post };
const char* name_of(System s);
const char* name_of(Sharding s);
const char* name_of(BackwardPrefetch p);
const char* name_of(Backend b);
const char* name_of(CommHook h);

// reshard_after_forward of fully_shard: false, true, or the ranks of a smaller group that weights
// are kept in between forward and backward. none = true, but of the root by version.
struct Reshard {
  std::optional<std::int64_t> ranks;  // 0 = false, 1 = true
};

// The knobs of FullyShardedDataParallel and of fully_shard (FSDP2). What is not set has the
// version's default (sim/strategy/fsdp1.cc).
struct FsdpPlan {
  Sharding sharding_strategy = Sharding::FullShard;
  std::optional<BackwardPrefetch> backward_prefetch;
  bool forward_prefetch = false;
  std::optional<bool> limit_all_gathers;
  std::optional<DType>
      param_dtype;  // of MixedPrecision: weights as they are gathered; none = as they are
  std::optional<DType>
      reduce_dtype;  // of MixedPrecision: gradients as they are reduced; none = param_dtype
  std::int64_t shard_degree = 0;  // ranks that shard together; 0 = all, of FSDP1's hybrid
                                  // strategies those of a host
  bool use_orig_params = false;   // of FSDP1: a unit may mix trainable and frozen parameters
  bool cpu_offload = false;       // CPUOffload(offload_params=True), CPUOffloadPolicy(): shards,
                                  // their gradients and the optimizer are the host's
  // fully_shard alone
  Reshard reshard_after_forward;
  std::int64_t forward_prefetch_units = 0;            // set_modules_to_forward_prefetch
  std::int64_t backward_prefetch_units = 1;           // set_modules_to_backward_prefetch
  bool separate_reduce_scatter_group = false;         // 2.13
  std::int64_t reduce_scatter_max_input_buffers = 1;  // 2.13
  std::string auto_wrap_policy =
      "block";  // "block": each repeated block is a unit; "none": the model is one; of FSDP1
                // "size_based": size_based_auto_wrap_policy (size_based.h)
  std::vector<std::int64_t> blocks_per_unit;  // of each unit, the last repeats; empty = one
  std::int64_t min_num_params = 100'000'000;  // of size_based: parameters
  std::vector<std::string> module_lists;      // of size_based: modules that are a ModuleList or a
                                              // ModuleDict; "none", "all" = whose children are
                                              // numbers; empty = not said
  bool ends_apart = false;  // fully_shard: what is before and after the blocks are units, too
};

// The fusion buffer's stream is one of them; another is the input pipeline's (kMostStreams).
inline constexpr std::int64_t kMostHorovodStreams = 6;
// The environment and the arguments of Horovod's DistributedOptimizer, as of 0.21 and later.
struct HorovodPlan {
  std::optional<double> cycle_time;                   // HOROVOD_CYCLE_TIME, ms; default 1
  std::int64_t fusion_threshold = 128 * 1024 * 1024;  // HOROVOD_FUSION_THRESHOLD, bytes
  std::int64_t cache_capacity = 1024;                 // HOROVOD_CACHE_CAPACITY, tensors
  bool batch_d2d_memcopies = true;                    // HOROVOD_BATCH_D2D_MEMCOPIES
  bool disable_group_fusion = false;                  // HOROVOD_DISABLE_GROUP_FUSION
  bool fp16_compression = false;                      // compression=hvd.Compression.fp16
  std::int64_t groups = 0;                            // groups=N: of the parameters in their order
  bool adasum = false;                                // op=hvd.Adasum
  bool hierarchical_allreduce = false;                // HOROVOD_HIERARCHICAL_ALLREDUCE
  bool torus_allreduce = false;                       // HOROVOD_TORUS_ALLREDUCE
  std::int64_t num_nccl_streams = 1;                  // HOROVOD_NUM_NCCL_STREAMS
  bool enable_async_completion = false;               // HOROVOD_ENABLE_ASYNC_COMPLETION
};

// DeepSpeed's zero_optimization, as of 0.14.5 (runtime/zero/config.py); sizes in elements. Weights
// of two bytes have a copy of four (bf16, fp16): Workload::casting.
struct ZeroPlan {
  int stage = 2;                     // what is in shards: optimizer state, 2: gradients, 3: weights
  std::optional<bool> overlap_comm;  // default: stage 3
  std::int64_t reduce_bucket_size = 500'000'000;
  std::int64_t allgather_bucket_size = 500'000'000;  // decides nothing over NCCL
  bool reduce_scatter = true;
  bool contiguous_gradients = true;
  bool use_multi_rank_bucket_allreduce = true;
  bool round_robin_gradients = false;
  std::int64_t stage3_prefetch_bucket_size = 50'000'000;
  std::int64_t stage3_param_persistence_threshold = 100'000;
  std::int64_t stage3_max_live_parameters = 1'000'000'000;
  std::int64_t stage3_max_reuse_distance = 1'000'000'000;
  std::int64_t sub_group_size = 1'000'000'000;
  std::int64_t zero_hpz_partition_size = 1;  // stage 3: ranks that share a second copy of weights
  bool zero_quantized_weights = false;       // stage 3, fp16: weights are gathered as int8 (qwZ)
  bool zero_quantized_gradients = false;     // ... gradients are exchanged as int4 (qgZ)
  // offload_optimizer: {device, pin_memory}. The optimizer is DeepSpeedCPUAdam.
  bool offload_optimizer = false;
  bool offload_param = false;  // stage 3: shards of weights, too
  bool offload_pin_memory = false;
};
// Whether the plan keeps something in the memory of its hosts.
struct Plan;
bool offloads(const Plan& plan);
// Gloo with CUDA tensors: each collective is a copy to the host, Gloo's own, and a copy back.
bool stages_collectives(const Plan& plan, DeviceKind device);

// Megatron-LM's DistributedDataParallelConfig and gradient_accumulation_fusion, as of August 2026;
// what is not set is as megatron/training/arguments.py leaves it.
struct MegatronPlan {
  bool use_distributed_optimizer = false;  // optimizer state and the optimizer's step in shards
  bool overlap_grad_reduce = false;        // buckets are reduced while backward runs
  bool overlap_param_gather = false;       // and gathered while forward runs
  std::int64_t bucket_size = 0;            // elements; 0 = max(40e6, 1e6 a rank)
  std::int64_t num_buckets = 0;            // takes the place of bucket_size; 0 = not given
  bool pad_buckets_for_high_nccl_busbw = false;
  bool average_in_collective = false;         // false: gradients are scaled before
  std::optional<bool> grad_reduce_in_fp32;    // accumulated and reduced; default: of bf16 weights
  std::optional<bool> check_for_nan_in_grad;  // default: but with fp16's dynamic loss scale
  bool gradient_accumulation_fusion = true;   // products add to the buffer themselves
};

// DistributedDataParallel's knobs that its buckets do not depend on.
struct DdpPlan {
  std::int64_t matrix_approximation_rank = 1;  // of PowerSGDState (CommHook::PowerSgd)
  std::int64_t start_powerSGD_iter = 1000;
  std::optional<double> min_compression_rate;  // default 2
  bool use_error_feedback = true;
  bool warm_start = true;
  bool batched_grad_copy = false;      // 2.12
  bool optimizer_in_backward = false;  // torch.distributed.optim._apply_optimizer_in_backward
  bool join = false;                   // steps inside model.join()
  std::int64_t joined_ranks = 0;       // of join: so many ranks, the last ones, have no inputs left
  bool divide_by_initial_world_size = true;    // of join; false: by those that have inputs
  bool sync_batch_norm = false;                // SyncBatchNorm.convert_sync_batchnorm
  bool skip_all_reduce_unused_params = false;  // 2.8
  // DistributedDataParallel(process_group=): as many models as groups, each of so many ranks, of
  // which the next is `stride` ranks further. 0 = one group of all ranks.
  std::int64_t process_group_size = 0;
  std::int64_t process_group_stride = 1;
};

// Post-local SGD, beside PeriodicModelAverager. A round's batches are Plan::accumulation_steps.
struct LocalSgdPlan {
  std::int64_t subgroup_size = 0;  // ranks of PostLocalSGDState's subgroup; 0 = without DDP
  std::int64_t start_localSGD_iter = 100;
  bool post_local_gradient_allreduce = true;
  // HierarchicalModelAverager's period_group_size_dict; empty = PeriodicModelAverager.
  std::vector<std::int64_t> averaging_periods;
  std::vector<std::int64_t> averaging_group_sizes;
};

// apex.parallel.DistributedDataParallel, of NVIDIA Apex up to May 2025, which removed it.
struct ApexPlan {
  std::int64_t message_size = 10'000'000;  // elements
  bool delay_allreduce = false;
  std::vector<std::string> allreduce_trigger_params;  // take the place of message_size
  std::int64_t num_allreduce_streams = 1;             // and communicators
  bool retain_allreduce_buffers = false;
  bool allreduce_always_fp32 = false;
  bool gradient_average = true;
  std::optional<double> gradient_predivide_factor;  // default 1
  bool disable_allreduce = false;  // in micro-steps but the last; false: each of them reduces
};
// So many buckets are on streams of their own; another is the input pipeline's (kMostStreams).
inline constexpr std::int64_t kMostApexStreams = 6;

// tf.distribute.CrossDeviceOps, and CommunicationImplementation.
enum class CrossDeviceOps : std::uint8_t {
  CollectiveAllReduce,
  NcclAllReduce,
  HierarchicalCopyAllReduce,
  ReductionToOneDevice
};
enum class TensorflowCollective : std::uint8_t { Auto, Ring, Nccl };
// TensorFlow's MirroredStrategy and MultiWorkerMirroredStrategy, 2.x.
struct MirroredPlan {
  CrossDeviceOps cross_device_ops = CrossDeviceOps::CollectiveAllReduce;
  std::optional<TensorflowCollective>
      implementation;               // default: NCCL of one host's GPUs, else AUTO
  std::int64_t bytes_per_pack = 0;  // 0 = one pack
  std::int64_t num_packs = 1;       // of NcclAllReduce and HierarchicalCopyAllReduce; 0 = none
  bool mean = false;                // ReduceOp.MEAN
  bool eager = false;               // no tf.function
};

// Where variables are, and into which parts they are cut (tf.distribute.experimental.partitioners).
enum class ServerPlacement : std::uint8_t { RoundRobin, BySize };
enum class VariablePartitioner : std::uint8_t { None, FixedShards, MinSize, MaxSize };
// TensorFlow's ParameterServerStrategy, and the synchronous and bounded kinds of others.
struct ParameterServerPlan {
  std::int64_t servers = 1;
  bool own_hosts = false;       // server_hosts=own
  bool synchronous = false;     // one update of all ranks' gradients
  std::int64_t staleness = -1;  // steps ahead of the slowest rank; -1 = any number
  ServerPlacement placement = ServerPlacement::RoundRobin;
  VariablePartitioner variable_partitioner = VariablePartitioner::None;
  std::int64_t max_shards = 0;            // of a variable; 0 = as many as servers
  std::int64_t shard_bytes = 256 * 1024;  // min_shard_bytes, max_shard_bytes
  bool pull_after_push = false;           // pull=after_push
};
inline constexpr std::int64_t kMostServers = 100;
// Ranks are in steps of their own.
struct Plan;
bool goes_apart(const Plan& plan);

// torch.distributed.optim.ZeroRedundancyOptimizer, beside DDP's knobs.
struct ZeroRedundancyPlan {
  bool parameters_as_bucket_view = false;
  bool overlap_with_ddp = false;  // refused (validate)
};

struct Plan {
  System system = System::PytorchDdp;
  std::optional<Backend> backend;         // default: nccl on GPUs, gloo on CPUs
  int accumulation_steps = 1;             // micro-steps per optimizer step
  int gloo_threads = 2;                   // c10d's Gloo worker threads
  int tcp_streams = 1;                    // of backend tcp: collectives in flight together
  Algorithm algorithm = Algorithm::Ring;  // of backend tcp's all-reduce
  Algorithm gloo_algorithm =
      Algorithm::Ring;  // gloo::AllreduceOptions::setAlgorithm: Ring or Bcube
  PytorchVersion pytorch;
  std::string nccl;      // version of NCCL, "2.26.2"; "" = the one that this PyTorch brings
  std::string open_mpi;  // version of Open MPI, "4.1"; "" = 4.1
  // Of NCCL (NCCL_ALGO, NCCL_PROTO, ...: sim/nccl/choose.h) or of Open MPI (OMPI_MCA_...:
  // sim/collective/open_mpi.h), as the backend is.
  std::map<std::string, std::string> environment;
  std::optional<bool> set_to_none;  // of zero_grad; default by version
  std::optional<bool> no_sync;      // pytorch_ddp (default true), fsdp, fsdp2 (false): around
                                    // micro-steps but the last; false: each of them reduces
  // pytorch_ddp
  std::optional<double> bucket_cap_mb;            // MiB; none = left at its default
  std::int64_t first_bucket_bytes = 1024 * 1024;  // dist._DEFAULT_FIRST_BUCKET_BYTES
  std::vector<double> bucket_cap_mb_list;  // MiB, one for each bucket, the last repeats (#169026:
                                           // later than every version here); empty = none
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  CommHook comm_hook = CommHook::None;
  DdpPlan ddp;
  std::vector<std::string> unused_parameters;
  // averaging
  Granularity granularity = Granularity::PerParameter;
  bool async_op = false;
  FsdpPlan fsdp;
  HorovodPlan horovod;
  ZeroPlan zero;
  ZeroRedundancyPlan zero_redundancy;
  MegatronPlan megatron;
  ApexPlan apex;
  MirroredPlan mirrored;
  ParameterServerPlan parameter_server;
  // local_sgd: accumulation_steps are the steps of a round
  OuterOptimizer outer_optimizer = OuterOptimizer::None;
  LocalSgdPlan local_sgd;
};

Backend backend_of(const Plan& plan, DeviceKind device);
// Whether micro-steps but the last reduce nothing.
bool uses_no_sync(const Plan& plan);
// Of c10d's process group, or of ddpsim's executor: collectives in flight together. MPI's is one.
int worker_threads(const Plan& plan, Backend backend);
// Of the plan's all-reduces. NCCL's rings, trees and the rest are chosen by price, not by the plan.
Algorithm all_reduce_algorithm(const Plan& plan, Backend backend);
// Those that `algorithm` may name.
inline constexpr std::array kTcpAlgorithms{Algorithm::Ring,
                                           Algorithm::DoubleBinaryTree,
                                           Algorithm::RecursiveDoubling,
                                           Algorithm::HalvingDoubling,
                                           Algorithm::Bcube,
                                           Algorithm::Hierarchical,
                                           Algorithm::Torus2d,
                                           Algorithm::Direct};
// Direct sends n (n - 1) messages a round.
inline constexpr int kMaxDirectRanks = 1024;
// Also checks the plan against the workload that it runs and the kind of device that runs it.
Problem validate(const Plan& plan, const Workload& workload, DeviceKind device);

// The whole question.
struct Jitter {
  double cv = 0;  // coefficient of variation of a rank's compute time from step to step
  std::uint64_t seed = 1;
  int samples = 20;
};
// Another job on the same cluster, which computes and communicates at the same time on devices of
// its own.
struct OtherJob {
  std::string workload_name;
  Workload workload;
  Plan plan;
  std::vector<int>
      rank_order;  // device of each of its ranks; >= 2, disjoint from every other job's
};
// What makes batches of input, on each rank, and how they come to its device.
struct InputPipeline {
  double samples_per_s = 0;           // 0 = as many as are wanted
  std::int64_t bytes_per_sample = 0;  // copied to the device, from pinned memory
  bool ahead = false;  // on a stream of their own while the step before runs; false: in the loop,
                       // before forward (batch.to(device))
};
struct Scenario {
  Plan plan;
  int ranks = 0;
  std::vector<int> rank_order;       // device of each rank; empty = 0, 1, 2, ...
  std::vector<OtherJob> other_jobs;  // all jobs start together
  std::map<int, double> slow_ranks;  // compute-time factor of a rank
  std::optional<Jitter> jitter;
  bool stragglers = true;              // ranks vary as the profile says, unless jitter says how
  std::optional<InputPipeline> input;  // none: it is always there
  // On an emulated cluster: computation keeps a core of the shared machine busy (real), or is slept
  // (timed).
  bool real_compute = false;
};
Problem validate(const Scenario& s, int devices);
// Device of each rank: rank_order, or 0, 1, 2, ...
std::vector<int> devices_of(const Scenario& s);
// The scenario of another job by itself.
Scenario scenario_of(const OtherJob& job);

}  // namespace ddpsim
