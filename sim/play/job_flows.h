// The resources of one job in a simulation and the flows over them: links, devices, cores, memory;
// and the prices of its collectives. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "sim/collective/backend/sockets.h"
#include "sim/cost/roofline.h"
#include "sim/play/job.h"
#include "sim/play/kernel_wait.h"
#include "sim/play/load_demands.h"

namespace ddpsim::predict {

class Flows {
 public:
  using TaskId = engine::TaskId;
  using Communicator = collective::Communicator;
  using Price = collective::Price;

  explicit Flows(Job& job) : job_(job) {}

  // Before anything is added to the graph.
  void make() {
    if (job_.shared.cores != engine::kNone) make_core_flows();
    if (job_.shared.memory != engine::kNone && job_.program.backend == Backend::Gloo)
      make_memory_flows();
    const bool by_message = job_.options.fidelity == Fidelity::Message;
    const bool exchanges = std::any_of(
        job_.program.steady.ops.begin(), job_.program.steady.ops.end(), [](const Op& op) {
          return is_collective(op.kind) && op.kind.operation == Operation::AllToAll;
        });
    if (!by_message || exchanges) {
      for (std::size_t k = 0; k <= job_.comm.groups.size(); ++k) {
        const Communicator& comm = of_group(job_.comm, k);
        demands_.push_back(load_demands(comm, job_.profile, job_.options.level,
                                        job_.options.fold_links && !by_message,
                                        [this](topology::LinkId l) { return link_resource(l); }));
        std::vector<const Price*> all;
        for (const Op& op : job_.program.steady.ops)
          if (is_collective(op.kind) && op.group == k) all.push_back(&job_.price_of(op));
        heaviest_.push_back(collective::heaviest(comm, all));
      }
    }
  }

  engine::ResourceId link_resource(topology::LinkId l) {
    if (job_.shared.link_resource[l] == engine::kNone) {
      const topology::Link& link = job_.comm.fabric->links()[l];
      double rate = collective::link_rate(job_.comm, job_.profile, job_.options.level, l);
      double scale = rate / link.bandwidth.bytes_per_ps();
      // A steady step cannot live on tokens that were saved before the job began.
      job_.shared.link_resource[l] = job_.graph.add_resource(
          {rate, static_cast<double>(link.burst.count), link.peak.bytes_per_ps() * scale, true});
    }
    return job_.shared.link_resource[l];
  }

  // Whether computation needs cores that others may have: backend tcp sleeps it, unless it is real.
  bool computes_on_cores() const {
    return job_.shared.cores != engine::kNone &&
           (job_.options.real_compute || job_.program.backend == Backend::Gloo);
  }
  // Every rank's operations take their durations, or longer by what they share.
  bool same_for_all() const {
    return memory_flow_.empty() && !computes_on_cores() &&
           std::all_of(job_.classes.begin(), job_.classes.end(), [this](const RankClass& c) {
             return c.factor == job_.classes.front().factor && c.step_factors.empty();
           });
  }

  engine::FlowId phase_flow(const Price& price, const collective::Phase& phase, int group) {
    auto key = std::make_tuple(group, price.pattern, phase.round, phase.weight, phase.max_rate);
    auto it = phase_flows_.find(key);
    if (it != phase_flows_.end()) return it->second;
    auto round = static_cast<std::size_t>(phase.round + 1);
    const auto& demands = demands_[group][price.pattern.index][round];
    const double heaviest = heaviest_[group];
    engine::FlowId f = 0;
    if (double core = core_time_per_byte(); job_.shared.cores != engine::kNone && core > 0) {
      std::vector<engine::Demand> more = demands;
      const collective::Pattern& p = of_group(job_.comm, group).pattern(price.pattern);
      take_cores(core * (round == 0 ? p.moved : p.rounds[round - 1].moved), more);
      f = job_.graph.add_flow(more, phase.weight / heaviest * kBeforeComputation, phase.max_rate);
    } else if (by_sockets(job_.comm)) {
      std::vector<engine::Demand> more = demands;
      const collective::Pattern& p = of_group(job_.comm, group).pattern(price.pattern);
      more.push_back({socket_thread(kEveryRank), round == 0 ? p.io : p.rounds[round - 1].io});
      f = job_.graph.add_flow(more, phase.weight / heaviest, phase.max_rate);
    } else {
      f = job_.graph.add_flow(demands, phase.weight / heaviest, phase.max_rate);
    }
    phase_flows_.emplace(key, f);
    return f;
  }

