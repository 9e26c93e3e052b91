// What a collective of one job puts into the graph: phases over links, or every message. Internal
// to simulate.cc.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "sim/collective/connections.h"
#include "sim/nccl/fabric/messages.h"
#include "sim/play/job_flows.h"

namespace ddpsim::predict {

class Collectives {
 public:
  using TaskId = engine::TaskId;
  using Communicator = collective::Communicator;
  using Price = collective::Price;

  Collectives(Job& job, Flows& flows) : job_(job), flows_(flows) {}

  // All classes wait for one another: of groups that part the ranks, one class stands for the ranks
  // of each.
  std::vector<TaskId> add_phases(const Price& price, int group, const std::vector<TaskId>& arrive) {
    TaskId last = kNoTask;
    for (const collective::Phase& phase : price.phases) {
      TaskId t = phase.work > 0 ? job_.graph.add_task(phase.latency, phase.work,
                                                      flows_.phase_flow(price, phase, group))
                                : job_.graph.add_fixed(phase.latency);
      if (last == kNoTask)
        for (TaskId a : arrive) job_.graph.add_edge(a, t);
      else
        job_.graph.add_edge(last, t);
      last = t;
    }
    return std::vector<TaskId>(job_.classes.size(), last);
  }

  // Each group's ranks by themselves.
  std::vector<TaskId> add_messages_of_groups(const Op& op, const Price& price,
                                             const std::vector<TaskId>& arrive) {
    // Its price is one of messages; those of all groups are played as one flow.
    if (op.kind.operation == Operation::AllToAll) return add_phases(price, op.group, arrive);
    if (op.group == 0) return add_messages(job_.comm, op, price, arrive);
    const std::vector<Communicator>& joined = of_group(job_.comm, op.group).joined;
    auto ranks = members(job_.program.groups[op.group - 1u], job_.comm.ranks());
    std::vector<TaskId> done(arrive.size(), kNoTask);
    for (std::size_t g = 0; g < ranks.size(); ++g) {
      std::vector<TaskId> theirs;
      for (int r : ranks[g]) theirs.push_back(arrive[r]);
      theirs = add_messages(joined[g], op, price, theirs);
      for (std::size_t i = 0; i < theirs.size(); ++i) done[ranks[g][i]] = theirs[i];
    }
    return done;
  }

  // A turn on a connection has ended: true if it is one of these.
  bool decide(TaskId task, std::vector<TaskId>& release) {
    return connections_.decide(task, release);
  }

 private:
  std::vector<TaskId> add_messages(const Communicator& comm, const Op& op, const Price& price,
                                   const std::vector<TaskId>& arrive) {
    collective::FlowOfHop flow{
        [this, &comm](int from, int to, int nic) { return flows_.hop_flow(comm, from, to, nic); }};
    nccl::Flows& stages = stages_[&comm];
    if (!stages.link) stages.link = [this](topology::LinkId l) { return flows_.link_resource(l); };
    collective::MessagePlay play{.graph = job_.graph,
                                 .profile = job_.prices.profile_of(op.group),
                                 .level = job_.options.level,
                                 .price = price,
                                 .operation = op.kind.operation,
                                 .size = {op.bytes},
                                 .root = op.root,
                                 .flow = flow,
                                 .arrive = arrive,
                                 .stages = &stages};
    collective::SegmentPath& path = play.path;
    if (job_.program.backend == Backend::Tcp) {
      path.connections = &tcp_connections_;
      const bool gpu = job_.program.device == DeviceKind::Gpu;
      const std::size_t streams =
          gpu ? 1 + communicators_.size() : static_cast<std::size_t>(job_.program.worker_threads);
      path.slot = gpu ? tcp_connections_.slot(communicator_of(communicators_, op.lane))
                      : tcp_connections_.next_slot(streams);
      path.shares_links = streams > 1 || op.group > 0 || job_.shared.jobs > 1;
    }
    if (job_.program.backend == Backend::Mpi) {
      path.connections = &tcp_connections_;
      path.slot = tcp_connections_.next_slot(1);
    }
    if (job_.program.backend == Backend::Tcp && !flows_.computes_on_cores()) {
      path.queue = [this](topology::LinkId l, double bytes, bool first) {
        return job_.shared.take_link(l, flows_.link_resource(l), bytes, first);
      };
      path.add_reader = [this] { return job_.shared.readers.add(); };
      path.reads = [this](std::size_t reader, TaskId begin) {
        job_.shared.readers.reads(job_.graph, reader, begin);
      };
      path.acknowledge = [this](std::size_t reader, std::size_t message, TaskId there) {
        return job_.shared.readers.acknowledge(job_.graph, reader, message, there,
                                               collective::kDelayedAcknowledgement);
      };
      path.plays_before = job_.options.plays_before;
    }
    if (job_.program.backend == Backend::Gloo && job_.program.one_connection)
      play.turn = [this, &comm, group = op.group](int from, int to, double bytes) {
        return take_turn(comm, group, from, to, bytes);
      };
    if (flows_.computes_on_cores() && job_.program.backend == Backend::Tcp) {
      play.cores.sum = [this](Duration alone) {  // beside computation: shares
        TaskId t = flows_.add_sum(alone);
        return collective::CoreTasks{t, t};
      };
    } else if (job_.shared.cores != engine::kNone && job_.program.backend == Backend::Gloo) {
      play.cores.sum = [this](Duration alone) { return job_.shared.take_core(alone); };
    } else if (job_.shared.cores != engine::kNone) {
      play.cores.sum =
          play.cores.message = [this](Duration alone) { return job_.shared.take_core(alone); };
    }
    return collective::add_messages(comm, play);
  }

  // One connection a hop, whichever collective's message it is; each process group has its own.
  collective::CoreTasks take_turn(const Communicator& comm, std::uint8_t group, int from, int to,
                                  double bytes) {
    constexpr int kMostDevices = 1 << 20;
    TaskId due = job_.graph.add_fixed({});
    const auto device = [&](int rank) { return comm.devices[rank].number + group * kMostDevices; };
    return connections_.add(job_.graph, connections_.place_of_hop(device(from), device(to)), due,
                            job_.graph.add_task({}, bytes, flows_.hop_flow(comm, from, to)));
  }

  Job& job_;
  Flows& flows_;
  const std::vector<Lane> communicators_ = own_communicators(job_.program);  // tcp, GPU
  std::map<const Communicator*, nccl::Flows> stages_;
  Turns connections_;
  collective::Connections tcp_connections_;
};

}  // namespace ddpsim::predict
