// NCCL's interface among processes that share the device. A collective starts when the last rank is
// ready, on the virtual clock; a rank that comes early waits for the others' words, in real time.
//
//   ring: steps = 2 (n - 1) of all-reduce, n - 1 of the others; time = steps * (step + part /
//   rate);
//         of broadcast and reduce, a chain that all bytes pass: steps * step + bytes / rate
//   tree: steps = 2 log2 n, of the whole buffer in pieces: steps * step + 2 bytes / rate
// where LL has a quarter of the step and half of the rate, and part = bytes / n.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <nccl.h>
#include <unistd.h>

#include "tests/gpu/fake/meeting.h"

namespace fake = ddpsim::fake;

struct ncclComm {
  fake::Meeting* meeting = nullptr;
  int ranks = 1;
  int rank = 0;
  std::uint64_t said = 0;
};

namespace {

constexpr double kCallUs = 4;
constexpr unsigned kPatienceUs = 20;    // of real time: who sleeps is woken early on a busy machine
constexpr int kBlocks = 2;              // channels, as its log says
constexpr double kTurnUs = 2000;        // a slice of the device for one process
constexpr std::int64_t kSmall = 65536;  // up to here NCCL takes LL

enum class Op : std::uint8_t { AllReduce = 1, ReduceScatter, AllGather, Broadcast, Reduce, Group };
constexpr const char* kNames[] = {"",       "AllReduce", "ReduceScatter", "AllGather", "Broadcast",
                                  "Reduce", ""};

std::string trouble;  // of the call that failed last

bool says(const char* name, const char* value) {
  const char* is = std::getenv(name);
  return is && std::strcmp(is, value) == 0;
}

std::uint64_t hash_of(const char* text) {
  std::uint64_t h = 1469598103934665603ull;
  for (; *text; ++text) h = (h ^ static_cast<unsigned char>(*text)) * 1099511628211ull;
  return h;
}

std::int64_t size_of(ncclDataType_t t) {
  switch (t) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

struct Choice {
  bool tree = false;
  bool ll = false;
};
Choice choose(std::int64_t bytes) {
  Choice c{false, bytes <= kSmall};
  if (const char* algorithm = std::getenv("NCCL_ALGO"))
    c.tree = std::strcmp(algorithm, "Tree") == 0;
  if (const char* protocol = std::getenv("NCCL_PROTO")) c.ll = std::strcmp(protocol, "LL") == 0;
  return c;
}

void tell(const ncclComm& comm, const char* text) {
  const char* path = std::getenv("NCCL_DEBUG_FILE");
  if (!path || comm.rank != 0 || !says("NCCL_DEBUG", "INFO")) return;
  if (std::FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "host:1:1 [0] NCCL INFO %s\n", text);
    std::fclose(file);
  }
}

double time_us(Op op, int ranks, std::int64_t bytes, Choice c) {
  const fake::Planted& p = fake::planted();
  double step = p.nccl_step_us / (c.ll ? 4 : 1);
  double rate = p.nccl_bytes_per_s / 1e6 / (c.ll ? 2 : 1);
  auto n = static_cast<double>(ranks);
  auto all = static_cast<double>(bytes);
  if (op == Op::AllReduce && c.tree) return 2 * std::ceil(std::log2(n)) * step + 2 * all / rate;
  if (op == Op::Broadcast || op == Op::Reduce) return (n - 1) * step + all / rate;
  double steps = op == Op::AllReduce ? 2 * (n - 1) : op == Op::Group ? 1 : n - 1;
  return steps * (step + (op == Op::Group ? all : all / n) / rate);
}

// `bytes`: of the whole buffer; of a group, what a rank sends. `each`: what the log counts.
ncclResult_t together(Op op, ncclComm& comm, std::int64_t bytes, std::int64_t each,
                      cudaStream_t s) {
  Choice choice = choose(bytes);
  char line[160];
  std::snprintf(line, sizeof line, "%s: %lld Bytes -> Algo %s proto %s channel{Lo..Hi}={0..1}",
                kNames[static_cast<int>(op)], static_cast<long long>(each),
                choice.tree && op == Op::AllReduce ? "TREE" : "RING", choice.ll ? "LL" : "SIMPLE");
  if (op != Op::Group) tell(comm, line);
  fake::Slot& slot = comm.meeting->slot[comm.said % fake::kSlots];
  std::int64_t wanted = static_cast<std::int64_t>(comm.said / fake::kSlots + 1) * comm.ranks;
  ++comm.said;
  std::uint64_t what = static_cast<std::uint64_t>(bytes) * 8 + static_cast<std::uint64_t>(op);
  slot.ready_ps[comm.rank] = fake::start_on(s);
  slot.what[comm.rank] = what;
  ++slot.said;
  for (int k = 0; slot.said < wanted; ++k)
    if (k > 200) ::usleep(kPatienceUs);
  std::int64_t ready = 0;
  for (int r = 0; r < comm.ranks; ++r) {
    ready = std::max(ready, slot.ready_ps[r].load());
    if (slot.what[r] != what) {
      trouble = "the ranks called different collectives";
      return ncclInternalError;
    }
  }
  double us = time_us(op, comm.ranks, bytes, choice);
  if (fake::planted().turns > 0) us += kTurnUs;
  std::int64_t end = ready + static_cast<std::int64_t>(us * 1e6);
  fake::busy_until(s, end);
  fake::held(ready, end, kBlocks);
  return ncclSuccess;
}

bool in_group = false;
struct {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::int64_t sent = 0;
  std::int64_t received = 0;
} group;

// One rank alone moves its buffer, if it has to.
ncclResult_t alone(const void* from, void* to, std::int64_t bytes, cudaStream_t s) {
  if (from != to)
    fake::work(s, fake::Kind::Memory, fake::memory_us(2 * static_cast<double>(bytes)));
  return ncclSuccess;
}

ncclResult_t collective(const char* name, Op op, const void* from, std::int64_t from_bytes,
                        void* to, std::int64_t to_bytes, std::int64_t each, ncclComm* comm,
                        cudaStream_t s) {
  trouble.clear();
  if (fake::called(name, fake::planted().launch_us + kCallUs)) {
    trouble = std::string(name) + " was planted to fail";
    return ncclUnhandledCudaError;
  }
  if (!comm || !fake::on_device(from, from_bytes) || !fake::on_device(to, to_bytes)) {
    trouble = "not a buffer on the device";
    return ncclInvalidArgument;
  }
  std::int64_t bytes = std::max(from_bytes, to_bytes);
  if (comm->ranks == 1) return alone(from, to, bytes, s);
  return together(op, *comm, bytes, each, s);
}

std::int64_t bytes_of(size_t count, ncclDataType_t t) {
  return static_cast<std::int64_t>(count) * size_of(t);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = static_cast<int>(fake::planted().nccl_version);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) {
  return trouble.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::uint64_t number = fake::new_meeting();
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* out, int ranks, ncclUniqueId id, int rank) {
  trouble.clear();
  if (ranks < 1 || ranks > fake::kRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (fake::called("ncclCommInitRank", 5000)) return ncclUnhandledCudaError;
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  fake::Meeting& m = *fake::meeting(number);
  const char* host = std::getenv("NCCL_HOSTID");
  m.place[rank] = hash_of(host ? host : "this one");
  ++m.arrived;
  while (m.arrived < ranks) ::usleep(kPatienceUs);
  bool shares = says("NCCL_MULTI_RANK_GPU_ENABLE", "1") && fake::planted().nccl_version >= 23003;
  for (int r = 0; r < ranks; ++r)
    if (r != rank && ((m.place[r] == m.place[rank] && !shares) || fake::planted().refuse > 0)) {
      trouble = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                std::to_string(r) + " both on CUDA device fa000";
      return ncclInvalidUsage;
    }
  auto* comm = new ncclComm{&m, ranks, rank, 0};
  tell(*comm, "NCCL version 2.28.9+cuda13.0");
  *out = comm;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t s) {
  std::int64_t n = bytes_of(count, type);
  return collective("ncclAllReduce", Op::AllReduce, from, n, to, n, n, comm, s);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t s) {
  std::int64_t n = bytes_of(count, type);
  return collective("ncclReduceScatter", Op::ReduceScatter, from, n * comm->ranks, to, n, n, comm,
                    s);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t s) {
  std::int64_t n = bytes_of(count, type);
  return collective("ncclAllGather", Op::AllGather, from, n, to, n * comm->ranks, n, comm, s);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int,
                           ncclComm_t comm, cudaStream_t s) {
  std::int64_t n = bytes_of(count, type);
  return collective("ncclBroadcast", Op::Broadcast, from, n, to, n, n, comm, s);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                        int, ncclComm_t comm, cudaStream_t s) {
  std::int64_t n = bytes_of(count, type);
  return collective("ncclReduce", Op::Reduce, from, n, to, n, n, comm, s);
}

ncclResult_t ncclGroupStart() {
  in_group = true;
  group = {};
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  in_group = false;
  if (!group.comm) return ncclSuccess;
  if (group.sent != group.received) return ncclInternalError;
  if (fake::called("ncclGroupEnd", fake::planted().launch_us + kCallUs)) return ncclInternalError;
  if (group.comm->ranks == 1) return alone(nullptr, &group, group.sent, group.stream);
  return together(Op::Group, *group.comm, group.sent, group.sent, group.stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int, ncclComm_t comm,
                      cudaStream_t s) {
  if (!in_group || !fake::on_device(from, bytes_of(count, type))) return ncclInvalidArgument;
  group.comm = comm;
  group.stream = s;
  group.sent += bytes_of(count, type);
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int, ncclComm_t comm,
                      cudaStream_t s) {
  if (!in_group || !fake::on_device(to, bytes_of(count, type))) return ncclInvalidArgument;
  group.comm = comm;
  group.stream = s;
  group.received += bytes_of(count, type);
  return ncclSuccess;
}

}  // extern "C"
