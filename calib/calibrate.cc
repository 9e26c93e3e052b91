#include "calib/calibrate.h"

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "calib/clock.h"
#include "calib/interrupt.h"
#include "calib/mesh.h"
#include "calib/origin.h"
#include "calib/stage.h"
#include "sim/collective/schedule.h"

namespace ddpsim::calib {
namespace {

constexpr int kMaxRanks = 64;
constexpr int kMaxRepetitions = 64;
constexpr int kBusy = kMaxRanks - 1;     // column of the machine's busy time
constexpr int kBegin = kMaxRanks - 2;    // column of a sender's beginning
constexpr int kSumming = kMaxRanks - 3;  // column of the time in sums, since the last repetition
constexpr int kPings = 60;
constexpr int kStreams = 5;
constexpr std::int64_t kSilenceNs = 20'000'000;
constexpr std::int64_t kStreamBytes[] = {
    1, 16 << 10, 64 << 10, 256 << 10,
    2 << 20};  // below, at and above a burst; the slope of the last two is the bandwidth

// One point to measure; all processes walk the same list.
struct Point {
  enum Kind { Ping, Stream, AllReduce, HalfAllReduce, Broadcast } kind;
  int ranks = 2;  // processes that take part: 0 .. ranks - 1
  std::int64_t bytes = 0;
  int repetitions = 0;
  int mesh = 0;  // which group's connections
  int from = 0;  // of a ping or a stream
  int to = 1;
  bool has(int process) const {
    return kind == Ping || kind == Stream ? process == from || process == to : process < ranks;
  }
};

struct Shared {
  Rendezvous rendezvous;
  std::atomic<std::int64_t> retransmits;
  std::atomic<std::size_t> done;  // points of which every process has its times
};
// ends[point][repetition][rank], nanoseconds.
struct Results {
  std::int64_t* ends = nullptr;
  std::int64_t& at(std::size_t point, int repetition, int rank) const {
    return ends[(point * static_cast<std::size_t>(kMaxRepetitions + 1) +
                 static_cast<std::size_t>(repetition)) *
                    kMaxRanks +
                static_cast<std::size_t>(rank)];
  }
};

std::vector<Point> plan(const CalibrateOptions& o, const std::vector<int>& counts) {
  std::vector<Point> out;
  // Every host's way out and its neighbour's way in.
  int last = static_cast<int>(counts.size()) - 1;
  int hosts = *std::max_element(counts.begin(), counts.end());
  for (int h = 0; h < hosts; ++h) {
    int to = (h + 1) % hosts;
    out.push_back({Point::Ping, 2, 1, kPings, last, h, to});
    for (std::int64_t bytes : kStreamBytes)
      out.push_back({Point::Stream, 2, bytes, kStreams, last, h, to});
  }
  for (std::size_t m = 0; m < counts.size(); ++m) {
    for (std::int64_t bytes : o.collective_bytes) {
      // Small ones cost nothing and vary more.
      int repetitions =
          bytes <= (256 << 10) ? std::min(kMaxRepetitions, 5 * o.repetitions) : o.repetitions;
      out.push_back({Point::AllReduce, counts[m], bytes, repetitions, static_cast<int>(m)});
    }
    out.push_back({Point::HalfAllReduce, counts[m],
                   *std::max_element(o.collective_bytes.begin(), o.collective_bytes.end()),
                   o.repetitions, static_cast<int>(m)});
    for (std::int64_t bytes : {std::int64_t{64} << 10, std::int64_t{4} << 20})
      out.push_back({Point::Broadcast, counts[m], bytes, o.repetitions, static_cast<int>(m)});
  }
  return out;
}

class Measurer {
 public:
  Measurer(int process, const std::vector<int>& counts, const std::vector<Point>& points,
           Shared& shared, Results results, const CalibrateOptions& options)
      : process_(process),
        counts_(counts),
        points_(points),
        shared_(shared),
        results_(results),
        options_(options) {}

  void run(const std::vector<int>& hosts, bool shaped) {
    auto processes = static_cast<int>(hosts.size());
    Rendezvous& meeting = shared_.rendezvous;
    std::vector<std::unique_ptr<Mesh>> meshes;
    int met = 0;
    auto meet = [&] { meeting.meet(3, ++met * processes); };
    for (int count : counts_) {
      meshes.push_back(std::make_unique<Mesh>(1));
      bool member = process_ < count;
      if (member)
        meeting.port[process_] = meshes.back()->listen(stage_address(hosts[process_], shaped));
      meet();
      std::vector<Peer> peers;
      for (int p = 0; p < count; ++p)
        peers.push_back({stage_address(hosts[p], shaped), meeting.port[p]});
      if (member) connect(*meshes.back(), peers, count);
      meet();
    }
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (i == 0 || points_[i].kind == Point::HalfAllReduce)
        buffer_.assign(
            std::size_t{64} << 20,
            std::byte{0x34});  // no zeros: 0x34343434 is a normal float, 0x3434 a normal half
      if (process_ == 0 && options_.progress) options_.progress(i, points_.size());
      meet();
      if (process_ == 0) shared_.done = i;
      if (process_ == 0) meeting.start_ns = now_ns() + kSilenceNs;
      meet();
      if (points_[i].has(process_)) measure(i, *meshes[points_[i].mesh], meeting.start_ns);
    }
    meet();
    shared_.done = points_.size();
    for (const auto& m : meshes) shared_.retransmits += m->retransmits();
  }

