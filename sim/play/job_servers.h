// A job's parameter servers: messages between ranks and servers, what a server does with them, and
// who waits for whom at the beginning of a step. Internal to simulate.cc.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/collective/backend/server.h"
#include "sim/play/job_collectives.h"

namespace ddpsim::predict {

class ServerWork {
 public:
  using TaskId = engine::TaskId;
  using Communicator = collective::Communicator;
  using Price = collective::Price;

  ServerWork(Job& job, Flows& flows, Collectives& collectives)
      : job_(job), flows_(flows), collectives_(collectives) {}

  // Ranks that are in the same step send together, unless every message is a task.
  bool one_by_one() const {
    return job_.program.servers->apart() || job_.options.fidelity == Fidelity::Message;
  }

  // Of each class, when it has sent or received. One by one, a class is one rank.
  std::vector<TaskId> add_served(const Op& op, const std::vector<TaskId>& arrive) {
    const Price& price = job_.price_of(op);
    if (!one_by_one()) return collectives_.add_phases(price, op.group, arrive);
    std::vector<TaskId> done;
    for (std::size_t c = 0; c < arrive.size(); ++c) {
      const Way& way = way_of(op, job_.classes[c].ranks.front());
      done.push_back(
          way.flow == engine::kNone
              ? job_.graph.add_fixed(way.latency)
              : job_.graph.add_task(way.latency, static_cast<double>(op.bytes), way.flow));
      job_.graph.add_edge(arrive[c], done.back());
    }
    return done;
  }

  // The server of group `group` works so long, a share of it where it has more to do. `after`: of
  // each class the end of its push.
  std::vector<TaskId> add_server_work(std::uint8_t group, Duration d,
                                      const std::vector<TaskId>& after) {
    std::vector<TaskId> done;
    for (std::size_t c = 0; c < after.size(); ++c) {
      if (c == 0 || job_.program.servers->apart())
        done.push_back(d.ps > 0 ? job_.graph.add_task({}, d, work_of(group))
                                : job_.graph.add_fixed({}));
      else
        done.push_back(done.front());
      job_.graph.add_edge(after[c], done.back());
    }
    return done;
  }

  // The first operation of a step of class c. `ends`: of the steps before, by class.
  void wait_for_clock(TaskId first, const std::vector<std::vector<TaskId>>& ends) {
    const auto bound = job_.program.servers->staleness;
    if (!job_.program.servers->apart() || bound < 0) return;
    const auto behind = static_cast<std::size_t>(bound) + 1;
    if (ends.size() < behind) return;
    for (TaskId end : ends[ends.size() - behind]) job_.graph.add_edge(end, first);
  }

 private:
  struct Way {
    Duration latency;
    std::vector<topology::LinkId> links;
    engine::FlowId flow = engine::kNone;  // no link is on it
  };
  using Key = std::tuple<std::uint8_t, int, bool>;  // server's group, rank, push

  const Way& way_of(const Op& op, int rank) {
    if (ways_.empty()) find_ways();
    return ways_.at({op.group, rank, op.kind.operation == Operation::Push});
  }

  void find_ways() {
    topology::Route route;
    for (std::size_t k = 0; k < job_.comm.groups.size(); ++k)
      for (const RankClass& of : job_.classes)
        for (bool push : {true, false}) {
          const Communicator& c = job_.comm.groups[k];
          const auto server = collective::server_of(c);
          if (!server) continue;
          const auto group = static_cast<std::uint8_t>(k + 1);
          const int rank = of.ranks.front();
          const DeviceId device = c.devices[rank];
          collective::find_server_route(*c.fabric, device, *server, push, route);
          Way& way = ways_[{group, rank, push}];
          way.latency = collective::server_latency(c, job_.profile, device, push);
          way.links = route.links;
        }
    std::map<topology::LinkId, std::vector<const Way*>> on;  // in order of ways
    for (const auto& [key, way] : ways_)
      for (topology::LinkId l : way.links) on[l].push_back(&way);
    for (auto& [key, way] : ways_) {
      std::vector<engine::Demand> demands;
      for (topology::LinkId l : way.links)
        if (decides(l, on)) demands.push_back({flows_.link_resource(l), 1});
      if (!demands.empty()) way.flow = job_.graph.add_flow(demands, 1);
    }
  }

  // A link that is no slower than another one, which all its ways take, limits none of them before
  // that one does: rates are the same without it.
  bool decides(topology::LinkId l,
               const std::map<topology::LinkId, std::vector<const Way*>>& on) const {
    const auto& links = job_.comm.fabric->links();
    if (links[l].burst.count > 0) return true;
    auto rate = [&](topology::LinkId k) {
      return collective::link_rate(job_.comm, job_.profile, job_.options.level, k);
    };
    const auto& own = on.at(l);
    auto narrower = [&](topology::LinkId other) {
      if (other == l || links[other].burst.count > 0 || rate(other) > rate(l)) return false;
      const auto& theirs = on.at(other);
      if (rate(other) == rate(l) && theirs.size() == own.size() && other > l) return false;
      std::size_t next = 0;
      for (const Way* way : theirs)
        if (next < own.size() && way == own[next]) ++next;
      return next == own.size();
    };
    const auto& shared = own.front()->links;
    return std::none_of(shared.begin(), shared.end(), narrower);
  }

  engine::FlowId work_of(std::uint8_t group) {
    auto [it, fresh] = work_.try_emplace(group);
    if (fresh) {
      engine::Demand d{job_.graph.add_resource({1.0, 0, 0}), 1};
      it->second = job_.graph.add_flow(std::span(&d, 1), 1, 1);
    }
    return it->second;
  }

  Job& job_;
  Flows& flows_;
  Collectives& collectives_;
  std::map<Key, Way> ways_;
  std::map<std::uint8_t, engine::FlowId> work_;
};

}  // namespace ddpsim::predict
