// The input pipeline of a rank: a lane of its own, which makes the batches of micro-steps one after
// another, ahead of the host. The host waits for its batch where a training script takes it from
// its loader.
#pragma once

#include "sim/model/program.h"

namespace ddpsim::strategy {

// Every step of the Program with an input pipeline that takes `batch` for the batch of a
// micro-step. How far it runs ahead is not limited. REQUIRES: fewer than kMostStreams streams, and
// none of it yet.
void feed(Program& p, Duration batch);

}  // namespace ddpsim::strategy
