// The same collectives, message by message: every message of every step is a task. The oracle of price.h's closed forms.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sim/collective/price.h"
#include "sim/engine/task_graph.h"

namespace ddpsim::collective {

// Gives the flow of a message between two ranks (the links of their route, one unit = one byte).
using FlowOfHop = std::function<engine::FlowId(int from, int to)>;

// A sum of a received chunk that takes `alone` of a core: it is due after `due`, and done when `done` ends.
struct SumTasks {
  engine::TaskId due;
  engine::TaskId done;
};
using SumOnCores = std::function<SumTasks(Duration alone)>;

// Adds the tasks of one collective. `arrive[r]`: task after which rank r takes part. Returns, per rank, the task after which its part is done.
// `sums`: backend tcp: who adds a sum on shared cores; empty = every rank has a core of its own.
std::vector<engine::TaskId> add_all_reduce_messages(engine::TaskGraph& graph, const Communicator& c, const Profile& p, const Price& price, Bytes size,
                                                    const FlowOfHop& flow, std::span<const engine::TaskId> arrive, const SumOnCores& sums = {});
std::vector<engine::TaskId> add_broadcast_messages(engine::TaskGraph& graph, const Communicator& c, const Profile& p, const Price& price, Bytes size,
                                                   const FlowOfHop& flow, std::span<const engine::TaskId> arrive);

}  // namespace ddpsim::collective
