#include "calib/cuda/collectives.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <sstream>

#include "calib/clock.h"
#include "calib/cuda/bench.h"
#include "calib/cuda/kernels.h"
#include "calib/cuda/libraries.h"
#include "calib/cuda/ranks.h"
#include "calib/fit/shapes.h"
#include "calib/gpu/nccl_log.h"
#include "calib/interrupt.h"
#include "calib/memory_file.h"
#include "calib/origin.h"

namespace ddpsim::calib::cuda {
namespace {

enum class Op : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Reduce,
  AllToAll,
  SendReceive
};
struct Named {
  Op op;
  const char* sample;  // of the Run
  const char* nccl;    // in its log; "" = it does not choose
};
constexpr Named kOps[] = {{Op::AllReduce, "all_reduce", "AllReduce"},
                          {Op::ReduceScatter, "reduce_scatter", "ReduceScatter"},
                          {Op::AllGather, "all_gather", "AllGather"},
                          {Op::Broadcast, "broadcast", "Broadcast"},
                          {Op::Reduce, "reduce", "Reduce"},
                          {Op::AllToAll, "all_to_all", ""},
                          {Op::SendReceive, "send_receive", ""}};

template <std::size_t N>
std::int64_t number_of(const std::array<std::string_view, N>& names, const std::string& name) {
  auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() ? -1 : at - names.begin();
}

// A way to run: NCCL's own choice, or one that is forced.
struct Way {
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  int channels = 0;  // forced; 0 = NCCL's
};

bool in_parts(Op op) {
  return op == Op::ReduceScatter || op == Op::AllGather || op == Op::AllToAll;
}  // a rank's share of `bytes` each

constexpr int kReadings = 20;
constexpr int kMostPoints = 256;
constexpr std::int64_t kNotFull = -1;  // of a collective that may have waited for its launch
constexpr std::int64_t kLongNs =
    100'000;  // a collective this long gives the host time to launch the next
constexpr std::int64_t kSpinNs = 600'000;
constexpr std::int64_t kWarmNs = 50'000'000;  // a GPU that was idle raises its clock while it works

struct Table {
  RanksShared ranks;
  std::int64_t ns[kMostPoints][kReadings][64];  // by point, reading and rank; 0 = not measured
};

struct Point {
  const Named* op;
  std::int64_t bytes;
  bool in_place;
};

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
    case Op::AllReduce:
      DDPSIM_CALL(l, ncclAllReduce(send, out, count, ncclFloat, ncclSum, comm, s));
      return;
    case Op::ReduceScatter:
      DDPSIM_CALL(
          l,
          ncclReduceScatter(
              send, p.in_place ? send + 4 * part * static_cast<std::size_t>(place.rank) : receive,
              part, ncclFloat, ncclSum, comm, s));
      return;
    case Op::AllGather:
      DDPSIM_CALL(l, ncclAllGather(
                         p.in_place ? out + 4 * part * static_cast<std::size_t>(place.rank) : send,
                         out, part, ncclFloat, comm, s));
      return;
    case Op::Broadcast:
      DDPSIM_CALL(l, ncclBroadcast(send, out, count, ncclFloat, 0, comm, s));
      return;
    case Op::Reduce:
      DDPSIM_CALL(l, ncclReduce(send, out, count, ncclFloat, ncclSum, 0, comm, s));
      return;
    case Op::AllToAll:
      DDPSIM_CALL(l, ncclGroupStart());
      for (std::size_t r = 0; r < n; ++r) {
        DDPSIM_CALL(l,
                    ncclSend(send + 4 * part * r, part, ncclFloat, static_cast<int>(r), comm, s));
        DDPSIM_CALL(
            l, ncclRecv(receive + 4 * part * r, part, ncclFloat, static_cast<int>(r), comm, s));
      }
      DDPSIM_CALL(l, ncclGroupEnd());
      return;
    case Op::SendReceive:
      DDPSIM_CALL(l, ncclGroupStart());
      DDPSIM_CALL(l, ncclSend(send, count, ncclFloat, (place.rank + 1) % place.ranks, comm, s));
      DDPSIM_CALL(l, ncclRecv(receive, count, ncclFloat,
                              (place.rank + place.ranks - 1) % place.ranks, comm, s));
      DDPSIM_CALL(l, ncclGroupEnd());
      return;
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
    if (way.algorithm && op.op != Op::AllReduce)
      continue;  // the other collectives: NCCL's own choice
    for (std::int64_t bytes : collective_bytes())
      for (bool in_place : {true, false}) {
        if (bytes > most_bytes || (op.op >= Op::AllToAll && in_place)) continue;
        if (in_parts(op.op) && bytes % (4 * ranks) != 0) continue;
        if (ranks == 1 && (in_place || op.op != Op::AllReduce))
          continue;  // nothing is launched in place; the rest is the same copy
        if (!in_place && op.op != Op::AllReduce && op.op < Op::AllToAll) continue;
        out.push_back({&op, bytes, in_place});
      }
  }
  return out;
}

