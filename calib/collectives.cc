#include "calib/collectives.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

#include "calib/clock.h"
#include "calib/interrupt.h"
#include "calib/mesh.h"
#include "calib/origin.h"
#include "calib/stage.h"
#include "sim/collective/messages.h"

namespace ddpsim::calib {
namespace {

constexpr std::int64_t kHeadStartNs = 5'000'000;

struct Shared {
  Rendezvous rendezvous;
  std::atomic<std::int64_t> retransmits;
  std::atomic<std::size_t> done;  // sizes of which every rank has its times
};

// Of each size, repetition (warm-ups first) and rank: when it began and ended, nanoseconds.
struct Times {
  std::int64_t* cells = nullptr;
  int ranks = 0;
  int plays = 0;
  std::int64_t& at(std::size_t size, int play, int rank, bool end) const {
    return cells[((size * static_cast<std::size_t>(plays) + static_cast<std::size_t>(play)) *
                      static_cast<std::size_t>(ranks) +
                  static_cast<std::size_t>(rank)) *
                     2 +
                 (end ? 1 : 0)];
  }
};

float pattern(std::int64_t i) {
  return static_cast<float>(1 + i % 7);
}

// After the first sum n (n + 1) / 2 times the pattern, then n times as much each time.
std::string wrong_sum(const std::vector<float>& data, int ranks, int plays) {
  double factor = std::pow(ranks, plays - 1) * ranks * (ranks + 1) / 2;
  for (std::size_t i = 0; i < data.size();
       i += i + 61 < data.size() || i + 1 == data.size() ? 61 : data.size() - 1 - i) {
    double expected = factor * static_cast<double>(pattern(static_cast<std::int64_t>(i)));
    if (std::abs(static_cast<double>(data[i]) - expected) > 1e-4 * expected)
      return fmt::format("element {} of an all-reduce of {} elements is {:g}, expected {:g}", i,
                         data.size(), data[i], expected);
  }
  return {};
}

std::vector<int> peers_of(const std::vector<collective::Schedule>& schedules, int rank,
                          std::vector<collective::Message> collective::Step::*end) {
  std::set<int> out;
  for (const auto& s : schedules)
    for (const auto& lane : s.ranks[rank].lanes)
      for (const auto& step : lane)
        for (const auto& m : step.*end) out.insert(m.peer);
  return {out.begin(), out.end()};
}

void play_rank(int rank, const std::string& address, const MakePlayer& make, std::byte* extra,
               const CollectiveOptions& options, Shared& shared, Times times) {
  Rendezvous& meeting = shared.rendezvous;
  int met = 0;
  auto meet = [&] { meeting.meet(0, ++met * times.ranks); };
  RankPlayer player = make({rank, times.ranks, address, &meeting, meet, extra});
  for (std::size_t k = 0; k < options.bytes.size(); ++k) {
    meet();
    if (rank == 0) shared.done = k;
    std::vector<float> data(options.bytes[k] / 4);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = pattern(static_cast<std::int64_t>(i)) * static_cast<float>(rank + 1);
    for (int play = 0; play < times.plays; ++play) {
      meet();
      if (rank == 0) meeting.start_ns = now_ns() + kHeadStartNs;
      meet();
      sleep_until_ns(meeting.start_ns);
      times.at(k, play, rank, false) = now_ns();
      player.play(k, data.data());
      times.at(k, play, rank, true) = now_ns();
    }
    if (std::string wrong = wrong_sum(data, times.ranks, times.plays); !wrong.empty())
      throw std::runtime_error("rank " + std::to_string(rank) + ": " + wrong);
  }
  meet();
  shared.done = options.bytes.size();
  shared.retransmits += player.retransmits();
}

// Our own executor: step lists over a mesh.
RankPlayer mesh_player(const RankPlace& place, const std::vector<collective::Schedule>& schedules,
                       const std::vector<std::string>& addresses) {
  int lanes = 1;
  for (const auto& s : schedules) lanes = std::max(lanes, s.lanes());
  auto mesh = std::make_shared<Mesh>(lanes);
  auto scratch = std::make_shared<Scratch>();
  place.rendezvous->port[place.rank] = mesh->listen(place.address);
  place.meet();
  std::vector<Peer> peers;
  for (int r = 0; r < place.ranks; ++r) peers.push_back({addresses[r], place.rendezvous->port[r]});
  mesh->connect(place.rank, peers, peers_of(schedules, place.rank, &collective::Step::sends),
                peers_of(schedules, place.rank, &collective::Step::receives));
  auto rank = static_cast<std::size_t>(place.rank);
  return {[mesh, scratch, &schedules, rank](std::size_t k, float* data) {
            mesh->play(schedules[k].ranks[rank], reinterpret_cast<std::byte*>(data), DType::Float32,
                       *scratch, 0);
          },
          [mesh] { return mesh->retransmits(); }};
}

Sample read(std::int64_t bytes, std::size_t k, const CollectiveOptions& options,
            const Times& times) {
  Sample s{"all_reduce", {{"ranks", times.ranks}, {"bytes", bytes}}, {}};
  for (int play = options.warmups; play < times.plays; ++play) {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    for (int r = 0; r < times.ranks; ++r) {
      begin = std::max(begin, times.at(k, play, r, false));
      end = std::max(end, times.at(k, play, r, true));
    }
    s.durations.push_back({(end - begin) * 1000});
  }
  return s;
}

}  // namespace

Run measure_all_reduce(const topology::Fabric& fabric, const std::vector<DeviceId>& devices,
                       const CollectiveOptions& options, std::size_t shared_bytes,
                       const MakePlayer& make) {
  if (devices.size() < 2) throw std::runtime_error("an all-reduce needs two ranks");
  if (devices.size() > Rendezvous::kMaxProcesses)
    throw std::runtime_error(fmt::format("{} ranks on one machine, at most {}", devices.size(),
                                         Rendezvous::kMaxProcesses));
  std::vector<int> hosts;
  for (DeviceId d : devices) hosts.push_back(fabric.host_of(d).number);
  Times times{nullptr, static_cast<int>(devices.size()), options.warmups + options.repetitions};
  std::size_t cells =
      2 * options.bytes.size() * devices.size() * static_cast<std::size_t>(times.plays);
  std::size_t head = (sizeof(Shared) + 63) / 64 * 64;
  std::size_t cell_bytes = (cells * sizeof(std::int64_t) + 63) / 64 * 64;
  SharedMemory memory(head + cell_bytes + shared_bytes + 64);
  auto* shared = new (memory.data()) Shared{};
  times.cells = reinterpret_cast<std::int64_t*>(memory.data() + head);
  std::byte* extra = memory.data() + head + cell_bytes;
  double load = machine_load();
  StageResult stage =
      run_stage(fabric.cluster(), hosts, times.ranks, options.loopback, options.timeout_s,
                shared->rendezvous, [&](int process, bool shaped) {
                  play_rank(process, stage_address(hosts[process], shaped), make, extra, options,
                            *shared, times);
                });
  Run run = measured_run(EvidenceClass::Collective, stage, load);
  run.origin.compute = "none";
  if (stage.interrupted) note_interrupted(run, shared->done, options.bytes.size());
  const std::size_t measured = stage.interrupted ? shared->done.load() : options.bytes.size();
  for (std::size_t k = 0; k < measured; ++k)
    run.samples.push_back(read(options.bytes[k], k, options, times));
  run.quality.retransmits = shared->retransmits;
  return run;
}

Run measure_all_reduce(const topology::Fabric& fabric, const std::vector<DeviceId>& devices,
                       Algorithm algorithm, const CollectiveOptions& options) {
  if (devices.size() < 2) throw std::runtime_error("an all-reduce needs two ranks");
  collective::Communicator comm =
      collective::make_communicator(fabric, devices, Backend::Tcp, algorithm);
  std::vector<collective::Schedule> schedules;
  for (std::int64_t bytes : options.bytes)
    schedules.push_back(collective::schedule_of(comm, comm.id(Operation::AllReduce), bytes / 4, 4));
  return measure_all_reduce(fabric, devices, options, 0, [&](const RankPlace& place) {
    // Its own address says whether hosts were made.
    bool shaped = place.address != "127.0.0.1";
    std::vector<std::string> addresses;
    for (DeviceId d : devices) addresses.push_back(stage_address(fabric.host_of(d).number, shaped));
    return mesh_player(place, schedules, addresses);
  });
}

}  // namespace ddpsim::calib
