// NCCL's pipelines message by message: the oracle of price_of(). Rings are collective's
// (collective/messages.h).
#pragma once

#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "sim/engine/task_graph.h"
#include "sim/nccl/fabric/stages.h"

namespace ddpsim::nccl {

// Flows of the stages of NCCL's pipelines, made once a job.
struct Flows {
  std::function<engine::ResourceId(topology::LinkId)> link;
  struct OfStages {
    Stages list;
    std::vector<engine::FlowId> flows;  // of each; kNoFlow: takes no time
    std::vector<Microseconds> of_byte;  // of each, alone
  };
  std::map<std::tuple<Algorithm, Protocol, int, Operation>, OfStages> known;
};
// Adds what NCCL has besides rings, piece by piece. REQUIRES: the choice is available and not a
// ring. `arrive[r]`: task after which rank r takes part. Returns, per rank, the task after which
// its part is done.
std::vector<engine::TaskId> add_messages(engine::TaskGraph& graph, const Group& g, const Profile& p,
                                         Level level, Operation op, const Choice& choice,
                                         Bytes size, Flows& flows,
                                         std::span<const engine::TaskId> arrive);
// Messages that it adds: stages times pieces.
double message_count(const Group& g, const Profile& p, Level level, Operation op,
                     const Choice& choice, Bytes size);

}  // namespace ddpsim::nccl