  engine::FlowId hop_flow(const Communicator& comm, int from, int to, int nic = -1) {
    auto device = [&](int rank) { return comm.devices[rank]; };
    auto key = std::make_tuple(device(from), device(to), nic);
    auto it = hop_flows_.find(key);
    if (it != hop_flows_.end()) return it->second;
    topology::Route route;
    find_way(comm, from, to, nic, route);
    std::vector<engine::Demand> demands;
    for (topology::LinkId l : route.links) demands.push_back({link_resource(l), 1});
    // A thread that sends as much as it receives gives each half of its time.
    if (by_sockets(comm))
      for (int rank : {from, to}) demands.push_back({socket_thread(device(rank)), 0.5});
    double core = core_time_per_byte();
    bool takes_cores = job_.shared.cores != engine::kNone && core > 0;
    if (takes_cores) take_cores(core, demands);
    engine::FlowId f = job_.graph.add_flow(demands, takes_cores ? kBeforeComputation : 1);
    hop_flows_.emplace(key, f);
    return f;
  }

  // Ranks' memory is one machine's; a device's computation is slowed by what collectives take.
  bool shares_memory() const { return !memory_flow_.empty(); }
  bool takes_core_time() const { return computes_on_cores() && core_share_ > 0; }
  // Work of one operation that takes `alone` where nothing is shared.
  // `alone`: its price. Hooks and kernels' own time are no memory traffic, and are not shared.
  TaskId add_copy(const Op& op, Duration alone, std::size_t c) {
    auto traffic = static_cast<double>(op.traffic);
    Duration moving{ceil_ps(traffic, memory_rate(job_.profile, job_.options.level))};
    return job_.graph.add_task(std::max(Duration{}, alone - moving), traffic, memory_flow_[c]);
  }
  // An operation that computes before it copies needs its core for that, like everyone on the
  // machine. Returns the first of the two tasks.
  TaskId after_core(const Op& op, const StepProgram& s, std::size_t c, TaskId copied) {
    Duration d = core_time(op, s, job_.profile);
    if (d.ps == 0 || core_flow_.empty()) return copied;
    TaskId t = job_.graph.add_task({}, d, work_flow_[c]);
    job_.graph.add_edge(t, copied);
    return t;
  }
  // Measured as `d` while `crowd_` ranks took turns on each core: core time, and the rest, in which
  // it slept.
  TaskId add_compute(Duration d, std::size_t c) {
    double taken = crowd_ * core_share_ * static_cast<double>(d.ps);
    return job_.graph.add_task(
        std::max(Duration{}, Duration{d.ps - static_cast<std::int64_t>(taken)}), taken,
        core_flow_[c]);
  }
  // A sum of one rank's, on its core.
  TaskId add_sum(Duration alone) { return job_.graph.add_task({}, alone, core_flow_.front()); }

