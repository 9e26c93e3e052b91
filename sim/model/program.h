// Program: one rank's step as operations on lanes; the shared script of the virtual clock and of
// real hardware.
//
// All ranks run the same Program. Each lane but Worker and Callback runs its operations in listed
// order; `deps` name what an operation waits for besides. Names and tensor lists are minted on
// demand from (word, subject), so that lowering stays cheap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/model/algorithm.h"
#include "sim/model/memory.h"
#include "sim/model/plan.h"
#include "sim/model/workload.h"
#include "sim/units/by.h"

namespace ddpsim {

// A stream, a thread, or a pool of them. Every Program has these; a system adds streams of its own
// (Program::streams), which are the lanes after them.
enum class Lane : std::uint8_t { Host, Compute, Comm, Worker, Callback };
inline constexpr std::size_t kLanes = 5;
inline constexpr std::size_t kMostStreams = 8;
constexpr std::size_t number_of(Lane l) {
  return static_cast<std::size_t>(l);
}
constexpr Lane stream(std::size_t k) {
  return static_cast<Lane>(kLanes + k);
}
// One value for each lane that a Program can have.
template <class T>
using ByLane = By<Lane, T, kLanes + kMostStreams>;
// A lane runs one operation after another, in listed order; a pool and a future's callbacks do not.
constexpr bool in_order(Lane l) {
  return l != Lane::Worker && l != Lane::Callback;
}
// On the device: its kernels share it.
constexpr bool on_device(Lane l) {
  return l == Lane::Compute || number_of(l) >= kLanes;
}
// "compute", or the name of a system's stream.
std::string name_of(Lane l, const std::vector<std::string>& streams);
enum class StepKind : std::uint8_t { First, Rebuild, Steady };
inline constexpr By<StepKind, const char*, 3> kStepKinds{"first", "rebuild", "steady"};
constexpr const auto& names_of(StepKind) {
  return kStepKinds;
}

// What an operation does.
enum class Does : std::uint8_t {
  Compute,      // the model's own work
  Copy,         // the training system's: copies, casts and divisions of gradients, zeroing
  Launch,       // the host enqueues another operation
  Communicate,  // a collective
  Wait,         // until a collective has ended
  Host,         // other work of the host thread
  Request,      // asks the coordinator to reduce its tensor
  Load,         // a batch of input: is made, or waited for on the host
  Move          // bytes between the device's memory and its host's
};
// Where in a step it counts. Reduced: what is done with gradients after their reduction.
enum class Phase : std::uint8_t { Between, Forward, Backward, Reduced, Update };
inline constexpr By<Does, const char*, 9> kDoes{
    "compute", "copy", "launch", "communicate", "wait", "host", "request", "load", "move"};
constexpr const auto& names_of(Does) {
  return kDoes;
}
inline constexpr By<Phase, const char*, 5> kPhases{"between", "forward", "backward", "reduced",
                                                   "update"};
constexpr const auto& names_of(Phase) {
  return kPhases;
}
// What Op::subject is.
enum class Of : std::uint8_t { Nothing, Number, Tensor, Bucket, Operation, Label };
// Which tensors it reads or writes.
enum class Touches : std::uint8_t { Nothing, Tensor, Bucket, Everything };

// What an operation is, as data. Questions about it have one function each, below; nothing asks for
// its name.
struct OpKind {
  Does does = Does::Compute;
  Phase phase = Phase::Between;
  Of of = Of::Nothing;
  Touches touches = Touches::Nothing;
  Operation operation = Operation::AllReduce;  // if it communicates
  bool divides = false;                        // by the number of ranks: what averages gradients
  bool in_micro_step = false;                  // its name begins with that of its micro-step
  bool decided = false;  // while the step runs: what it carries differs from step to step
  friend constexpr bool operator==(OpKind, OpKind) = default;
};
// A word of a system's vocabulary: all operations of that name are of that kind. What Op::subject
// is follows the name: "copy_in/" + tensor, "allreduce/bucket." + number.
struct OpWord {
  const char* name;
  OpKind kind;
};

constexpr bool is_collective(OpKind k) {
  return k.does == Does::Communicate;
}
constexpr bool is_broadcast(OpKind k) {
  return is_collective(k) && k.operation == Operation::Broadcast;
}
// Over the link between a device and its host, by an engine of its own: computation goes on.
constexpr bool is_move(OpKind k) {
  return k.does == Does::Move;
}
// Between ranks and a parameter server.
constexpr bool is_served(OpKind k) {
  return is_collective(k) && (k.operation == Operation::Push || k.operation == Operation::Pull);
}
// A server's own work on what was pushed to it: the rank waits for it beside what it does.
constexpr bool is_server_work(OpKind k) {
  return k.does == Does::Wait && k.phase == Phase::Update && k.of == Of::Bucket;
}
// A collective, a copy to or from the host, or waiting for one.
constexpr bool is_communication(OpKind k) {
  return is_collective(k) || is_move(k) || k.does == Does::Wait;
}
// Occupies the device that computes.
constexpr bool is_compute(OpKind k) {
  return k.does == Does::Compute || k.does == Does::Copy;
}
// On the host thread of a GPU's rank.
constexpr bool is_host_work(OpKind k) {
  return k.does == Does::Launch || k.does == Does::Host || k.does == Does::Request;
}
constexpr bool is_launch(OpKind k) {
  return k.does == Does::Launch;
}
constexpr bool is_wait(OpKind k) {
  return k.does == Does::Wait;
}
constexpr bool is_input(OpKind k) {
  return k.does == Does::Load;
}
constexpr bool is_request(OpKind k) {
  return k.does == Does::Request;
}
// Until all that its step requested has been reduced.
constexpr bool waits_for_requests(OpKind k) {
  return k.does == Does::Wait && k.touches == Touches::Everything;
}
constexpr bool is_decided(OpKind k) {
  return k.decided;
}
// Its subject is a bucket, or a tensor.
constexpr bool of_bucket(OpKind k) {
  return k.of == Of::Bucket;
}
constexpr bool of_tensor(OpKind k) {
  return k.of == Of::Tensor;
}
constexpr bool follows_reduction(OpKind k) {
  return k.phase == Phase::Reduced;
}
constexpr bool is_forward(OpKind k) {
  return k.does == Does::Compute && k.phase == Phase::Forward;
}
constexpr bool is_backward(OpKind k) {
  return k.does == Does::Compute && k.phase == Phase::Backward;
}
constexpr bool is_update(OpKind k) {
  return k.does == Does::Compute && k.phase == Phase::Update;
}
// A collective that carries tensors: gradients, in data parallelism.
constexpr bool carries_tensors(OpKind k) {
  return is_collective(k) && k.touches != Touches::Nothing;
}
constexpr bool carries_bucket(OpKind k) {
  return carries_tensors(k) && k.of == Of::Bucket;
}
// A gradient into what will be reduced, and out of it again.
constexpr bool copies_in(OpKind k) {
  return k.does == Does::Copy && k.phase == Phase::Backward && k.of == Of::Tensor && k.divides;
}
constexpr bool copies_out(OpKind k) {
  return k.does == Does::Copy && k.phase == Phase::Reduced && k.of == Of::Tensor;
}

// What decides an operation's duration (predict::price).
enum class Cost : std::uint8_t {
  Measured,          // Op::duration
  Memory,            // Op::traffic, Op::kernels
  HalfDivision,      // the same, and a division of its bucket in half precision
  ThinProduct,       // Op::traffic, Op::kernels: matrices by a few columns
  Launch,            // Op::kernels that the host enqueues
  LaunchCollective,  // a collective that it enqueues
  Traverse           // of the autograd graph
};
inline constexpr By<Cost, const char*, 7> kCosts{"measured",     "memory", "half_division",
                                                 "thin_product", "launch", "launch_collective",
                                                 "traverse"};
constexpr const auto& names_of(Cost) {
  return kCosts;
}

// A way of parting the ranks into groups of equal size that communicate among themselves: rank r is
// of the group of r - r / stride % size * stride, and of every stride-th rank after it, `size` in
// all. The number of ranks is a multiple of size * stride.
struct RankGroups {
  std::string name;  // a system's word: "shard"
  int size = 1;
  int stride = 1;
  // All ranks, and this parameter server of the job's: Operation::Push and Pull. -1 = ranks alone.
  int server = -1;
  // The hosts' own processes communicate (MPI), whatever the job's backend: its all-reduce.
  std::optional<Algorithm> by_hosts = {};
  friend bool operator==(const RankGroups&, const RankGroups&) = default;
};
// Of each group, its ranks in order.
std::vector<std::vector<int>> members(const RankGroups& g, int ranks);

inline constexpr std::uint32_t kNoSubject = UINT32_MAX;
inline constexpr std::uint32_t kNoOp = UINT32_MAX;

struct Op {
  OpKind kind;
  Lane lane = Lane::Host;
  Cost cost = Cost::Measured;
  DType dtype = DType::Float32;  // of what a collective moves
  std::uint8_t group = 0;        // of a collective: k = of Program::groups[k - 1]; 0 = all ranks
  std::int32_t root = 0;         // of a broadcast: the rank that has the data
  std::uint16_t word = 0;        // index into Program::words
  std::int16_t micro = -1;       // accumulation micro-step, -1 = not named by one
  std::uint32_t subject = kNoSubject;
  std::int64_t bytes = 0;    // as listed: bytes touched; wire bytes of a collective
  Duration duration;         // compute and measured host time
  std::int64_t traffic = 0;  // bytes of memory traffic (read + write)
  std::int32_t kernels = 0;  // that run, or that a launch enqueues
  std::int32_t hooks = 0;    // DDP hooks run on the host in this operation
  std::uint32_t dep[2] = {kNoOp, kNoOp};
};
struct Bucket {
  std::vector<TensorIndex> tensors;  // in the order in which they lie in the bucket
  Bytes bytes;
  Bytes wire_bytes;
  DType dtype = DType::Float32;
  // Of each of its tensors, the elements that are in it; empty = all of them.
  struct Slice {
    std::int64_t from = 0;
    std::int64_t to = 0;
  };
  std::vector<Slice> slices;
};

struct StepProgram {
  StepKind kind = StepKind::Steady;
  std::vector<Op> ops;
  std::vector<Bucket> buckets;  // launch order
  struct ExtraDep {
    std::uint32_t op;
    std::uint32_t dep;
  };
  std::vector<ExtraDep> extra_deps;  // beyond two per operation
  std::vector<MemoryChange> memory;  // as the host issues operations
  // Of a coordinated Program, by tensor: the operation that makes it ready; kNoOp = none does.
  std::vector<std::uint32_t> made_by;
  // The index that the next one gets.
  std::uint32_t next_op() const { return static_cast<std::uint32_t>(ops.size()); }
  std::uint32_t next_bucket() const { return static_cast<std::uint32_t>(buckets.size()); }
};

// What is reduced together is decided while the Program is played, by a thread of each rank that
// wakes in cycles (systems::Fusion). Its operations are on Lane::Worker, Lane::Comm and the first
// of Program::streams; they belong to the step whose tensors they reduce.
struct Coordination {
  // What becomes of tensors that are reduced together, on GPUs: one all-reduce; or a reduce-scatter
  // in each host, something between hosts, an all-gather in each host.
  enum class Reduces : std::uint8_t { Flat, Hierarchical, Torus, Adasum };
  struct Requested {
    std::int64_t bytes = 0;  // on the wire
    DType dtype = DType::Float32;
    std::uint32_t group = kNoSubject;  // requested with the others of the group
  };
  std::vector<Requested> tensors;  // by tensor
  Duration cycle;                  // from one beginning to the next, at least
  std::int64_t threshold = 0;      // bytes reduced together, at most; 0 = each alone
  std::int64_t cache = 0;          // tensors that ranks agree on by a bit each; 0 = by their names
  std::int64_t padding = 1;        // of a tensor's bytes in what is fused
  bool group_fusion = true;        // groups fuse with others
  int batch = 1;                   // tensors that one kernel copies
  Reduces reduces = Reduces::Flat;
  int local_ranks = 1;               // of a host; of parts of a host's ranks (not Flat)
  std::int64_t unit = 64;            // elements of a rank: what is fused is a multiple (not Flat)
  int streams = 1;                   // of the device, which reductions take in turn
  bool waits_for_gradients = false;  // the thread does, and not the stream
  // Flat: who divides a sum by the ranks. The copy out of what is fused, and a kernel of a single
  // one; or a kernel of each.
  enum class Divides : std::uint8_t { Nccl, TheCopy, AKernel } divides = Divides::Nccl;
  bool async_completion = false;  // the host waits until everything is launched, not until it ends
  // Hierarchical, Adasum: what a copy between a device and its host takes, and what the host's
  // processes read and write, bytes per picosecond.
  Duration copy_latency;
  double copied = 0;
  double touched = 0;
};

// Parameter servers: processes on hosts, which are no ranks. What a server does with what was
// pushed to it (is_served) takes its own time, one thing beside another.
inline constexpr std::int64_t kMostServers = 100;
struct Servers {
  int count = 1;
  bool synchronous = false;     // a server waits for all ranks' gradients, and updates once
  std::int64_t staleness = -1;  // else: steps that a rank may be ahead of the slowest; -1 = any
  bool own_hosts = false;       // false: on the hosts of the ranks, in turn
  // Ranks go at their own pace.
  bool apart() const { return !synchronous; }
};

struct Program {
  DeviceKind device = DeviceKind::Gpu;
  Backend backend = Backend::Nccl;
  int worker_threads = 2;      // of Lane::Worker
  bool one_connection = true;  // of Gloo's collectives to a neighbour
  int micro_steps = 1;
  double core_share = -1;  // of a measured operation's duration: what needs a core; < 0 = unknown
  int at_once = 0;         // as StepTimes::at_once
  std::vector<std::string> streams;  // a system's own: "unshard"; at most kMostStreams
  std::vector<RankGroups> groups;    // that collectives are of, besides all ranks
  std::optional<Coordination> coordination;
  std::optional<Servers> servers;
  double products = 1;              // as StepTimes::products
  Duration kernel;                  // as StepTimes::kernel
  Held resident{};                  // memory where a step begins
  bool activations_known = false;   // and in `memory`
  std::vector<StepProgram> warmup;  // first, (first,) rebuild
  StepProgram steady;
  std::vector<std::string> words;  // names of operations, less their subjects
  std::vector<std::string>
      labels;  // a system's own subjects (Of::Label), those of StepProgram::buckets first
  std::vector<std::string> tensor_names;
  std::size_t frozen =
      0;  // of these, the last ones: they have no gradient, and nothing updates them
  std::vector<std::int64_t> tensor_bytes;
  // The index that the next one gets.
  std::uint32_t next_label() const { return static_cast<std::uint32_t>(labels.size()); }
};

std::string name_of(const Program& p, const StepProgram& s, std::uint32_t op);
// Indices into Program::tensor_names, as listed in docs/formats.md.
std::vector<TensorIndex> tensors_of(const Program& p, const StepProgram& s, std::uint32_t op);
// A system's own streams that communicate: communicators beside the job's first one, whose
// collectives are on Lane::Comm, or on the stream that waits for them.
std::vector<Lane> own_communicators(const Program& p);
// A lane's communicator: 0 = the job's first, k = own[k - 1].
std::size_t communicator_of(const std::vector<Lane>& own, Lane lane);
// All explicit dependencies, ascending.
std::vector<std::uint32_t> deps_of(const StepProgram& s, std::uint32_t op);

}  // namespace ddpsim
