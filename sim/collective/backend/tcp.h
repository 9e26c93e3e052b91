// ddpsim's own executor as a communicator: one ring, to rank r + 1, or a step list that the plan
// names. A received chunk is summed before the next step. docs/model.md 4.6, 4.8.
#pragma once

#include <vector>

#include "sim/collective/backend/step_list_ways.h"
#include "sim/collective/pattern.h"
#include "sim/engine/task_graph.h"
#include "sim/model/plan.h"

namespace ddpsim::collective {

struct Asked;
struct Communicator;
struct MessagePlay;
struct Price;

struct Tcp {
  static constexpr Backend kBackend = Backend::Tcp;
  PatternId all_reduce;
  PatternId reduce_scatter;  // one pass of the ring each
  PatternId all_gather;
  PatternId broadcast;  // the binomial tree from rank 0, round by round
  PatternId reduce;     // the same to rank 0
  PatternId send_recv;  // add_send_recv (parts.h)

  StepListWays ways() const { return {}; }
  PatternId pattern(Operation o) const;
  Price price(const Communicator& c, const Asked& asked) const;
  std::vector<engine::TaskId> add_messages(const Communicator& c, const MessagePlay& play) const;
};

// REQUIRES: as make_communicator.
Communicator make_tcp(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                      Algorithm algorithm);

}  // namespace ddpsim::collective
