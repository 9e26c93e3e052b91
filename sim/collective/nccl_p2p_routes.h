// Which links NCCL's point-to-point messages cross. Internal to this room.
#pragma once

#include "sim/collective/nccl.h"

namespace ddpsim::collective {

struct P2pRoutes {
  std::vector<std::int64_t> messages;  // [link] that cross it
  std::vector<NcclHop> hops;           // of each transport and eager size, the longest wire
};
// Of the messages inside nodes, and of those between.
struct P2pPairs {
  P2pRoutes inside;
  P2pRoutes between;
};
// Every rank sends one message to each other. The same as walking the way of every pair, in less
// time: laws/nccl_p2p_test.cc.
P2pPairs routes_of_all_pairs(const NcclGroup& g);
// Every rank sends one message to the next.
P2pPairs routes_to_the_next(const NcclGroup& g);

}  // namespace ddpsim::collective
