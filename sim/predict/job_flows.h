// The resources of one job in a simulation and the flows over them: links, devices, cores, memory;
// and the prices of its collectives. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "sim/collective/sockets.h"
#include "sim/nccl/fabric/messages.h"
#include "sim/predict/kernel_wait.h"
#include "sim/predict/load_demands.h"
#include "sim/predict/prices.h"
#include "sim/predict/roofline.h"
#include "sim/predict/shared_machine.h"
#include "sim/predict/simulate.h"

namespace ddpsim::predict {

struct JobFlows {
  using TaskGraph = engine::TaskGraph;
  using TaskId = engine::TaskId;
  using Communicator = collective::Communicator;
  using Price = collective::Price;

  JobFlows(Shared& shared, const Program& program, const Communicator& comm, const Profile& profile,
           const std::vector<RankClass>& classes, const SimulationOptions& options)
      : shared_(shared),
        graph_(shared.graph),
        link_resource_(shared.link_resource),
        cores_(shared.cores),
        program_(program),
        comm_(comm),
        profile_(profile),
        classes_(classes),
        options_(options),
        own_prices_(options.prices ? nullptr
                                   : std::make_unique<Prices>(comm, profile, options.level)),
        prices_(options.prices ? options.prices : own_prices_.get()) {}

  void make_flows() {
    if (cores_ != engine::kNone) make_core_flows();
    if (shared_.memory != engine::kNone && program_.backend == Backend::Gloo) make_memory_flows();
    const bool by_message = options_.fidelity == Fidelity::Message;
    const bool exchanges =
        std::any_of(program_.steady.ops.begin(), program_.steady.ops.end(), [](const Op& op) {
          return is_collective(op.kind) && op.kind.operation == Operation::AllToAll;
        });
    if (!by_message || exchanges) {
      for (std::size_t k = 0; k <= comm_.groups.size(); ++k) {
        const Communicator& comm = of_group(comm_, static_cast<int>(k));
        demands_.push_back(load_demands(comm, profile_, options_.level,
                                        options_.fold_links && !by_message,
                                        [this](topology::LinkId l) { return link_resource(l); }));
        std::vector<const Price*> all;
        for (const Op& op : program_.steady.ops)
          if (is_collective(op.kind) && op.group == k) all.push_back(&price_of(op));
        heaviest_.push_back(collective::heaviest(comm, all));
      }
    }
    double hold = at(profile_.sm_hold, options_.level);
    if (program_.device == DeviceKind::Gpu && comm_.ranks() > 1 &&
        (hold > 0 || profile_.memory_hold ||
         (comm_.backend == Backend::Nccl && program_.kernel.ps > 0)))
      make_device_resources(hold);
  }

  engine::ResourceId link_resource(topology::LinkId l) {
    if (link_resource_[l] == engine::kNone) {
      const topology::Link& link = comm_.fabric->links()[l];
      double rate = collective::link_rate(comm_, profile_, options_.level, l);
      double scale = rate / link.bandwidth.bytes_per_ps();
      // A steady step cannot live on tokens that were saved before the job began.
      link_resource_[l] = graph_.add_resource(
          {rate, static_cast<double>(link.burst.count), link.peak.bytes_per_ps() * scale, true});
    }
    return link_resource_[l];
  }

  // Of each class: what computes, and, where it is known apart, what moves memory.
  void make_device_resources(double hold) {
    holds_ = {hold, profile_.memory_hold ? at(*profile_.memory_hold, options_.level) : hold};
    // Computation is products and what memory decides, in turns.
    mixed_ = profile_.memory_hold ? program_.products : 1;
    for (std::size_t c = 0; c < classes_.size(); ++c)
      for (std::size_t k = 0; k < device_.size(); ++k) {
        bool shared = k == 1 && !profile_.memory_hold;
        device_[k].push_back(shared ? device_[0][c]
                                    : graph_.add_resource({1, 0, 0, false, kMostHeld}));
        engine::Demand d{device_[k].back(), 1};
        device_flow_[k].push_back(shared ? device_flow_[0][c]
                                         : graph_.add_flow(std::span(&d, 1), 1, 1));
      }
  }
  // What a kernel waits for while the class's device computes goes at next to no rate beside
  // computation, and so fast that it hardly counts where nothing runs.
  engine::FlowId wait_flow(std::size_t c) {
    while (wait_flow_.size() <= c) {
      engine::Demand d{device_[0][wait_flow_.size()], 1};
      wait_flow_.push_back(graph_.add_flow(std::span(&d, 1), kBehindComputation, 1));
    }
    return wait_flow_[c];
  }
  TaskId add_wait(std::size_t c, Duration beside_computation, TaskId after) {
    const auto ps = static_cast<double>(beside_computation.ps);
    TaskId t = graph_.add_task({}, kBehindComputation * ps, wait_flow(c));
    graph_.add_edge(after, t);
    return t;
  }

