// Random pairs of all-reduces that share links: of one job (two streams) or of two jobs, by every
// algorithm, on every kind of network. Played as predictions play them (predict::simulate).
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <string>

#include "sim/collective/backend/nccl.h"
#include "tests/support/support.h"

namespace ddpsim::test {

struct SharedLinks {
  struct Part {
    std::vector<DeviceId> devices;
    std::int64_t bytes = 0;
  };
  std::string name;
  Cluster cluster;
  Profile profile;
  Backend backend = Backend::Tcp;
  Algorithm algorithm = Algorithm::Ring;  // backend tcp
  std::string nccl_algorithm;             // backend nccl: "ring", "tree"
  double plays_before = 0;
  std::vector<Part> parts;   // two; of one job if their devices are the same ones
  std::vector<int> renamed;  // new number of each host: the network is the same from there

  bool one_job() const { return parts[0].devices == parts[1].devices; }
  // TCP's segments wait in queues; else messages share links by rates.
  bool segments() const {
    return backend == Backend::Tcp && profile.transports.begin()->second.send_buffer.count > 0;
  }
};

inline collective::Communicator communicator(const SharedLinks& s, const topology::Fabric& fabric,
                                             std::size_t part) {
  const auto& devices = s.parts[part].devices;
  if (s.backend != Backend::Nccl)
    return collective::make_communicator(fabric, devices, s.backend, s.algorithm);
  nccl::ParsedSettings parsed =
      nccl::parse_settings({{"NCCL_ALGO", s.nccl_algorithm}, {"NCCL_PROTO", "simple"}}, {28});
  return collective::make_nccl_communicator(fabric, devices, parsed.settings,
                                            s.profile.compute.capability);
}

inline constexpr Duration kPause{1'000'000};

// All-reduces that begin together after a pause.
inline Program program_of(const SharedLinks& s, const topology::Fabric& fabric,
                          const std::vector<std::int64_t>& bytes) {
  Program program;
  program.device = fabric.cluster().device;
  program.backend = s.backend;
  program.worker_threads = 2;
  StepProgram& step = program.steady;
  Op pause;
  pause.duration = kPause;
  step.ops = {pause};
  std::vector<Op> waits;
  for (std::size_t k = 0; k < bytes.size(); ++k) {
    program.tensor_names.push_back("tensor" + std::to_string(k));
    program.tensor_bytes.push_back(bytes[k]);
    step.buckets.push_back({{static_cast<TensorIndex>(k)}, {bytes[k]}, {bytes[k]}, DType::Float32});
    Op reduce;
    reduce.kind = kind_of_op("allreduce/bucket.0");
    reduce.lane = s.backend == Backend::Nccl ? Lane::Comm : Lane::Worker;
    reduce.subject = static_cast<std::uint32_t>(k);
    reduce.bytes = bytes[k];
    reduce.dep[0] = 0;
    Op wait;
    wait.kind = kind_of_op("wait/bucket.0");
    wait.subject = reduce.subject;
    wait.dep[0] = static_cast<std::uint32_t>(step.ops.size());
    step.ops.push_back(reduce);
    waits.push_back(wait);
  }
  step.ops.insert(step.ops.end(), waits.begin(), waits.end());
  return program;
}

inline std::vector<predict::RankClass> classes_of(int ranks, predict::Fidelity fidelity) {
  std::vector<predict::RankClass> out;
  for (int r = 0; r < ranks; ++r) {
    if (fidelity == predict::Fidelity::Message || r == 0) out.emplace_back();
    out.back().ranks.push_back(r);
  }
  return out;
}

// How long the parts named in `together` take, until the last one ends (one job), or, of two jobs,
// until the first named ends.
inline Duration duration_of(const SharedLinks& s, const std::vector<std::size_t>& together,
                            predict::Fidelity fidelity) {
  topology::Fabric fabric(s.cluster);
  bool one_job = s.one_job();
  struct Run {
    collective::Communicator comm;
    Program program;
    std::vector<predict::RankClass> classes;
  };
  std::vector<Run> runs;
  for (std::size_t part : together) {
    if (one_job && !runs.empty()) break;
    std::vector<std::int64_t> bytes;
    for (std::size_t p : together)
      if (one_job || p == part) bytes.push_back(s.parts[p].bytes);
    runs.push_back({communicator(s, fabric, part), program_of(s, fabric, bytes), {}});
    runs.back().classes = classes_of(runs.back().comm.ranks(), fidelity);
  }
  std::vector<predict::NeighbourJob> others;
  for (std::size_t k = 1; k < runs.size(); ++k)
    others.push_back({&runs[k].program, &runs[k].comm, &runs[k].classes, 1});
  predict::SimulationOptions options;
  options.fidelity = fidelity;
  options.spans = false;
  options.warmup = false;
  options.steady_steps = 1;
  options.plays_before = s.plays_before;
  auto sim =
      predict::simulate(runs[0].program, runs[0].comm, s.profile, runs[0].classes, options, others);
  if (!sim.complete) throw std::runtime_error(s.name + ": not complete");
  return sim.steps.front().end - (TimePoint{0} + kPause);
}

struct Durations {
  std::array<Duration, 2> alone;
  std::array<Duration, 2> together;  // of one job both are its last end
  Duration last() const { return std::max(together[0], together[1]); }
};
inline Durations durations_of(const SharedLinks& s, predict::Fidelity fidelity) {
  return {{duration_of(s, {0}, fidelity), duration_of(s, {1}, fidelity)},
          {duration_of(s, {0, 1}, fidelity), duration_of(s, {1, 0}, fidelity)}};
}

// The same ranks, each on the host that its own is renamed to.
inline SharedLinks renamed(SharedLinks s) {
  int each = s.cluster.devices_per_host;
  for (auto& part : s.parts)
    for (DeviceId& d : part.devices)
      d = DeviceId::at(s.renamed[static_cast<std::size_t>(d.number / each)] * each +
                       d.number % each);
  for (auto& slow : s.cluster.slow_links)
    slow.host = HostId::at(s.renamed[static_cast<std::size_t>(slow.host.number)]);
  return s;
}

inline Bandwidth times(Bandwidth b, double f) {
  return {static_cast<std::int64_t>(static_cast<double>(b.bits_per_s) * f)};
}

// A network of 8 to 16 hosts that is narrower above its first switches than below them, and a
// renaming of its hosts that it does not notice.
inline void random_network(Random& rng, Pattern pattern, Bandwidth nic, SharedLinks& s) {
  Cluster& c = s.cluster;
  c.pattern = pattern;
  auto turned = [&](int by) {
    for (int h = 0; h < c.hosts; ++h) s.renamed.push_back((h + by) % c.hosts);
  };
  auto shuffled = [&](std::vector<int> hosts) {
    for (std::size_t i = hosts.size(); i > 1; --i) std::swap(hosts[i - 1], hosts[rng.below(i)]);
    return hosts;
  };
  switch (pattern) {
    case Pattern::Racks: {
      c.racks = 2;
      c.uplink = c.link;
      c.uplink.bandwidth = times(nic, c.hosts / 2 * (0.25 + 0.25 * rng.uniform()));
      std::vector<int> rack(static_cast<std::size_t>(c.hosts) / 2);
      std::iota(rack.begin(), rack.end(), 0);
      for (int h : shuffled(rack)) s.renamed.push_back(c.hosts / 2 + h);
      for (int h : shuffled(rack)) s.renamed.push_back(h);
      break;
    }
    case Pattern::FatTree:  // by whole leaves
      c.hosts_per_leaf = c.hosts / 2;
      c.spines = 2;
      c.oversubscription = 1 + rng.below(4);
      turned(c.hosts_per_leaf);
      break;
    case Pattern::RailOptimised:
      c.hosts_per_group = c.hosts / 2;
      c.spines = 2;
      c.oversubscription = 1 + rng.below(4);
      turned(c.hosts_per_group);
      break;
    case Pattern::Torus: {  // one further along the first dimension
      c.extents = {4, c.hosts / 4};
      c.trunk = c.link;
      c.trunk.bandwidth = times(nic, 0.5 + rng.uniform());
      for (int h = 0; h < c.hosts; ++h) s.renamed.push_back(h / 4 * 4 + (h + 1) % 4);
      break;
    }
    case Pattern::Dragonfly:  // two hosts of each router change places
      c.hosts_per_router = 2;
      c.routers_per_group = 2;
      c.groups = c.hosts / 4;
      c.trunk = c.global = c.link;
      c.trunk.bandwidth = times(nic, 1 + rng.uniform());
      c.global.bandwidth = times(nic, 0.5 + rng.uniform());
      for (int h = 0; h < c.hosts; ++h) s.renamed.push_back(h ^ 1);
      break;
    default: {
      std::vector<int> all(static_cast<std::size_t>(c.hosts));
      std::iota(all.begin(), all.end(), 0);
      s.renamed = shuffled(all);
    }
  }
}

inline const std::vector<Pattern> kNetworks{Pattern::Star,    Pattern::Racks,
                                            Pattern::FatTree, Pattern::RailOptimised,
                                            Pattern::Torus,   Pattern::Dragonfly};

// Hosts of two devices: they share a NIC where the network is a star (nothing else is shared
// there), and have one each on rails. Elsewhere one device a host.
inline void add_devices(SharedLinks& s, LinkSpec intra) {
  Cluster& c = s.cluster;
  if (c.pattern != Pattern::Star && c.pattern != Pattern::RailOptimised) return;
  c.devices_per_host = 2;
  c.nics_per_host = c.pattern == Pattern::Star ? 1 : 2;
  c.intra = intra;
}

// Jobs alternate: host by host, or device by device where hosts of a star share nothing else.
inline void add_parts(Random& rng, bool one_job, SharedLinks& s) {
  const Cluster& c = s.cluster;
  std::vector<std::vector<DeviceId>> devices(2);
  bool by_device = c.devices_per_host == 2 && (c.pattern == Pattern::Star || rng.below(2) == 0);
  for (DeviceId d : each<DeviceId>(c.devices()))
    devices[static_cast<std::size_t>((by_device ? d.number : d.number / c.devices_per_host) % 2)]
        .push_back(d);
  for (std::size_t k = 0; k < 2; ++k) {
    if (devices[k].size() > 4 && rng.below(2))
      devices[k].pop_back();  // other counts than powers of two
    s.parts.push_back(
        {devices[one_job ? 0 : k],
         static_cast<std::int64_t>(1e6 * (1 << rng.below(5)) * (0.5 + rng.uniform()))});
  }
}

inline int random_hosts(Random& rng, Pattern p) {
  return p == Pattern::Torus || p == Pattern::Dragonfly ? 8 + 4 * rng.below(3)
                                                        : 8 + 2 * rng.below(5);
}

// Backend tcp: each algorithm on each network in turn.
inline SharedLinks random_shared_links(std::uint64_t seed) {
  Random rng(seed * 6007 + 5);
  SharedLinks s;
  s.algorithm = kTcpAlgorithms[seed % kTcpAlgorithms.size()];
  Pattern pattern = kNetworks[seed / kTcpAlgorithms.size() % kNetworks.size()];
  bool one_job = rng.below(2) == 0;
  int hosts = random_hosts(rng, pattern);
  Bandwidth nic{static_cast<std::int64_t>(1e9 * (1 + rng.below(25)))};
  s.cluster = star(hosts, nic);
  s.cluster.device = DeviceKind::Cpu;
  s.profile = ideal_profile(kMicrosecond * (5 + rng.below(45)), DeviceKind::Cpu);
  s.profile.reduction_bytes_per_s = rng.below(2) ? 1e10 : 0;
  if (rng.below(2)) s.profile.transports.at("wire").send_buffer = {650'000};
  s.plays_before = rng.below(2) ? 1e9 : 0;
  random_network(rng, pattern, nic, s);
  LinkSpec intra = s.cluster.link;
  intra.bandwidth = times(nic, 8);
  add_devices(s, intra);
  if (rng.below(3) == 0)
    s.cluster.slow_links = {{HostId::at(rng.below(hosts)), times(nic, 0.3 + 0.5 * rng.uniform())}};
  add_parts(rng, one_job, s);
  s.name = "seed " + std::to_string(seed) + ": " + (one_job ? "two streams, " : "two jobs, ") +
           name_of(s.algorithm) + " on " + name_of(pattern) + " of " + std::to_string(hosts) +
           " hosts" + (s.segments() ? ", segments" : "");
  return s;
}

// NCCL's rings and trees on H100s, always two jobs (a job's collectives go one after another), on
// each network in turn.
inline SharedLinks random_nccl_links(std::uint64_t seed) {
  Random rng(seed * 7001 + 3);
  SharedLinks s;
  s.backend = Backend::Nccl;
  s.nccl_algorithm = seed % 2 == 0 ? "ring" : "tree";
  Pattern pattern = kNetworks[seed / 2 % kNetworks.size()];
  int hosts = random_hosts(rng, pattern);
  Bandwidth nic{static_cast<std::int64_t>(1e9 * (25 + rng.below(375)))};
  s.profile = profile("h100-sxm.datasheet");
  s.cluster = star(hosts, nic);
  s.cluster.link.transport = "ib";
  random_network(rng, pattern, nic, s);
  add_devices(s, {.bandwidth = {3'600'000'000'000},
                  .latency = {100'000},
                  .burst = {},
                  .peak = {},
                  .transport = "nvlink",
                  .eager = {},
                  .staging = {}});
  add_parts(rng, false, s);
  s.name = "seed " + std::to_string(seed) + ": two jobs, nccl " + s.nccl_algorithm + " on " +
           name_of(pattern) + " of " + std::to_string(hosts) + " hosts";
  return s;
}

}  // namespace ddpsim::test
