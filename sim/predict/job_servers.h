// A job's parameter servers: messages between ranks and servers, what a server does with them, and
// who waits for whom at the beginning of a step. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sim/collective/servers.h"
#include "sim/predict/job_collectives.h"

namespace ddpsim::predict {

struct JobServers : JobCollectives {
  using JobCollectives::JobCollectives;

  // Ranks that are in the same step send together, unless every message is a task.
  bool one_by_one() const {
    return program_.servers->apart() || options_.fidelity == Fidelity::Message;
  }

  // Of each class, when it has sent or received. One by one, a class is one rank.
  std::vector<TaskId> add_served(const Op& op, const std::vector<TaskId>& arrive) {
    const Price& price = price_of(op);
    if (!one_by_one()) return add_phases(price, op.group, arrive);
    std::vector<TaskId> done;
    for (std::size_t c = 0; c < arrive.size(); ++c) {
      const Way& way = way_of(op, classes_[c].ranks.front());
      done.push_back(way.flow == engine::kNone
                         ? graph_.add_fixed(way.latency)
                         : graph_.add_task(way.latency, static_cast<double>(op.bytes), way.flow));
      graph_.add_edge(arrive[c], done.back());
    }
    return done;
  }

  // The server of group `group` works so long, a share of it where it has more to do. `after`: of
  // each class the end of its push.
  std::vector<TaskId> add_server_work(std::uint8_t group, Duration d,
                                      const std::vector<TaskId>& after) {
    std::vector<TaskId> done;
    for (std::size_t c = 0; c < after.size(); ++c) {
      if (c == 0 || program_.servers->apart())
        done.push_back(d.ps > 0 ? graph_.add_task({}, static_cast<double>(d.ps), work_of(group))
                                : graph_.add_fixed({}));
      else
        done.push_back(done.front());
      graph_.add_edge(after[c], done.back());
    }
    return done;
  }

  // The first operation of a step of class c. `ends`: of the steps before, by class.
  void wait_for_clock(TaskId first, const std::vector<std::vector<TaskId>>& ends) {
    const auto bound = program_.servers->staleness;
    if (!program_.servers->apart() || bound < 0) return;
    const auto behind = static_cast<std::size_t>(bound) + 1;
    if (ends.size() < behind) return;
    for (TaskId end : ends[ends.size() - behind]) graph_.add_edge(end, first);
  }

 private:
  struct Way {
    Duration latency;
    engine::FlowId flow = engine::kNone;  // no link is on it
  };
  const Way& way_of(const Op& op, int rank) {
    const bool push = op.kind.operation == Operation::Push;
    auto [it, fresh] = ways_.try_emplace({op.group, rank, push});
    if (!fresh) return it->second;
    const Communicator& c = of_group(comm_, op.group);
    const int device = c.devices[static_cast<std::size_t>(rank)];
    topology::Route route;
    collective::find_server_route(*c.fabric, device, c.server, push, route);
    it->second.latency = collective::server_latency(c, profile_, device, push);
    if (route.links.empty()) return it->second;
    std::vector<engine::Demand> demands;
    for (topology::LinkId l : route.links) demands.push_back({link_resource(l), 1});
    it->second.flow = graph_.add_flow(demands, 1);
    return it->second;
  }

  engine::FlowId work_of(std::uint8_t group) {
    auto [it, fresh] = work_.try_emplace(group);
    if (fresh) {
      engine::Demand d{graph_.add_resource({1.0, 0, 0}), 1};
      it->second = graph_.add_flow(std::span(&d, 1), 1, 1);
    }
    return it->second;
  }

  std::map<std::tuple<std::uint8_t, int, bool>, Way> ways_;
  std::map<std::uint8_t, engine::FlowId> work_;
};

}  // namespace ddpsim::predict
