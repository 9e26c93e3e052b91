// Collectives as data: what each rank sends, receives and sums in which step. The executor
// (calib/mesh.h) plays these lists over real connections and schedule_messages.cc simulates the
// same lists. One .cc per algorithm, with its rounds (the closed form, round.h) beside its steps.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective/algorithm.h"

namespace ddpsim::collective {

// Elements [offset, offset + count) of the collective's buffer; count > 0.
struct Message {
  int peer = -1;  // rank
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

// All messages of a step are posted at once; it ends when all have gone and come and what came is
// in the buffer: summed (`reduce`; one message after the other) or copied. The lane's next step
// begins then.
struct Step {
  std::vector<Message> sends;
  std::vector<Message> receives;
  bool reduce = false;
  // Begins only when that step of another lane of the same rank has ended; -1 = waits for none.
  int after_lane = -1;
  int after_step = -1;
};

// Lanes run side by side, each with connections of its own: message k from r to t on a lane is the
// k-th receive from r at t on the same lane.
struct RankSteps {
  std::vector<std::vector<Step>> lanes;
};

struct Schedule {
  std::vector<RankSteps> ranks;
  int rank_count() const { return static_cast<int>(ranks.size()); }
  int lanes() const {
    return ranks.empty() ? 0 : static_cast<int>(ranks.front().lanes.size());
  }  // of every rank
};

struct Layout {
  int ranks = 0;
  // Positions: order[p] is the rank at position p. Rings and trees go by position; the root is at
  // position 0, block i of a reduce-scatter or an all-gather belongs to position i. Empty = 0, 1,
  // 2, ...
  std::vector<int> order;
  std::vector<int> group;  // Hierarchical: group of each position, any numbers; empty = one group
  int rows = 0;  // Torus2d: position p is at row p / columns; 0 = torus_rows(ranks). REQUIRES rows
                 // divides ranks
};
// Rows of the squarest torus: the largest divisor that is at most the root of n.
int torus_rows(int ranks);

struct ScheduleOptions {
  std::int64_t chunk =
      0;  // elements of a piece of a pipelined chain or tree, per lane; 0 = no pipeline
};

// Elements of the buffer that the steps work on: `elements`, except
//   AllToAll  2 x elements: block i (of n) of the first half goes to position i; block i of the
//             second half is what came from it. A rank's own block is not copied.
//   SendRecv  2 x elements: the first half goes to the next position, the second comes from the one
//             before.
// What the operation leaves: AllReduce: the sum everywhere. ReduceScatter: at position p, block p
// is the sum, the rest is undefined. AllGather: block p of position p everywhere. Broadcast: the
// root's buffer everywhere. Reduce: the sum at the root, undefined elsewhere.
std::int64_t buffer_elements(Operation o, std::int64_t elements);

// REQUIRES: performs(a, o, layout.ranks), layout as above. One rank or no elements: no steps.
Schedule make_schedule(Algorithm a, Operation o, const Layout& layout, std::int64_t elements,
                       const ScheduleOptions& options = {});

// First element of chunk i of n; chunk sizes differ by at most one element.
inline std::int64_t chunk_begin(std::int64_t elements, std::int64_t n, std::int64_t i) {
  return elements / n * i + elements % n * i / n;
}

}  // namespace ddpsim::collective
