// What the jobs of one simulation share: the graph, links and their queues, the cores and the
// memory of the machine that all hosts are emulated on. Internal to simulate.cc.
#pragma once

#include <array>
#include <vector>

#include "sim/play/turns.h"

namespace ddpsim::predict {

struct Shared {
  std::size_t jobs = 1;
  engine::TaskGraph& graph;
  std::vector<engine::ResourceId> link_resource;  // by link; kNone = not used yet
  engine::ResourceId cores =
      engine::kNone;  // of the machine that all hosts are emulated on; core-picoseconds
  engine::ResourceId memory = engine::kNone;  // of that machine; bytes
  Turns turns;                                // the same cores, as who is next
  std::size_t core_turns = 0;
  Readers readers;
  std::array<std::vector<engine::FlowId>, 2>
      link_flow;  // of packets, of a sender's own link; by link

  // Messages and sums are short, so that a core finishes the one it has before it takes the next
  // (of any rank, of any job).
  collective::CoreTasks take_core(Duration alone) {
    engine::TaskId due = graph.add_fixed({});
    return turns.add(graph, core_turns, due, graph.add_fixed(alone));
  }

  // A link's queue, of any job's segments.
  collective::CoreTasks take_link(topology::LinkId l, engine::ResourceId link, double bytes,
                                  bool first) {
    if (link_flow[first].size() <= l)
      link_flow[first].resize(link_resource.size(), engine::kNoFlow);
    engine::FlowId& flow = link_flow[first][l];
    engine::Demand all{link, 1};
    if (flow == engine::kNoFlow)
      flow = first ? graph.add_flow(std::span(&all, 1)) : graph.add_packet_flow(link);
    engine::TaskId due = graph.add_fixed({});
    return turns.add(graph, turns.place_of_link(l), due,
                     bytes > 0 ? graph.add_task({}, bytes, flow) : graph.add_fixed({}));
  }
};

}  // namespace ddpsim::predict
