// One collective by itself: how long from the moment all ranks begin until the last one ends, the
// links idle before. What an executor measures when it plays a collective alone.
#pragma once

#include "sim/play/simulate.h"

namespace ddpsim::predict {

// An all-reduce of `bytes` of float32; `plays_before`: as often on the same connections before it
// (backend tcp). REQUIRES: p has every transport of the fabric; the communicator has two ranks or
// more.
Duration all_reduce_alone(const collective::Communicator& comm, const Profile& p, Bytes bytes,
                          Fidelity fidelity, Level level = Level::Mid, double plays_before = 0);

}  // namespace ddpsim::predict
