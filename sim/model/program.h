// Program: one rank's step as operations on lanes; the shared script of the virtual clock and of real hardware.
//
// All ranks run the same Program. Each lane but Worker and Callback runs its operations in listed order; `deps` name what an operation
// waits for besides. Names and tensor lists are minted on demand from (kind, subject), so that lowering stays cheap.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/model/workload.h"

namespace ddpsim {

enum class Lane : std::uint8_t { Host, Compute, Comm, Worker, Callback };
const char* name_of(Lane l);
enum class StepKind : std::uint8_t { First, Rebuild, Steady };
const char* name_of(StepKind k);

enum class OpKind : std::uint8_t {
  Launch,  // host enqueues operation `subject`
  ZeroGrad,
  RebuildBroadcast,  // subject 0: indices, 1: sizes
  RebuildWait,
  FlattenBuffers,  // subject: group
  BufferBroadcast,
  BufferWait,
  UnflattenBuffers,
  Forward,
  FindUnused,
  Backward,      // subject: tensor
  BackwardTail,  // after the last gradient
  Accumulate,    // subject: tensor
  CopyIn,        // subject: tensor
  Compress,      // subject: bucket
  Divide,        // subject: bucket; comm hook's own division
  AllReduce,     // subject: bucket
  UnusedAllReduce,
  UnusedWait,
  Decompress,  // subject: bucket
  BucketWait,  // subject: bucket
  CopyOut,     // subject: tensor
  GradAllReduce,  // averaging; subject: tensor, or kNoSubject for flat
  GradWait,
  GradDivide,
  FlattenGrads,
  UnflattenGrads,
  Optimizer,
};

inline constexpr std::uint32_t kNoSubject = UINT32_MAX;
inline constexpr std::uint32_t kNoOp = UINT32_MAX;

struct Op {
  OpKind kind = OpKind::Forward;
  Lane lane = Lane::Host;
  bool priced = false;      // duration comes from traffic and the Profile, not from the Workload
  std::int16_t micro = -1;  // accumulation micro-step, -1 = not named by one
  std::uint32_t subject = kNoSubject;
  std::int64_t bytes = 0;        // as listed: bytes touched; wire bytes of a collective
  Duration duration;             // compute and measured host time
  std::int64_t traffic = 0;      // bytes of memory traffic (read + write), if priced
  std::int32_t kernels = 0;      // kernels that a Launch enqueues, if priced
  std::int32_t hooks = 0;        // DDP hooks run on the host in this operation
  std::uint32_t dep[2] = {kNoOp, kNoOp};
};
constexpr bool is_collective(OpKind k) {
  return k == OpKind::AllReduce || k == OpKind::GradAllReduce || k == OpKind::UnusedAllReduce || k == OpKind::BufferBroadcast || k == OpKind::RebuildBroadcast;
}
constexpr bool is_broadcast(OpKind k) { return k == OpKind::BufferBroadcast || k == OpKind::RebuildBroadcast; }

struct Bucket {
  std::vector<TensorIndex> tensors;  // in the order in which they lie in the bucket
  Bytes bytes;
  Bytes wire_bytes;
  DType dtype = DType::Float32;
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
};

struct Program {
  DeviceKind device = DeviceKind::Gpu;
  Backend backend = Backend::Nccl;
  int worker_threads = 2;  // of Lane::Worker
  bool one_connection = true;  // of Gloo's collectives to a neighbour
  int micro_steps = 1;
  double core_share = -1;  // of a measured operation's duration: what needs a core; < 0 = unknown
  int at_once = 0;         // as StepTimes::at_once
  std::vector<StepProgram> warmup;  // first, (first,) rebuild
  StepProgram steady;
  std::vector<std::string> tensor_names;
  std::vector<std::int64_t> tensor_bytes;
};

std::string name_of(const Program& p, const StepProgram& s, std::uint32_t op);
// Indices into Program::tensor_names, as listed in sim/FORMATS.md.
std::vector<TensorIndex> tensors_of(const Program& p, const StepProgram& s, std::uint32_t op);
// Of what a collective moves. `hook`: the plan's, of compressed buckets.
DType element_type(const Op& op, const StepProgram& s, const Workload& w, CommHook hook);
// All explicit dependencies, ascending.
std::vector<std::uint32_t> deps_of(const StepProgram& s, std::uint32_t op);

}  // namespace ddpsim