  // The mean rank's kernel holds its share of the device from when it begins, until the last one's
  // has begun, too.
  TaskId after_kernels(const KernelWait& wait, std::size_t c, TaskId ready) {
    return add_wait(c, wait.last - wait.mean, add_wait(c, wait.mean, ready));
  }

  // What a collective takes of computation (0) and of what memory decides (1).
  double hold_of(std::size_t k, const Price& price) const {
    const double memory = holds_[1] * hold_factor(profile_, price.channels, true);
    if (k == 1) return memory;
    const double products = holds_[0] * hold_factor(profile_, price.channels, false);
    return mixed_ * products + (1 - mixed_) * memory;
  }
  static bool moves_memory(const Op& op) { return op.traffic > 0 || is_update(op.kind); }

  // Whether computation needs cores that others may have: backend tcp sleeps it, unless it is real.
  bool computes_on_cores() const {
    return cores_ != engine::kNone && (options_.real_compute || program_.backend == Backend::Gloo);
  }
  // Every rank's operations take their durations, or longer by what they share.
  bool same_for_all() const {
    return memory_flow_.empty() && !computes_on_cores() &&
           std::all_of(classes_.begin(), classes_.end(), [this](const RankClass& c) {
             return c.factor == classes_.front().factor && c.step_factors.empty();
           });
  }
  void make_core_flows() {
    // A layer profile was taken of what runs; a capture says what the real model needs, which timed
    // layers sleep.
    bool profiled = program_.at_once > 0;
    bool known = program_.core_share >= 0 && (options_.real_compute || profiled);
    core_share_ = known ? program_.core_share : options_.real_compute ? 1 : 0;
    // Ranks that keep every core busy took turns while they were measured; ranks that mostly sleep
    // seldom met.
    auto cores = static_cast<double>(comm_.fabric->cluster().emulated_on_cores);
    double more = std::max(0.0, program_.at_once / cores - 1);
    crowd_ = 1 + more * std::min(1.0, core_share_ * program_.at_once / cores);
    core_share_ = std::min(core_share_, 1 / crowd_);
    for (const RankClass& c : classes_) {
      auto ranks = static_cast<double>(c.ranks.size());
      std::vector<engine::Demand> d;
      if (program_.backend == Backend::Gloo) {
        own_core_.push_back(graph_.add_resource({1, 0, 0}));
        d.push_back({own_core_.back(), 1});
      }
      d.push_back({cores_, ranks});
      work_flow_.push_back(
          graph_.add_flow(d, ranks, 1));  // a rank computes with one thread: at most one core
      if (profiled) d.pop_back();         // a layer profile has the other ranks in it
      core_flow_.push_back(profiled ? graph_.add_flow(d, ranks, 1) : work_flow_.back());
    }
  }
  // A class's ranks copy at the same time.
  void make_memory_flows() {
    double rate = memory_rate(profile_, options_.level);
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      auto ranks = static_cast<double>(classes_[c].ranks.size());
      std::vector<engine::Demand> d{{shared_.memory, ranks}};
      if (!own_core_.empty()) d.push_back({own_core_[c], 1 / rate});
      memory_flow_.push_back(graph_.add_flow(d, ranks, rate));
    }
  }
  // `per_unit`: core time that a unit of a transfer's work takes of the machine. The kernel's
  // network runs on whichever core, and before the thread that computes there: each rank's core
  // gives its share.
  void take_cores(double per_unit, std::vector<engine::Demand>& demands) const {
    demands.push_back({cores_, per_unit});
    for (engine::ResourceId own : own_core_)
      demands.push_back({own, per_unit / comm_.fabric->cluster().emulated_on_cores});
  }

  // A thread that has slept long goes before one that computes: messages take the core time that
  // they need, computation gets what is left.
  static constexpr double kBeforeComputation = 1e6;
  // Core time of one byte over a hop: the network at both ends, and half a sum (all-reduce: one
  // phase of two sums).
  double core_time_per_byte() const {
    if (!computes_on_cores()) return 0;
    double network = 0;
    for (std::uint8_t t : comm_.transports)
      network =
          std::max(network, profile_.transports.at(comm_.fabric->transports()[t]).cpu_ps_per_byte);
    // Among tcp's messages they are tasks of their own.
    bool sums = (options_.fidelity == Fidelity::Collective || program_.backend == Backend::Gloo) &&
                profile_.reduction_bytes_per_s > 0;
    return network + (sums ? 0.5e12 / profile_.reduction_bytes_per_s : 0);
  }

