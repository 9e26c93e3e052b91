// How a backend plays step lists.
#pragma once

#include "sim/collective/backend/open_mpi.h"

namespace ddpsim::collective {

struct StepListWays {
  // A collective begins with its launch. False: its launch passes before it is queued
  // (queued_launch).
  bool launch_inside = false;
  // A message waits for its receiver's word, and collectives share a rank's connections.
  bool go_ahead = false;
  const OpenMpi* mpi =
      nullptr;  // whose messages have an eager limit, and whose exchanges take turns
};

}  // namespace ddpsim::collective
