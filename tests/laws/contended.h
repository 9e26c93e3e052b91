// Random contended scenarios, simulated at both fidelities: jobs with collectives that overlap,
// late ranks, racks, slow links, bursts.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "sim/collective/messages.h"
#include "sim/engine/execute.h"
#include "sim/play/turns.h"
#include "tests/support/support.h"

namespace ddpsim::test {

// One all-reduce of one job: each rank arrives `offset[r]` after its previous one ended (or after
// the start).
struct Collective {
  Bytes size;
  std::vector<Duration> offset;
  bool after_previous = true;  // false: in flight together with the one before
};
struct Job {
  std::vector<DeviceId> devices;
  std::vector<Collective> collectives;
};
struct Contended {
  std::string name;
  Cluster cluster;
  Backend backend = Backend::Nccl;
  Profile profile;
  std::vector<Job> jobs;
};

struct Ends {
  std::vector<TimePoint> first_arrival;
  std::vector<TimePoint> end;  // per collective, all jobs in order
  bool complete = false;
};

inline Ends simulate(const Contended& s, bool message) {
  topology::Fabric fabric(s.cluster);
  engine::TaskGraph g;
  std::map<topology::LinkId, engine::ResourceId> resources;
  Ends out;
  std::vector<std::vector<engine::TaskId>> ends;
  std::vector<std::vector<engine::TaskId>> arrivals;
  std::vector<std::unique_ptr<collective::Communicator>> comms;
  std::vector<predict::Turns> connections(
      s.jobs.size());  // Gloo: all collectives of a job share one connection a hop
  for (const Job& job : s.jobs) {
    comms.push_back(std::make_unique<collective::Communicator>(
        collective::make_communicator(fabric, job.devices, s.backend)));
    const collective::Communicator& c = *comms.back();
    auto resource = [&](topology::LinkId l) {
      auto it = resources.find(l);
      if (it != resources.end()) return it->second;
      const topology::Link& link = fabric.links()[l];
      double rate = collective::link_rate(c, s.profile, Level::Mid, l);
      return resources[l] =
                 g.add_resource({rate, static_cast<double>(link.burst.count),
                                 link.peak.bytes_per_ps() * rate / link.bandwidth.bytes_per_ps()});
    };
    std::map<std::pair<int, int>, engine::FlowId> hops;
    collective::FlowOfHop flow{[&](int from, int to, int) {
      auto it = hops.find({from, to});
      if (it != hops.end()) return it->second;
      topology::Route route;
      fabric.find_route(c.devices[static_cast<std::size_t>(from)],
                        c.devices[static_cast<std::size_t>(to)], route);
      std::vector<engine::Demand> d;
      for (auto l : route.links) d.push_back({resource(l), 1});
      return hops[{from, to}] = g.add_flow(d);
    }};
    std::size_t n = job.devices.size();
    std::vector<engine::TaskId> previous;
    std::vector<engine::TaskId> before;
    std::vector<collective::Price> prices;
    std::vector<const collective::Price*> all;
    for (const Collective& col : job.collectives)
      prices.push_back(collective::all_reduce(c, s.profile, Level::Mid, col.size));
    for (const auto& p : prices) all.push_back(&p);
    double heaviest = collective::heaviest(c, all);
    for (const Collective& col : job.collectives) {
      std::vector<engine::TaskId> arrive;
      for (std::size_t r = 0; r < n; ++r) {
        engine::TaskId t = g.add_fixed(col.offset[r]);
        const auto& from = col.after_previous ? previous : before;
        if (!from.empty()) g.add_edge(from[r], t);
        arrive.push_back(t);
      }
      collective::Price price = collective::all_reduce(c, s.profile, Level::Mid, col.size);
      std::vector<engine::TaskId> done;
      if (message) {
        predict::Turns& own = connections[comms.size() - 1];
        collective::TakeTurn turn = [&](int from, int to, double bytes) {
          engine::TaskId due = g.add_fixed({});
          return own.add(g, own.place_of_hop(from, to), due, g.add_task({}, bytes, flow(from, to)));
        };
        if (s.backend != Backend::Gloo) turn = {};
        done = collective::add_messages(c, {.graph = g,
                                            .profile = s.profile,
                                            .price = price,
                                            .size = col.size,
                                            .flow = flow,
                                            .arrive = arrive,
                                            .turn = turn});
      } else {
        engine::TaskId last = UINT32_MAX;
        for (const auto& phase : price.phases) {
          std::vector<engine::Demand> d;
          for (const auto& l : c.pattern(Operation::AllReduce).load)
            d.push_back({resource(l.link), l.per_byte});
          engine::TaskId t =
              phase.work > 0 ? g.add_task(phase.latency, phase.work,
                                          g.add_flow(d, phase.weight / heaviest, phase.max_rate))
                             : g.add_fixed(phase.latency);
          if (last == UINT32_MAX)
            for (auto a : arrive) g.add_edge(a, t);
          else
            g.add_edge(last, t);
          last = t;
        }
        done.assign(n, last);
      }
      before = previous;
      previous = done;
      ends.push_back(done);
      arrivals.push_back(arrive);
    }
  }
  auto decide = [](void* state, engine::TaskId task, TimePoint,
                   std::vector<engine::TaskId>& release) {
    for (predict::Turns& own : *static_cast<std::vector<predict::Turns>*>(state))
      if (own.decide(task, release)) return;
  };
  engine::Timeline t = engine::execute(g, {&connections, decide});
  out.complete = t.complete();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    TimePoint end{0};
    TimePoint first{INT64_MAX};
    for (auto e : ends[i]) end = std::max(end, t.end[e]);
    for (auto a : arrivals[i]) first = std::min(first, t.end[a]);
    out.end.push_back(end);
    out.first_arrival.push_back(first);
  }
  return out;
}

