// What the message simulations share. Internal to this room.
#pragma once

#include "sim/collective/messages.h"
#include "sim/engine/after.h"

namespace ddpsim::collective {

Hop hop_between(const Communicator& c, int from, int to);

using engine::after;
using engine::launched;

// Backend tcp's binomial tree. A message goes when its sender has the data and what the connection
// carries is through, whether or not the receiver takes part yet; a sender goes on when its buffer
// holds the rest.
std::vector<engine::TaskId> tcp_broadcast(engine::TaskGraph& g, const Communicator& c,
                                          const Profile& p, Bytes size, const FlowOfHop& flow,
                                          std::span<const engine::TaskId> arrive,
                                          const SegmentPath& path = {}, int root = 0);

}  // namespace ddpsim::collective
