// Which links NCCL's point-to-point messages cross. Internal to this room.
#pragma once

#include "sim/nccl/fabric/hop.h"
#include "sim/nccl/fabric/nccl.h"

namespace ddpsim::nccl {

struct P2pRoutes {
  std::vector<std::int64_t> messages;  // [link] that cross it
  std::vector<SlowestHop> hops;        // of each transport and eager size, the longest wire
};
// Of the messages inside nodes, and of those between.
struct P2pPairs {
  P2pRoutes inside;
  P2pRoutes between;
};
// Every rank sends one message to each other. The same as walking the way of every pair, in less
// time: laws/nccl_p2p_test.cc.
P2pPairs routes_of_all_pairs(const Group& g);
// Every rank sends one message to the next.
P2pPairs routes_to_the_next(const Group& g);

}  // namespace ddpsim::nccl
