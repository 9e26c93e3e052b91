// Gloo as a communicator: its segmented ring, rank r sends to rank r - 1, or a step list that its
// caller names. docs/model.md 4.2, 4.8.
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

struct Gloo {
  static constexpr Backend kBackend = Backend::Gloo;
  bool sockets = false;  // between GPUs: messages pass between the hosts' processes (sockets.h)
  PatternId all_reduce;
  PatternId broadcast;  // the binomial tree from rank 0, each rank to all its children at once
  PatternId send_recv;  // add_send_recv (parts.h)

  StepListWays ways() const { return {.launch_inside = true, .go_ahead = true}; }
  PatternId pattern(Operation o) const;
  Price price(const Communicator& c, const Asked& asked) const;
  std::vector<engine::TaskId> add_messages(const Communicator& c, const MessagePlay& play) const;
};

// REQUIRES: as make_communicator.
Communicator make_gloo(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                       Algorithm algorithm, bool sockets);

// Gloo's segments. Source: gloo/allreduce.cc (kMaxSegmentSize = 1 MiB).
struct GlooSegments {
  std::int64_t segments = 0;  // in all
  std::int64_t per_rank = 0;
  std::int64_t segment_bytes = 0;
};
GlooSegments gloo_segments(std::int64_t bytes, int ranks, std::int64_t element_size = 4);

}  // namespace ddpsim::collective
