#include "calib/cuda/collectives.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <sstream>

#include "calib/clock.h"
#include "calib/cuda/bench.h"
#include "calib/cuda/collective_runs.h"
#include "calib/cuda/kernels.h"
#include "calib/cuda/libraries.h"
#include "calib/cuda/ranks.h"
#include "calib/fit/shapes.h"
#include "calib/gpu/nccl_log.h"
#include "calib/interrupt.h"
#include "calib/memory_file.h"

namespace ddpsim::calib::cuda {
namespace {

constexpr std::int64_t kLongNs =
    100'000;  // a collective this long gives the host time to launch the next
constexpr std::int64_t kSpinNs = 600'000;
constexpr std::int64_t kWarmNs = 50'000'000;  // a GPU that was idle raises its clock while it works

// `bytes`: of the whole result (all-gather), of the input (reduce-scatter, all-to-all), else of the
// one buffer: as nccl-tests counts.
void issue(const Point& p, const RankPlace& place, char* send, char* receive, ncclComm_t comm,
           cudaStream_t s) {
  const Nccl& l = nccl();
  auto n = static_cast<std::size_t>(place.ranks);
  std::size_t count = std::max<std::size_t>(1, static_cast<std::size_t>(p.bytes) / 4);
  std::size_t part = std::max<std::size_t>(1, count / n);
  char* out = p.in_place ? send : receive;
  switch (p.op->op) {
    case Operation::AllReduce:
      DDPSIM_CALL(l, ncclAllReduce(send, out, count, ncclFloat, ncclSum, comm, s));
      return;
    case Operation::ReduceScatter:
      DDPSIM_CALL(
          l,
          ncclReduceScatter(
              send, p.in_place ? send + 4 * part * static_cast<std::size_t>(place.rank) : receive,
              part, ncclFloat, ncclSum, comm, s));
      return;
    case Operation::AllGather:
      DDPSIM_CALL(l, ncclAllGather(
                         p.in_place ? out + 4 * part * static_cast<std::size_t>(place.rank) : send,
                         out, part, ncclFloat, comm, s));
      return;
    case Operation::Broadcast:
      DDPSIM_CALL(l, ncclBroadcast(send, out, count, ncclFloat, 0, comm, s));
      return;
    case Operation::Reduce:
      DDPSIM_CALL(l, ncclReduce(send, out, count, ncclFloat, ncclSum, 0, comm, s));
      return;
    case Operation::AllToAll:
      DDPSIM_CALL(l, ncclGroupStart());
      for (std::size_t r = 0; r < n; ++r) {
        DDPSIM_CALL(l,
                    ncclSend(send + 4 * part * r, part, ncclFloat, static_cast<int>(r), comm, s));
        DDPSIM_CALL(
            l, ncclRecv(receive + 4 * part * r, part, ncclFloat, static_cast<int>(r), comm, s));
      }
      DDPSIM_CALL(l, ncclGroupEnd());
      return;
    case Operation::SendRecv:
      DDPSIM_CALL(l, ncclGroupStart());
      DDPSIM_CALL(l, ncclSend(send, count, ncclFloat, (place.rank + 1) % place.ranks, comm, s));
      DDPSIM_CALL(l, ncclRecv(receive, count, ncclFloat,
                              (place.rank + place.ranks - 1) % place.ranks, comm, s));
      DDPSIM_CALL(l, ncclGroupEnd());
      return;
    case Operation::Push:
    case Operation::Pull:
      return;  // of parameter servers: not NCCL's
  }
}

// Collectives back to back with an event after each, in a queue that a spin kernel let the host
// fill. Sums of zeros do not grow. `readings` 0: one, untimed.
void measure_rank(const std::vector<Point>& points, const RankPlace& place, ncclComm_t comm,
                  std::int64_t end_ns, int readings, Table& table) {
  std::int64_t most = 0;
  for (const Point& p : points) most = std::max(most, p.bytes);
  DeviceMemory send(most + 4096);
  DeviceMemory receive(most + 4096);
  DDPSIM_CUDA(cudaMemset(send.at(), 0, static_cast<std::size_t>(most + 4096)));
  DDPSIM_CUDA(cudaDeviceSynchronize());
  StreamOwner stream;
  std::vector<EventOwner> events;
  for (int k = 0; k <= readings; ++k) events.emplace_back();
  try {
    for (std::int64_t until = now_ns() + kWarmNs; readings > 0 && now_ns() < until;) {
      for (int k = 0; k < 20; ++k) launch_fill(receive.at(), most / 4 * 4, stream);
      DDPSIM_CUDA(cudaStreamSynchronize(stream));
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      auto one = [&] {
        issue(points[i], place, static_cast<char*>(send.at()), static_cast<char*>(receive.at()),
              comm, stream);
      };
      // All ranks stop together: rank 0 looks at the clock, and tells the others.
      if (place.rank == 0 && now_ns() > end_ns) table.ranks.rendezvous.start_ns = -1;
      table.ranks.rendezvous.meet(i % 2 == 0 ? 2 : 3, static_cast<int>(i / 2 + 1) * place.ranks);
      if (table.ranks.rendezvous.start_ns < 0) return;
      one();
      DDPSIM_CUDA(cudaStreamSynchronize(stream));
      if (readings == 0) continue;
      launch_spin(kSpinNs, stream);
      DDPSIM_CUDA(cudaEventRecord(events[0], stream));
      for (int k = 0; k < readings; ++k) {
        one();
        DDPSIM_CUDA(cudaEventRecord(events[static_cast<std::size_t>(k) + 1], stream));
      }
      bool full = cudaEventQuery(events[0]) == cudaErrorNotReady;
      DDPSIM_CUDA(cudaEventSynchronize(events.back()));
      for (int k = 0; k < readings; ++k) {
        auto at = static_cast<std::size_t>(k);
        std::int64_t ns = std::max<std::int64_t>(1, elapsed_ns(events[at], events[at + 1]));
        table.ns[i][k][place.rank] = full || ns > kLongNs ? ns : kNotFull;
      }
    }
  } catch (const std::exception& e) {
    leave(table.ranks, place, e);
  }
}

std::vector<Point> points_of(const Way& way, int ranks, std::int64_t most_bytes) {
  std::vector<Point> out;
  for (const Named& op : kOps) {
    if (way.algorithm && op.op != Operation::AllReduce)
      continue;  // the other collectives: NCCL's own choice
    for (std::int64_t bytes : collective_bytes())
      for (bool in_place : {true, false}) {
        if (bytes > most_bytes || (op.op >= Operation::AllToAll && in_place)) continue;
        if (in_parts(op.op) && bytes % (4 * ranks) != 0) continue;
        if (ranks == 1 && (in_place || op.op != Operation::AllReduce))
          continue;  // nothing is launched in place; the rest is the same copy
        if (!in_place && op.op != Operation::AllReduce && op.op < Operation::AllToAll) continue;
        out.push_back({&op, bytes, in_place});
      }
  }
  return out;
}

std::string text_of(const Way& w) {
  std::string out = w.algorithm ? std::string(w.algorithm) + "/" + w.protocol : "NCCL's own choice";
  if (w.channels > 0) out += ", " + std::to_string(w.channels) + " channels";
  return out;
}

constexpr std::int64_t kWayNs = 25'000'000'000;
constexpr double kFirstWayS = 2;  // what a way must have: a smoke measures a few points of one
constexpr double kNextWayS = 6;

struct Machine {
  const CalibrateOptions& options;
  Run& head;                     // its `skipped` grows
  std::optional<MpsDaemon> mps;  // several ranks on one GPU
  bool as_one_host = false;
  std::int64_t end_ns = 0;
  std::vector<Run> runs;
  double left_s() const { return static_cast<double>(end_ns - now_ns()) / 1e9; }
  Place place() const {
    return !mps ? Place::OwnGpu : as_one_host ? Place::OneHost : Place::OwnHosts;
  }
};

void run_way(Machine& machine, int ranks, const Way& way) {
  const char* where[] = {"", " on one GPU", " of one host on one GPU"};
  std::string what = std::to_string(ranks) + " ranks" + where[static_cast<int>(machine.place())] +
                     ", " + text_of(way);
  if (interrupted()) {
    machine.head.skipped.push_back({what, "interrupted"});
    return;
  }
  if (machine.left_s() < (machine.runs.empty() ? kFirstWayS : kNextWayS)) {
    machine.head.skipped.push_back({what, "the time of this stage was over"});
    return;
  }
  std::vector<Point> points = points_of(way, ranks, machine.mps ? 64ll << 20 : 1ll << 30);
  if (points.size() > kMostPoints) points.resize(kMostPoints);
  RanksOptions o;
  o.ranks = ranks;
  o.one_gpu = machine.mps ? &*machine.mps : nullptr;
  o.as_one_host = machine.as_one_host;
  if (way.algorithm) o.environment = {{"NCCL_ALGO", way.algorithm}, {"NCCL_PROTO", way.protocol}};
  if (way.channels > 0)
    o.environment.insert(o.environment.end(), {{"NCCL_MIN_CTAS", std::to_string(way.channels)},
                                               {"NCCL_MAX_CTAS", std::to_string(way.channels)}});
  // Once with NCCL's log, for what it chooses, and once without, for times: writing the log makes
  // rank 0 late.
  SharedMemory memory(sizeof(Table));
  auto play = [&](int readings, const std::string& log) {
    auto* table = new (memory.data()) Table{};
    o.log = log;
    std::int64_t end_ns =
        std::min(machine.end_ns, now_ns() + kWayNs);  // one way must not take what all have
    o.timeout_s = static_cast<double>(end_ns - now_ns()) / 1e9 + 5;
    run_ranks(o, table->ranks, [&](const RankPlace& place, ncclComm_t comm) {
      if (machine.mps) require_side_by_side(table->ranks, place, comm);
      measure_rank(points, place, comm, end_ns, readings, *table);
    });
    return table;
  };
  try {
    MemoryFile log;
    play(0, log.path());
    gpu::NcclLog said = gpu::parse_nccl_log(log.text());
    const Table* table = play(kReadings, "");
    for (Run& run :
         runs_of(machine.head, points, *table, ranks, way, machine.place(), said, machine.options))
      machine.runs.push_back(std::move(run));
  } catch (const std::runtime_error& e) {
    machine.head.skipped.push_back({what, e.what()});
    if (machine.mps) {  // o.one_gpu is not used again; clients that ended in the middle leave a
                        // daemon that nobody can trust
      machine.mps.reset();
      machine.mps.emplace();
    }
  }
}

void measure_ways(Machine& machine, const std::vector<int>& counts, int version) {
  for (int n : counts) run_way(machine, n, {});
  if (counts.front() == 1) return;
  std::vector<Way> forced{{"Ring", "Simple"}, {"Ring", "LL"}, {"Tree", "Simple"}, {"Tree", "LL"}};
  if (!machine.mps) {  // over sockets there is neither
    forced.insert(forced.end(), {{"Ring", "LL128"}, {"Tree", "LL128"}, {"NVLS", "Simple"}});
    for (int channels : {1, 2, 4, 8, 16}) forced.push_back({"Ring", "Simple", channels});
  }
  for (const Way& w : forced) run_way(machine, counts.front(), w);
  if (!machine.mps) return;
  if (version < kSharesGpus) {
    machine.head.skipped.push_back({"several ranks of one host on one GPU",
                                    "this NCCL refuses them; 2.30.3 and later have "
                                    "NCCL_MULTI_RANK_GPU_ENABLE"});
    return;
  }
  machine.as_one_host = true;
  for (int n : counts) run_way(machine, n, {});
  for (const Way& w : forced) run_way(machine, counts.front(), w);
}

}  // namespace

std::vector<Run> measure_nccl(Run& head, const CalibrateOptions& options) {
  int gpus = 0;
  int version = 0;
  std::istringstream(in_child([] {
    int n = 0;
    int v = 0;
    DDPSIM_CUDA(cudaGetDeviceCount(&n));
    DDPSIM_CALL(nccl(), ncclGetVersion(&v));
    return std::to_string(n) + " " + std::to_string(v);
  })) >>
      gpus >> version;
  Machine machine{options, head, {}, false, 0, {}};
  machine.end_ns = now_ns() + static_cast<std::int64_t>(options.budget_s * 1e9);
  std::vector<int> counts;
  if (options.one_gpu) {
    if (options.ranks != 0 && (options.ranks < 2 || options.ranks > 16))
      throw std::runtime_error("several ranks on one GPU are 2 to 16");
    machine.mps.emplace();
    counts = options.ranks > 0 ? std::vector<int>{options.ranks} : std::vector<int>{2, 4};
  } else {
    int most = options.ranks > 0 ? options.ranks : std::min(gpus, 64);
    if (most > gpus || most > 64)
      throw std::runtime_error(std::to_string(most) +
                               " ranks need as many GPUs, this machine has " +
                               std::to_string(gpus) + " (or --one-gpu)");
    if (most > 1) counts.push_back(most);
    for (int n = 2; n < most; n *= 2) counts.push_back(n);
    if (counts.empty()) counts.push_back(1);
    if (most == 1)
      machine.head.skipped.push_back({"collectives between GPUs",
                                      "one rank: NCCL copies, which shows what a call costs; "
                                      "--one-gpu runs several ranks on one GPU"});
  }
  measure_ways(machine, counts, version);
  return std::move(machine.runs);
}

}  // namespace ddpsim::calib::cuda
