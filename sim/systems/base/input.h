// The input pipeline of a rank: a lane of its own, which makes the batches of micro-steps one after
// another, ahead of the host. The host waits for its batch where a training script takes it from
// its loader.
#pragma once

#include "sim/model/program.h"

namespace ddpsim::systems {

// Of a micro-step's batch.
struct BatchTimes {
  Duration made;    // by the pipeline; 0 = it is always there
  Duration copied;  // to the device, before forward; 0 = it is there, or is copied ahead
};
// Every step of the Program with an input pipeline. How far it runs ahead is not limited. REQUIRES:
// fewer than kMostStreams streams, and none of it yet.
void feed(Program& p, const BatchTimes& batch);

}  // namespace ddpsim::systems