 private:
  void connect(Mesh& mesh, const std::vector<Peer>& peers, int count) const {
    std::vector<int> to;
    std::vector<int> from;
    auto add = [](std::vector<int>& list, int rank) {
      if (rank >= 0 && std::find(list.begin(), list.end(), rank) == list.end())
        list.push_back(rank);
    };
    for (const collective::RankSteps& steps : {ring(count, count), broadcast(count, 1)})
      for (const collective::Step& s : steps.lanes[0]) {
        for (const auto& m : s.sends) add(to, m.peer);
        for (const auto& m : s.receives) add(from, m.peer);
      }
    // And back: a ping's answer.
    add(to, (process_ + count - 1) % count);
    add(from, (process_ + 1) % count);
    mesh.connect(process_, peers, to, from);
  }

  collective::RankSteps ring(int count, std::int64_t elements) const {
    return steps(Algorithm::Ring, Operation::AllReduce, count, elements);
  }
  collective::RankSteps broadcast(int count, std::int64_t elements) const {
    return steps(Algorithm::BinomialTree, Operation::Broadcast, count, elements);
  }
  collective::RankSteps steps(Algorithm a, Operation o, int count, std::int64_t elements) const {
    return collective::make_schedule(a, o, {.ranks = count, .order = {}, .group = {}, .rows = 0},
                                     elements)
        .ranks[process_];
  }
  // What this process does of a point, again and again.
  collective::RankSteps steps_of(const Point& p) const {
    bool sends = process_ == p.from;
    collective::Message message{sends ? p.to : p.from, 0, p.bytes};
    collective::Step send;
    send.sends.push_back(message);
    collective::Step receive;
    receive.receives.push_back(message);
    switch (p.kind) {
      case Point::Ping:
        return {{sends ? std::vector{send, receive} : std::vector{receive, send}}};
      case Point::Stream:
        return {{{sends ? send : receive}}};
      case Point::AllReduce:
        return ring(p.ranks, p.bytes / 4);
      case Point::HalfAllReduce:
        return ring(p.ranks, p.bytes / 2);
      case Point::Broadcast:
        break;
    }
    return broadcast(p.ranks, p.bytes / 4);
  }

  void measure(std::size_t i, Mesh& mesh, std::int64_t start) {
    const Point& p = points_[i];
    collective::RankSteps steps = steps_of(p);
    sleep_until_ns(start);
    if (process_ == 0)
      results_.at(i, 0, kBusy) = static_cast<std::int64_t>(busy_core_seconds() * 1e9);
    results_.at(i, 0, process_) = now_ns();
    std::int64_t summed = mesh.summing_ns();
    DType type = p.kind == Point::Ping || p.kind == Point::Stream ? DType::UInt8
                 : p.kind == Point::HalfAllReduce                 ? DType::Float16
                                                                  : DType::Float32;
    for (int r = 1; r <= p.repetitions; ++r) {
      if (p.kind == Point::Stream) {
        sleep_until_ns(start + 2 * r * kSilenceNs * (1 + p.bytes / (1 << 18)));
        if (process_ == p.from) results_.at(i, r, kBegin) = now_ns();
      }
      mesh.play(steps, buffer_.data(), type, scratch_, 0);
      results_.at(i, r, process_) = now_ns();
      if (process_ == 0) results_.at(i, r, kSumming) = mesh.summing_ns() - summed;
      summed = mesh.summing_ns();
    }
    if (process_ == 0)
      results_.at(i, 1, kBusy) = static_cast<std::int64_t>(busy_core_seconds() * 1e9);
  }