// Where ranks are: a GPU each, or all on the first one.
enum class Place : std::uint8_t { OwnGpu, OwnHosts, OneHost };  // numbers: parameter one_gpu

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Readings of one point, the slowest rank's; of those that nobody waited for.
std::vector<Duration> durations_of(const Table& table, std::size_t point, int ranks) {
  std::vector<Duration> out;
  for (int k = 0; k < kReadings; ++k) {
    std::int64_t slowest = 0;
    bool full = true;
    for (int r = 0; r < ranks; ++r) {
      slowest = std::max(slowest, table.ns[point][k][r]);
      full = full && table.ns[point][k][r] != kNotFull;
    }
    if (full && slowest > 0) out.push_back({slowest * 1000});
  }
  return out;
}

// What a collective takes among others back to back: of each rank's readings but the first, which
// waits for the ranks' clocks, the mean; the slowest rank's. Ranks leave a collective one after
// another, so that what one reading is too long the next one is too short, on each rank for itself:
// the slowest of each reading are too long together. 0 = a reading is missing.
std::int64_t period_ps(const Table& table, std::size_t point, int ranks) {
  std::int64_t slowest = 0;
  for (int r = 0; r < ranks; ++r) {
    std::int64_t sum = 0;
    for (int k = 1; k < kReadings; ++k) {
      if (table.ns[point][k][r] <= 0) return 0;
      sum += table.ns[point][k][r];
    }
    slowest = std::max(slowest, sum * 1000 / (kReadings - 1));
  }
  return slowest;
}

// All that is said of the samples of one operation, but NCCL's choices.
CollectiveSetting setting_of(const Run& head, const Named& op, int ranks, const Way& way,
                             Place place, const CalibrateOptions& options) {
  CollectiveSetting c;
  c.op = op.sample;
  c.ranks = ranks;
  c.gpus_per_process = 1;
  c.gpu = head.origin.gpu.substr(0, head.origin.gpu.find(" ("));
  c.hosts = place == Place::OwnHosts ? ranks : 1;
  if (way.algorithm) {
    c.algorithm = lower(way.algorithm);
    c.protocol = lower(way.protocol);
  }
  // Ranks of one host that share a GPU have no cluster: nothing says what joins them.
  if (place == Place::OwnHosts)
    c.cluster = kOneGpuCluster;
  else if (place == Place::OwnGpu)
    c.cluster = options.cluster;
  int channels = place != Place::OwnGpu ? kOneGpuChannels : way.channels;
  if (channels > 0)
    c.environment = {{"NCCL_MIN_CTAS", std::to_string(channels)},
                     {"NCCL_MAX_CTAS", std::to_string(channels)}};
  c.source = "ddpsim calibrate --backend nccl: " + c.gpu;
  return c;
}

// "all_reduce@one-gpu/n2/ring/simple"
std::string key_of(const CollectiveSetting& c, const Way& way, Place place) {
  std::string out =
      c.op + "@" + (c.cluster.empty() ? c.gpu : c.cluster) + "/n" + std::to_string(c.ranks);
  if (place == Place::OneHost) out += "/one-host";
  if (!c.algorithm.empty()) out += "/" + c.algorithm + "/" + c.protocol;
  if (way.channels > 0) out += "/channels" + std::to_string(way.channels);
  return out;
}

// A Run for each operation of which there is a reading.
std::vector<Run> runs_of(const Run& head, const std::vector<Point>& points, const Table& table,
                         int ranks, const Way& way, Place place, const gpu::NcclLog& log,
                         const CalibrateOptions& options) {
  std::vector<Run> out;
  for (const Named& op : kOps) {
    Run run = head;
    run.skipped.clear();
    CollectiveSetting c = setting_of(head, op, ranks, way, place, options);
    c.nccl = log.version;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].op != &op) continue;
      Sample s;
      s.op = op.sample;
      s.parameters = {{"ranks", ranks},
                      {"bytes", points[i].bytes},
                      {"in_place", points[i].in_place},
                      {"one_gpu", static_cast<int>(place)},
                      {"forced", way.algorithm != nullptr}};
      if (way.channels > 0) s.parameters["channels_forced"] = way.channels;
      // Its log counts one rank's share of what is gathered or scattered.
      std::int64_t counted = in_parts(op.op) ? points[i].bytes / ranks : points[i].bytes;
      for (const gpu::NcclChoice& choice : log.choices) {
        if (choice.collective != op.nccl || choice.bytes != counted) continue;
        s.parameters["algorithm"] = number_of(gpu::kNcclAlgorithms, choice.algorithm);
        s.parameters["protocol"] = number_of(gpu::kNcclProtocols, choice.protocol);
        if (choice.channels > 0) s.parameters["channels"] = choice.channels;
        CollectiveChoice chosen{points[i].bytes, lower(choice.algorithm), lower(choice.protocol),
                                choice.channels};
        if (std::find(c.chosen.begin(), c.chosen.end(), chosen) == c.chosen.end())
          c.chosen.push_back(std::move(chosen));
      }
      s.durations = durations_of(table, i, ranks);
      if (std::int64_t ps = period_ps(table, i, ranks); ps > 0) s.parameters["period_ps"] = ps;
      if (!s.durations.empty()) run.samples.push_back(std::move(s));
    }
    if (run.samples.empty()) continue;
    if (ranks > 1) {  // one rank copies, which is no collective
      run.key = key_of(c, way, place);
      run.collectives = std::move(c);
    }
    out.push_back(std::move(run));
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
