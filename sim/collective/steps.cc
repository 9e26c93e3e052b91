// Ring, position p of n, step s: reduce-scatter sends chunk p - s, receives and sums p - s - 1; all-gather sends p + 1 - s, receives p - s (mod n).
#include "sim/collective/steps.h"

#include <algorithm>

namespace ddpsim::collective {

std::vector<MessageStep> ring_all_reduce_steps(std::span<const int> order, int rank, std::int64_t elements) {
  std::vector<MessageStep> out;
  auto n = static_cast<int>(order.size());
  if (n < 2 || elements == 0) return out;
  int p = static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
  auto wrap = [n](int i) { return ((i % n) + n) % n; };
  auto begin = [&](int chunk) { return chunk_begin(elements, n, chunk); };
  for (bool reduce : {true, false}) {
    for (int s = 0; s < n - 1; ++s) {
      int sent = wrap(reduce ? p - s : p + 1 - s);
      int received = wrap(sent - 1);
      MessageStep step;
      step.send_to = order[static_cast<std::size_t>(wrap(p + 1))];
      step.send_offset = begin(sent);
      step.send_count = begin(sent + 1) - begin(sent);
      step.receive_from = order[static_cast<std::size_t>(wrap(p - 1))];
      step.receive_offset = begin(received);
      step.receive_count = begin(received + 1) - begin(received);
      step.reduce = reduce;
      out.push_back(step);
    }
  }
  return out;
}

std::vector<MessageStep> tree_broadcast_steps(int ranks, int rank, std::int64_t elements) {
  std::vector<MessageStep> out;
  if (ranks < 2 || elements == 0) return out;
  for (int distance = 1; distance < ranks; distance *= 2) {
    MessageStep step;
    if (rank < distance && rank + distance < ranks) {
      step.send_to = rank + distance;
      step.send_count = elements;
      out.push_back(step);
    } else if (rank >= distance && rank < 2 * distance) {
      step.receive_from = rank - distance;
      step.receive_count = elements;
      out.push_back(step);
    }
  }
  return out;
}

}  // namespace ddpsim::collective