  engine::FlowId phase_flow(const Price& price, const collective::Phase& phase, int group) {
    auto key = std::make_tuple(group, price.pattern, phase.round, phase.weight, phase.max_rate);
    auto it = phase_flows_.find(key);
    if (it != phase_flows_.end()) return it->second;
    auto pattern = static_cast<std::size_t>(price.pattern);
    auto round = static_cast<std::size_t>(phase.round + 1);
    const auto& demands = demands_[static_cast<std::size_t>(group)][pattern][round];
    const double heaviest = heaviest_[static_cast<std::size_t>(group)];
    engine::FlowId f = 0;
    if (double core = core_time_per_byte(); cores_ != engine::kNone && core > 0) {
      std::vector<engine::Demand> more = demands;
      const collective::Pattern& p = of_group(comm_, group).patterns[pattern];
      take_cores(core * (round == 0 ? p.moved : p.rounds[round - 1].moved), more);
      f = graph_.add_flow(more, phase.weight / heaviest * kBeforeComputation, phase.max_rate);
    } else if (comm_.sockets) {
      std::vector<engine::Demand> more = demands;
      const collective::Pattern& p = of_group(comm_, group).patterns[pattern];
      more.push_back({socket_thread(kEveryRank), round == 0 ? p.io : p.rounds[round - 1].io});
      f = graph_.add_flow(more, phase.weight / heaviest, phase.max_rate);
    } else {
      f = graph_.add_flow(demands, phase.weight / heaviest, phase.max_rate);
    }
    phase_flows_.emplace(key, f);
    return f;
  }

  engine::FlowId hop_flow(const Communicator& comm, int from, int to, int nic = -1) {
    auto device = [&](int rank) { return comm.devices[static_cast<std::size_t>(rank)]; };
    auto key = std::make_tuple(device(from), device(to), nic);
    auto it = hop_flows_.find(key);
    if (it != hop_flows_.end()) return it->second;
    topology::Route route;
    if (comm.nccl)
      nccl::find_hop_route(*comm.nccl, from, to, nic, route);
    else if (comm.sockets)
      collective::find_socket_route(*comm.fabric, device(from), device(to), route);
    else
      collective::find_hop_route(*comm.fabric, comm.devices, from, to, nic, route);
    std::vector<engine::Demand> demands;
    for (topology::LinkId l : route.links) demands.push_back({link_resource(l), 1});
    // A thread that sends as much as it receives gives each half of its time.
    if (comm.sockets)
      for (int rank : {from, to}) demands.push_back({socket_thread(device(rank)), 0.5});
    double core = core_time_per_byte();
    bool takes_cores = cores_ != engine::kNone && core > 0;
    if (takes_cores) take_cores(core, demands);
    engine::FlowId f = graph_.add_flow(demands, takes_cores ? kBeforeComputation : 1);
    hop_flows_.emplace(key, f);
    return f;
  }

  // Gloo between GPUs: what serves all connections of a device's rank, whichever collective's. Of
  // phases one stands for every rank's.
  static constexpr int kEveryRank = -1;
  engine::ResourceId socket_thread(int device) {
    auto [it, fresh] = socket_threads_.emplace(device, engine::kNone);
    if (fresh)
      it->second = graph_.add_resource({collective::socket_rate(profile_, options_.level), 0, 0});
    return it->second;
  }

  const Price& price_of(const Op& op) { return prices_->of(op); }

  Shared& shared_;
  TaskGraph& graph_;
  std::vector<engine::ResourceId>& link_resource_;
  engine::ResourceId cores_;
  std::vector<engine::ResourceId> own_core_;  // backend gloo, by class: the core that a rank
                                              // computes on, less what the network takes there
  std::vector<engine::FlowId>
      work_flow_;  // by class: one thread that computes, as many as the class has ranks
  std::vector<engine::FlowId> core_flow_;  // by class: the same of what the workload's times say,
                                           // which may have been taken while all ranks ran
  double core_share_ = 0;
  double crowd_ = 1;
  std::vector<double> heaviest_;  // by group
  const Program& program_;
  const Communicator& comm_;
  const Profile& profile_;
  const std::vector<RankClass>& classes_;
  const SimulationOptions options_;
  // By group and pattern: the mean's, each round's.
  std::vector<std::vector<std::vector<std::vector<engine::Demand>>>> demands_;
  std::array<std::vector<engine::ResourceId>, 2>
      device_;  // products, memory; by class; empty: nothing is held
  std::array<std::vector<engine::FlowId>, 2> device_flow_;
  std::vector<engine::FlowId> memory_flow_;  // by class; empty: every host has memory of its own
  std::vector<engine::FlowId> wait_flow_;    // by class
  static constexpr double kBehindComputation = 1e-3;
  // Of a device, by all collectives at once: they wait for its kernels, which need the rest.
  static constexpr double kMostHeld = 0.6;
  std::array<double, 2> holds_{};
  double mixed_ = 1;
  std::map<std::tuple<int, int, int, double, double>, engine::FlowId> phase_flows_;
  std::map<std::tuple<int, int, int>, engine::FlowId> hop_flows_;  // by devices
  std::map<const Communicator*, nccl::Flows> nccl_flows_;
  std::map<int, engine::ResourceId> socket_threads_;
  std::unique_ptr<Prices> own_prices_;
  Prices* prices_;
};

}  // namespace ddpsim::predict
