// Open MPI as a communicator: step lists, which of them by the bytes (open_mpi.h). A message above
// the eager limit waits for its receiver: the transport's rendezvous more. docs/model.md 4.9.
#pragma once

#include <array>
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

inline constexpr std::array kMpiBroadcasts{Algorithm::BinomialTree, Algorithm::BasicLinear,
                                           Algorithm::Chain,        Algorithm::BinaryTree,
                                           Algorithm::Knomial,      Algorithm::ScatterAllGather};

struct Mpi {
  static constexpr Backend kBackend = Backend::Mpi;
  OpenMpi settings;
  std::array<PatternId, kMpiAllReduces> all_reduces;        // by MpiAllReduce - 1
  std::array<PatternId, kMpiBroadcasts.size()> broadcasts;  // as kMpiBroadcasts
  PatternId send_recv;                                      // add_send_recv (parts.h)

  StepListWays ways() const { return {.launch_inside = true, .mpi = &settings}; }
  PatternId pattern(MpiAllReduce a) const;
  PatternId broadcast_pattern(Algorithm a) const;
  // For AllReduce and Broadcast: Rabenseifner's and the binomial tree.
  PatternId pattern(Operation o) const;
  Price price(const Communicator& c, const Asked& asked) const;
  std::vector<engine::TaskId> add_messages(const Communicator& c, const MessagePlay& play) const;
};

// REQUIRES: as make_communicator.
Communicator make_mpi(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                      const OpenMpi& settings);

}  // namespace ddpsim::collective
