// What a collective of one job puts into the graph: phases over links, or every message. Internal
// to simulate.cc.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/collective/connections.h"
#include "sim/predict/job_flows.h"

namespace ddpsim::predict {

inline constexpr engine::TaskId kNoTask = UINT32_MAX;

struct JobCollectives : JobFlows {
  using JobFlows::JobFlows;

  // All classes wait for one another: of groups that part the ranks, one class stands for the ranks
  // of each.
  std::vector<TaskId> add_phases(const Price& price, int group, const std::vector<TaskId>& arrive) {
    TaskId last = kNoTask;
    for (const collective::Phase& phase : price.phases) {
      TaskId t = phase.work > 0
                     ? graph_.add_task(phase.latency, phase.work, phase_flow(price, phase, group))
                     : graph_.add_fixed(phase.latency);
      if (last == kNoTask)
        for (TaskId a : arrive) graph_.add_edge(a, t);
      else
        graph_.add_edge(last, t);
      last = t;
    }
    return std::vector<TaskId>(classes_.size(), last);
  }

  // Each group's ranks by themselves.
  std::vector<TaskId> add_messages_of_groups(const Op& op, const Price& price,
                                             const std::vector<TaskId>& arrive) {
    // Its price is one of messages; those of all groups are played as one flow.
    if (op.kind.operation == Operation::AllToAll) return add_phases(price, op.group, arrive);
    if (op.group == 0) return add_messages(comm_, op, price, arrive);
    const std::vector<Communicator>& joined = of_group(comm_, op.group).joined;
    auto ranks = members(program_.groups[op.group - 1u], comm_.ranks());
    std::vector<TaskId> done(arrive.size(), kNoTask);
    for (std::size_t g = 0; g < ranks.size(); ++g) {
      std::vector<TaskId> theirs;
      for (int r : ranks[g]) theirs.push_back(arrive[static_cast<std::size_t>(r)]);
      theirs = add_messages(joined[g], op, price, theirs);
      for (std::size_t i = 0; i < theirs.size(); ++i)
        done[static_cast<std::size_t>(ranks[g][i])] = theirs[i];
    }
    return done;
  }

  std::vector<TaskId> add_messages(const Communicator& comm, const Op& op, const Price& price,
                                   const std::vector<TaskId>& arrive) {
    const Profile& profile = prices_->profile_of(op.group);
    collective::FlowOfHop flow{
        [this, &comm](int from, int to, int nic) { return hop_flow(comm, from, to, nic); }};
    if (comm.nccl && price.pattern >= collective::kNcclPatterns) {
      nccl::Flows& flows = nccl_flows_[&comm];
      if (!flows.link) flows.link = [this](topology::LinkId l) { return link_resource(l); };
      auto choice = nccl::choose(*comm.nccl, op.kind.operation, op.bytes);
      return nccl::add_messages(graph_, *comm.nccl, profile_, options_.level, op.kind.operation,
                                *choice, {op.bytes}, flows, arrive);
    }
    // NCCL's reduce is a chain; here it takes its time on the ring's hops.
    const Operation o = op.kind.operation;
    const bool half =
        o == Operation::AllGather || o == Operation::Reduce || o == Operation::ReduceScatter;
    if (half && comm.backend == Backend::Nccl)
      return collective::add_half_messages(graph_, comm, profile, price, {op.bytes}, flow, arrive);
    collective::SharedCores sharing;
    collective::TakeTurn turn;
    collective::SegmentPath path;
    if (program_.backend == Backend::Tcp) {
      path.connections = &tcp_connections_;
      const bool gpu = program_.device == DeviceKind::Gpu;
      const std::size_t streams =
          gpu ? 1 + communicators_.size() : static_cast<std::size_t>(program_.worker_threads);
      path.slot = gpu ? tcp_connections_.slot(communicator_of(communicators_, op.lane))
                      : tcp_connections_.next_slot(streams);
      path.shares_links = streams > 1 || op.group > 0 || shared_.jobs > 1;
    }
    if (program_.backend == Backend::Mpi) {
      path.connections = &tcp_connections_;
      path.slot = tcp_connections_.next_slot(1);
    }
    if (program_.backend == Backend::Tcp && !computes_on_cores()) {
      path.queue = [this](topology::LinkId l, double bytes, bool first) {
        return shared_.take_link(l, link_resource(l), bytes, first);
      };
      path.add_reader = [this] { return shared_.readers.add(); };
      path.reads = [this](std::size_t reader, TaskId begin) {
        shared_.readers.reads(graph_, reader, begin);
      };
      path.acknowledge = [this](std::size_t reader, std::size_t message, TaskId there) {
        return shared_.readers.acknowledge(graph_, reader, message, there,
                                           collective::kDelayedAcknowledgement);
      };
      path.plays_before = options_.plays_before;
    }
    if (program_.backend == Backend::Gloo && program_.one_connection)
      turn = [this, &comm, group = op.group](int from, int to, double bytes) {
        return take_turn(comm, group, from, to, bytes);
      };
    if (computes_on_cores() && program_.backend == Backend::Tcp) {
      sharing.sum = [this](Duration alone) {  // beside computation: shares
        TaskId t = graph_.add_task({}, static_cast<double>(alone.ps), core_flow_.front());
        return collective::CoreTasks{t, t};
      };
    } else if (cores_ != engine::kNone && program_.backend == Backend::Gloo) {
      sharing.sum = [this](Duration alone) { return shared_.take_core(alone); };
    } else if (cores_ != engine::kNone) {
      sharing.sum = sharing.message = [this](Duration alone) { return shared_.take_core(alone); };
    }
    if (is_broadcast(op.kind))
      return collective::add_broadcast_messages(graph_, comm, profile, price, {op.bytes}, flow,
                                                arrive, path, op.root, turn);
    if (half)
      return collective::add_schedule_messages(graph_, comm, profile, price, {op.bytes}, flow,
                                               arrive, sharing, turn, path, op.root);
    return collective::add_all_reduce_messages(graph_, comm, profile, price, {op.bytes}, flow,
                                               arrive, sharing, turn, path);
  }

  // One connection a hop, whichever collective's message it is; each process group has its own.
  collective::CoreTasks take_turn(const Communicator& comm, std::uint8_t group, int from, int to,
                                  double bytes) {
    constexpr int kMostDevices = 1 << 20;
    TaskId due = graph_.add_fixed({});
    const auto device = [&](int rank) {
      return comm.devices[static_cast<std::size_t>(rank)] + group * kMostDevices;
    };
    return connections_.add(graph_, connections_.place_of_hop(device(from), device(to)), due,
                            graph_.add_task({}, bytes, hop_flow(comm, from, to)));
  }

  const std::vector<Lane> communicators_ = own_communicators(program_);  // tcp, GPU
  Turns connections_;
  collective::Connections tcp_connections_;
};

}  // namespace ddpsim::predict