// Worst over the collectives of a scenario: difference of the ends as a share of the message
// simulation's makespan.
inline double disagreement(const Contended& s) {
  Ends a = simulate(s, false);
  Ends b = simulate(s, true);
  if (!a.complete || !b.complete) return 1e9;
  double worst = 0;
  TimePoint makespan = *std::max_element(b.end.begin(), b.end.end());
  for (std::size_t i = 0; i < a.end.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>((a.end[i] - b.end[i]).ps)) /
                                static_cast<double>(makespan.ps));
  return worst;
}

inline Contended random_contended(std::uint64_t seed) {
  Random rng(seed * 7919 + 1);
  Contended s;
  const std::vector<std::string> kinds{
      "overlap",   "two jobs on an uplink", "two racks", "two racks interleaved",
      "staggered", "degraded link",         "burst"};
  std::string kind = kinds[seed % kinds.size()];
  s.backend = rng.below(2) ? Backend::Nccl : Backend::Gloo;
  s.profile = ideal_profile(kMicrosecond * (1 + rng.below(20)));
  int hosts = rng.pick(std::vector<int>{4, 6, 8, 12, 16});
  auto gigabits = [](double g) { return Bandwidth{static_cast<std::int64_t>(g * 1e9)}; };
  double link = rng.pick(std::vector<double>{1, 10, 25, 100});
  s.cluster = star(hosts, gigabits(link));
  std::vector<std::vector<DeviceId>> groups(1, first_devices(hosts));
  bool racks = kind.starts_with("two");
  if (racks) {
    s.cluster.pattern = Pattern::Racks;
    s.cluster.racks = 2;
    s.cluster.uplink = s.cluster.link;
    s.cluster.uplink.bandwidth = gigabits(link * (0.5 + 2 * rng.uniform()));
  }
  if (kind == "two jobs on an uplink") {
    groups.assign(2, {});
    for (DeviceId d : each<DeviceId>(hosts))
      groups[static_cast<std::size_t>(d.number % 2)].push_back(d);
  }
  if (kind == "two racks interleaved")
    for (int i = 0; i < hosts; ++i)
      groups[0][static_cast<std::size_t>(i)] =
          DeviceId::at(i % 2 == 0 ? i / 2 : (hosts + 1) / 2 + i / 2);
  if (kind == "degraded link")
    s.cluster.slow_links.push_back(
        {HostId::at(rng.below(hosts)), gigabits(link * (0.2 + 0.7 * rng.uniform()))});
  if (kind == "burst") {
    s.cluster.link.burst = {64 * 1024};
    s.cluster.link.peak = gigabits(link * 4);
  }
  double byte_ps = 1 / s.cluster.link.bandwidth.bytes_per_ps();
  for (const auto& devices : groups) {
    Job job;
    job.devices = devices;
    int count = kind == "staggered" || kind == "burst" ? 1 + rng.below(3) : 2 + rng.below(3);
    for (int k = 0; k < count; ++k) {
      Collective col;
      // Gradient buckets: 1 to 64 MB; a burst matters to smaller ones.
      double mb = kind == "burst" ? 0.25 * static_cast<double>(1 << rng.below(7))
                                  : static_cast<double>(1 << rng.below(7));
      col.size = {static_cast<std::int64_t>(mb * 1e6 * (0.5 + rng.uniform()))};
      double transfer = 2 * static_cast<double>(col.size.count) * byte_ps;
      bool late = kind == "staggered" || rng.below(3) == 0;
      for (std::size_t r = 0; r < devices.size(); ++r)
        col.offset.push_back({late ? static_cast<std::int64_t>(rng.uniform() * transfer) : 0});
      col.after_previous = !(kind == "overlap" || rng.below(3) == 0);
      job.collectives.push_back(std::move(col));
    }
    s.jobs.push_back(std::move(job));
  }
  s.name = kind + " seed " + std::to_string(seed) + " (" +
           (s.backend == Backend::Nccl ? "nccl" : "gloo") + ", " + std::to_string(hosts) +
           " hosts)";
  return s;
}

}  // namespace ddpsim::test
