// What the message simulations share. Internal to this room.
#pragma once

#include "sim/collective/messages.h"
#include "sim/engine/after.h"

namespace ddpsim::collective {

Hop hop_between(const Communicator& c, int from, int to);

using engine::after;
using engine::launched;

// Who has sent and received all of its parts.
std::vector<engine::TaskId> join(engine::TaskGraph& g,
                                 const std::vector<std::vector<engine::TaskId>>& parts);

// NCCL's rings: twice round all of them for an all-reduce, once for half of it; a broadcast goes
// along them in pieces. `of_group`: by the latencies of the price, which NCCL's group gave.
std::vector<engine::TaskId> add_ring_messages(const Communicator& c, const MessagePlay& play,
                                              bool of_group);
// Backend tcp's binomial tree. A message goes when its sender has the data and what the connection
// carries is through, whether or not the receiver takes part yet; a sender goes on when its buffer
// holds the rest.
std::vector<engine::TaskId> tcp_broadcast(const Communicator& c, const MessagePlay& play);

}  // namespace ddpsim::collective
