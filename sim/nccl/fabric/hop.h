// The slowest hop of one kind.
#pragma once

#include "sim/topology/fabric.h"

namespace ddpsim::nccl {

struct SlowestHop {
  bool exists = false;
  std::uint8_t transport = 0;
  Duration wire;
  Bytes eager;             // smallest of its links that has one
  Bandwidth rate;          // raw, of its slowest link
  Bandwidth staging;       // one way; 0 = not staged
  bool by_memory = false;  // through the host's (peers.h)
};

}  // namespace ddpsim::nccl
