// A job's ranks and one of its parameter servers: a process on a host, which is no rank.
#pragma once

#include <optional>
#include <vector>

#include "sim/collective/pattern.h"
#include "sim/model/plan.h"
#include "sim/model/profile.h"
#include "sim/topology/fabric.h"

namespace ddpsim::collective {

struct Asked;
struct Communicator;
struct Price;

// It performs Push and Pull alone: from every rank to the server, and from it to each, all at once.
struct Server {
  static constexpr Backend kBackend = Backend::Tcp;
  DeviceId device;  // beside whose NIC it is
  PatternId push;
  PatternId pull;

  PatternId pattern(Operation o) const;
  // S bytes from each rank, or to each: a message over every rank's way at once, of which the link
  // carries most that all of them share.
  Price price(const Communicator& c, const Asked& asked) const;
};

// The way of a message between a rank's device and the server, which uses the NIC of `server`, a
// device of its host; inside a host by the links to the CPU, if these are drawn.
void find_server_route(const topology::Fabric& fabric, DeviceId device, DeviceId server, bool push,
                       topology::Route& route);

// All ranks with the server.
Communicator make_server_communicator(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                                      DeviceId server);
// The device beside whose NIC the server is, if the communicator has one.
std::optional<DeviceId> server_of(const Communicator& c);

// Software and wire of one message between a rank and the server.
Duration server_latency(const Communicator& c, const Profile& p, DeviceId device, bool push);

}  // namespace ddpsim::collective
