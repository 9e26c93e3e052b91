// A job's ranks and one of its parameter servers: a process on a host, which is no rank.
#pragma once

#include "sim/collective/price.h"

namespace ddpsim::collective {

// Patterns of its communicator.
inline constexpr int kPush = 0;
inline constexpr int kPull = 1;

// The way of a message between a rank's device and the server, which uses the NIC of `server`, a
// device of its host; inside a host by the links to the CPU, if these are drawn.
void find_server_route(const topology::Fabric& fabric, int device, int server, bool push,
                       topology::Route& route);

// All ranks with the server. It performs Push and Pull alone: from every rank to the server, and
// from it to each, all at once.
Communicator make_server_communicator(const topology::Fabric& fabric, std::vector<int> devices,
                                      int server);

// S bytes from each rank, or to each: a message over every rank's way at once, of which the link
// carries most that all of them share. REQUIRES: c has a server.
Price server_price(const Communicator& c, const Profile& p, Level level, Operation operation,
                   Bytes size);

// Software and wire of one message between a rank and the server.
Duration server_latency(const Communicator& c, const Profile& p, int device, bool push);

}  // namespace ddpsim::collective
