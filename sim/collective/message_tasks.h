// What the message simulations share. Internal to this room.
#pragma once

#include <initializer_list>

#include "sim/collective/messages.h"

namespace ddpsim::collective {

Hop hop_between(const Communicator& c, int from, int to);

// A fixed task after others.
engine::TaskId after(engine::TaskGraph& g, Duration d, std::initializer_list<engine::TaskId> deps);

// Per rank, `launch` after its arrival.
std::vector<engine::TaskId> launched(engine::TaskGraph& g, Duration launch,
                                     std::span<const engine::TaskId> arrive);

// Backend tcp's binomial tree. A message goes when its sender has the data and what the connection
// carries is through, whether or not the receiver takes part yet; a sender goes on when its buffer
// holds the rest.
std::vector<engine::TaskId> tcp_broadcast(engine::TaskGraph& g, const Communicator& c,
                                          const Profile& p, Bytes size, const FlowOfHop& flow,
                                          std::span<const engine::TaskId> arrive,
                                          const SegmentPath& path = {});

}  // namespace ddpsim::collective
