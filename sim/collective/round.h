// Closed forms as data: an algorithm's rounds. A round is what all positions send at once; the next
// begins when all of it is there and summed.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective/schedule.h"

namespace ddpsim::collective {

struct Transfer {
  int from = 0;  // position
  int to = 0;
  double share = 0;  // of the collective's bytes; of a pipeline: of a piece
};

struct Round {
  std::vector<Transfer> transfers;
  double times = 1;   // rounds like this one, one after another
  bool sums = false;  // what comes is summed before the next round
};

// A pipelined algorithm moves pieces: the first takes `rounds` one after another (the fill: what
// lies on its slowest way), each further one a period: the latency and the sum of `cycle`, and what
// the slowest link carries of a piece in all lanes together (`streamed`).
struct Rounds {
  std::vector<Round> rounds;
  bool pipelined = false;
  int lanes = 1;  // that carry equal parts of the bytes: pieces = ceil(elements / lanes / chunk)
  Round cycle;    // pipelined: a lane's slowest steps, of a piece
  std::vector<Transfer> streamed;  // pipelined: of a piece in all lanes together
};

// REQUIRES: performs(a, o, layout.ranks), ranks >= 2.
Rounds make_rounds(Algorithm a, Operation o, const Layout& layout);

}  // namespace ddpsim::collective