 private:
  void make_core_flows() {
    // A layer profile was taken of what runs; a capture says what the real model needs, which timed
    // layers sleep.
    bool profiled = job_.program.at_once > 0;
    bool known = job_.program.core_share >= 0 && (job_.options.real_compute || profiled);
    core_share_ = known ? job_.program.core_share : job_.options.real_compute ? 1 : 0;
    // Ranks that keep every core busy took turns while they were measured; ranks that mostly sleep
    // seldom met.
    double cores = job_.comm.fabric->cluster().emulated_on_cores;
    double more = std::max(0.0, job_.program.at_once / cores - 1);
    crowd_ = 1 + more * std::min(1.0, core_share_ * job_.program.at_once / cores);
    core_share_ = std::min(core_share_, 1 / crowd_);
    for (const RankClass& c : job_.classes) {
      auto ranks = static_cast<double>(c.ranks.size());
      std::vector<engine::Demand> d;
      if (job_.program.backend == Backend::Gloo) {
        own_core_.push_back(job_.graph.add_resource({1, 0, 0}));
        d.push_back({own_core_.back(), 1});
      }
      d.push_back({job_.shared.cores, ranks});
      work_flow_.push_back(
          job_.graph.add_flow(d, ranks, 1));  // a rank computes with one thread: at most one core
      if (profiled) d.pop_back();             // a layer profile has the other ranks in it
      core_flow_.push_back(profiled ? job_.graph.add_flow(d, ranks, 1) : work_flow_.back());
    }
  }
  // A class's ranks copy at the same time.
  void make_memory_flows() {
    double rate = memory_rate(job_.profile, job_.options.level);
    for (std::size_t c = 0; c < job_.classes.size(); ++c) {
      auto ranks = static_cast<double>(job_.classes[c].ranks.size());
      std::vector<engine::Demand> d{{job_.shared.memory, ranks}};
      if (!own_core_.empty()) d.push_back({own_core_[c], 1 / rate});
      memory_flow_.push_back(job_.graph.add_flow(d, ranks, rate));
    }
  }
  // `per_unit`: core time that a unit of a transfer's work takes of the machine. The kernel's
  // network runs on whichever core, and before the thread that computes there: each rank's core
  // gives its share.
  void take_cores(double per_unit, std::vector<engine::Demand>& demands) const {
    demands.push_back({job_.shared.cores, per_unit});
    for (engine::ResourceId own : own_core_)
      demands.push_back({own, per_unit / job_.comm.fabric->cluster().emulated_on_cores});
  }
  // Core time of one byte over a hop: the network at both ends, and half a sum (all-reduce: one
  // phase of two sums).
  double core_time_per_byte() const {
    if (!computes_on_cores()) return 0;
    double network = 0;
    for (std::uint8_t t : job_.comm.transports)
      network = std::max(
          network, job_.profile.transports.at(job_.comm.fabric->transports()[t]).cpu_ps_per_byte);
    // Among tcp's messages they are tasks of their own.
    bool sums =
        (job_.options.fidelity == Fidelity::Collective || job_.program.backend == Backend::Gloo) &&
        job_.profile.reduction_bytes_per_s > 0;
    return network + (sums ? 0.5e12 / job_.profile.reduction_bytes_per_s : 0);
  }
  engine::ResourceId socket_thread(DeviceId device) {
    auto [it, fresh] = socket_threads_.emplace(device, engine::kNone);
    if (fresh)
      it->second = job_.graph.add_resource(
          {collective::socket_rate(job_.profile, job_.options.level), 0, 0});
    return it->second;
  }

  // A thread that has slept long goes before one that computes: messages take the core time that
  // they need, computation gets what is left.
  static constexpr double kBeforeComputation = 1e6;
  // Gloo between GPUs: one thread serves all connections of a device's rank, whichever
  // collective's. Among phases one stands for every rank's.
  static constexpr DeviceId kEveryRank = -1;

  Job& job_;
  std::vector<engine::ResourceId> own_core_;  // backend gloo, by class: the core that a rank
                                              // computes on, less what the network takes there
  std::vector<engine::FlowId>
      work_flow_;  // by class: one thread that computes, as many as the class has ranks
  std::vector<engine::FlowId> core_flow_;  // by class: the same of what the workload's times say,
                                           // which may have been taken while all ranks ran
  double core_share_ = 0;
  double crowd_ = 1;
  std::vector<double> heaviest_;  // by group
  // By group and pattern: the mean's, each round's.
  std::vector<std::vector<std::vector<std::vector<engine::Demand>>>> demands_;
  std::vector<engine::FlowId> memory_flow_;  // by class; empty: every host has memory of its own
  std::map<std::tuple<int, collective::PatternId, int, double, double>, engine::FlowId>
      phase_flows_;
  std::map<std::tuple<DeviceId, DeviceId, int>, engine::FlowId> hop_flows_;  // the int: NIC
  std::map<DeviceId, engine::ResourceId> socket_threads_;
};

}  // namespace ddpsim::predict
