// A pattern says how much an algorithm of a communicator puts on which links of its fabric.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "sim/collective/algorithm.h"
#include "sim/collective/backend/turns.h"
#include "sim/topology/link_loads.h"
#include "sim/units/units.h"

namespace ddpsim::collective {

using topology::LinkLoad;

struct Hop {
  int from = 0;  // rank
  int to = 0;
  std::uint8_t transport = 0;  // index into Fabric::transports
  Duration wire_latency;
};

// A cyclic order of ranks, each of which sends to the next.
struct Ring {
  std::vector<int> order;
  double share = 1;  // of a collective's bytes
  int nic = -1;      // by which it passes from host to host, local index; -1 = each device's own
};

struct Pattern {
  Algorithm algorithm = Algorithm::Ring;
  Operation operation = Operation::AllReduce;
  std::vector<LinkLoad>
      load;  // bytes on the link per byte of a phase's work (mean over rounds); ascending by link
  // round.h's rounds with the links that they use. Empty for NCCL's and Gloo's rings and the tcp
  // ring, whose closed forms need the ring's hops only.
  struct Round {
    std::vector<LinkLoad>
        load;  // per byte of the collective (of a pipeline: of a piece); ascending by link
    std::vector<Hop> hops;  // of each transport, the one with the slowest wire
    double times = 1;
    double message =
        0;  // the largest, as a share of the collective's bytes (of a pipeline: of a piece)
    int messages = 0;   // of all ranks, at once
    double moved = 0;   // by all ranks, as such a share
    double summed = 0;  // bytes that the busiest rank sums, as such a share; 0 = nothing
    double summed_by_all = 0;
    RoundTurns exchange;  // Open MPI
    double io = 0;        // by sockets: half of what the busiest rank sends and receives
  };
  std::vector<Round> rounds;
  // A price has a phase for each round, with its links, instead of one phase with the mean: all but
  // rings, pipelines and the broadcast's tree.
  bool by_round = false;
  double moved = 0;        // bytes that all ranks move per byte of a phase's work, by the mean
  bool pipelined = false;  // `rounds` are the fill; `cycle`, `load` and `lanes` as in round.h
                           // (load: what is streamed)
  int lanes = 1;
  Round cycle;
  int streamed = 0;  // messages of a piece in all lanes
  // By sockets: what the busiest rank's thread sends and receives, halved, per byte of a phase's
  // work (mean over rounds); a ring's ranks send what they receive.
  double io = 1;
};

// One of a communicator's patterns. Its backend knows which is which.
struct PatternId {
  std::uint32_t index = UINT32_MAX;  // into Communicator::patterns; UINT32_MAX = none
  explicit operator bool() const { return index != UINT32_MAX; }
  auto operator<=>(const PatternId&) const = default;
};

}  // namespace ddpsim::collective
