// Steps that the makers of communicators share. Internal to this room.
#pragma once

#include "sim/collective/communicator.h"
#include "sim/collective/round.h"

namespace ddpsim::collective {

// Ranks on devices, with rings that carry equal shares, and the hops of the first. `load`: what all
// rings put on the links.
struct Begun {
  Communicator c;
  std::vector<LinkLoad> load;
};
Begun begin(const topology::Fabric& fabric, std::vector<DeviceId> devices,
            Communicator::Library library, std::vector<std::vector<int>> rings);
// The pattern of a ring's operation. REQUIRES: ranks >= 2.
Pattern along_rings(const Begun& b, Operation o);
Pattern route_rounds(const Communicator& c, Algorithm a, Operation o, const Rounds& rounds);
// The binomial tree, counted as a round of everybody.
Pattern broadcast_tree(const Communicator& c, const Rounds& rounds);
// Communicator::transports, of the rings' and of all patterns' hops.
Communicator finish(Begun b);

}  // namespace ddpsim::collective