  int process_;
  const std::vector<int>& counts_;
  const std::vector<Point>& points_;
  Shared& shared_;
  Results results_;
  const CalibrateOptions& options_;
  std::vector<std::byte> buffer_;
  Scratch scratch_;
};

Sample read(const Point& p, std::size_t i, const Results& results) {
  Sample s;
  auto last = [&](int r) {
    std::int64_t end = 0;
    for (int rank = 0; rank < p.ranks; ++rank) end = std::max(end, results.at(i, r, rank));
    return end;
  };
  auto add = [&](std::int64_t ns) { s.durations.push_back({ns * 1000}); };
  switch (p.kind) {
    case Point::Ping:
      s.op = "ping";
      s.parameters = {{"from", p.from}, {"to", p.to}};
      for (int r = 1; r <= p.repetitions; ++r)
        add((results.at(i, r, p.from) - results.at(i, r - 1, p.from)) / 2);
      break;
    case Point::Stream:
      s.op = "stream";
      s.parameters = {{"from", p.from}, {"to", p.to}, {"bytes", p.bytes}};
      for (int r = 1; r <= p.repetitions; ++r)
        add(results.at(i, r, p.to) - results.at(i, r, kBegin));
      break;
    case Point::HalfAllReduce:
    case Point::AllReduce:
    case Point::Broadcast:
      s.op = p.kind == Point::AllReduce   ? "all_reduce"
             : p.kind == Point::Broadcast ? "broadcast"
                                          : "half_all_reduce";
      s.parameters = {{"ranks", p.ranks}, {"bytes", p.bytes}};
      // The first one finds full buckets and idle threads.
      for (int r = 2; r <= p.repetitions; ++r) add(last(r) - last(r - 1));
      break;
  }
  return s;
}

// What rank 0 took to add one received chunk, where it takes long enough to be told.
constexpr std::int64_t kSumBytes = 256 << 10;
std::optional<Sample> read_sums(const Point& p, std::size_t i, const Results& results) {
  if ((p.kind != Point::AllReduce && p.kind != Point::HalfAllReduce) ||
      p.bytes / p.ranks < kSumBytes)
    return std::nullopt;
  Sample s{"ring_sum",
           {{"bytes", p.bytes / p.ranks},
            {"ranks", p.ranks},
            {"element_bytes", p.kind == Point::AllReduce ? 4 : 2}},
           {}};
  for (int r = 2; r <= p.repetitions; ++r)
    s.durations.push_back({results.at(i, r, kSumming) * 1000 / (p.ranks - 1)});
  return s;
}

}  // namespace

Run calibrate(const topology::Fabric& fabric, const CalibrateOptions& given) {
  CalibrateOptions o = given;
  int hosts = std::min(fabric.devices(), kSumming);
  if (hosts < 2) throw std::runtime_error("calibration needs two hosts");
  if (o.rank_counts.empty())
    for (int n = 2; n <= hosts; n *= 2) o.rank_counts.push_back(n);
  if (o.collective_bytes.empty())
    for (std::int64_t b = 1 << 10; b <= (16 << 20); b *= 4) o.collective_bytes.push_back(b);
  o.repetitions = std::clamp(o.repetitions, 2, kMaxRepetitions);
  for (int n : o.rank_counts)
    if (n < 2 || n > hosts) throw std::runtime_error(fmt::format("{} ranks on {} hosts", n, hosts));
  std::vector<Point> points = plan(o, o.rank_counts);
  int processes = *std::max_element(o.rank_counts.begin(), o.rank_counts.end());
  std::vector<int> places;
  for (DeviceId d : each<DeviceId>(processes)) places.push_back(fabric.host_of(d).number);
  std::size_t cells = points.size() * static_cast<std::size_t>(kMaxRepetitions + 1) * kMaxRanks;
  SharedMemory memory(sizeof(Shared) + 64 + cells * sizeof(std::int64_t));
  auto* shared = new (memory.data()) Shared{};
  Results results{reinterpret_cast<std::int64_t*>(memory.data() + (sizeof(Shared) + 63) / 64 * 64)};
  double load = machine_load();
  StageResult stage =
      run_stage(fabric.cluster(), places, processes, o.loopback, o.timeout_s, shared->rendezvous,
                [&](int process, bool shaped) {
                  Measurer(process, o.rank_counts, points, *shared, results, o).run(places, shaped);
                });
  Run run = measured_run(EvidenceClass::Collective, stage, load);
  run.origin.compute = "none";
  if (stage.interrupted) {
    note_interrupted(run, shared->done, points.size());
    points.resize(shared->done);
  }
  // Core time of one large all-reduce, all ranks and the kernel's network: a mean, since the kernel
  // counts in ticks of 10 ms.
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].kind != Point::AllReduce ||
        points[i].bytes != *std::max_element(o.collective_bytes.begin(), o.collective_bytes.end()))
      continue;
    Sample s{"all_reduce_cpu", {{"ranks", points[i].ranks}, {"bytes", points[i].bytes}}, {}};
    s.durations.push_back(
        {(results.at(i, 1, kBusy) - results.at(i, 0, kBusy)) * 1000 / points[i].repetitions});
    run.samples.push_back(std::move(s));
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    run.samples.push_back(read(points[i], i, results));
    if (auto sums = read_sums(points[i], i, results)) run.samples.push_back(std::move(*sums));
  }
  run.quality.retransmits = shared->retransmits;
  for (const char* what : {"nccl", "cuda"})
    run.skipped.push_back(
        {what, "backend tcp measures links and collectives of processes on CPUs"});
  return run;
}

}  // namespace ddpsim::calib
