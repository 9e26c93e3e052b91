// Collectives as data: what each rank sends, receives and sums in which step. The executor (calib) plays these lists over real connections, and
// messages.cc simulates the same lists; closed forms are in price.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::collective {

// One step of one rank: both messages go at once; the step ends when both are done and, if `reduce`, what came is summed into the buffer.
// The next step begins then. Offsets and counts are in elements of the collective's buffer; a count of 0 is not sent.
struct MessageStep {
  int send_to = -1;  // rank, -1 = nothing to send
  std::int64_t send_offset = 0;
  std::int64_t send_count = 0;
  int receive_from = -1;
  std::int64_t receive_offset = 0;
  std::int64_t receive_count = 0;
  bool reduce = false;
};

// Ring: reduce-scatter, then all-gather, 2(n-1) steps of one chunk of elements/n. `order`: ranks, each sends to the next. REQUIRES: rank in order.
std::vector<MessageStep> ring_all_reduce_steps(std::span<const int> order, int rank, std::int64_t elements);
// Binomial tree from rank 0: in round k, ranks below 2^k send all to rank + 2^k.
std::vector<MessageStep> tree_broadcast_steps(int ranks, int rank, std::int64_t elements);

// First element of chunk i of n; chunk sizes differ by at most one element.
inline std::int64_t chunk_begin(std::int64_t elements, std::int64_t n, std::int64_t i) { return elements / n * i + elements % n * i / n; }

}  // namespace ddpsim::collective
