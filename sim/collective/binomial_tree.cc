// Binomial tree: broadcast from position 0, and the reduce that is the same backwards. Everything
// in each of d = ceil(log2 n) rounds.
//   T = d (a + S/B) (+ d r(S), the reduce)
// Round k of the broadcast: v < 2^k sends to v + 2^k (Open MPI "binomial").
// Gloo has the same tree, and sends to all children at once: round k are all messages of those who
// are k steps from the root (gloo/broadcast.cc).
//   T = a + d a + d (d + 1) / 2 S/B, n = 2^d; the first a is the receivers' go-ahead
#include <bit>

#include "sim/collective/blocks.h"
#include "sim/collective/communicator.h"

namespace ddpsim::collective {

std::vector<std::pair<int, int>> tree_round(int ranks, int round) {
  std::vector<std::pair<int, int>> out;
  int distance = 1 << round;
  for (int v = 0; v < distance && v + distance < ranks; ++v) out.emplace_back(v, v + distance);
  return out;
}

BlockRounds binomial_tree(Operation o, int n) {
  BlockRounds b{n, 1, {}};
  bool reduce = o == Operation::Reduce;
  int rounds = 0;
  while ((1 << rounds) < n) ++rounds;
  for (int k = 0; k < rounds; ++k) {
    BlockRound round{{}, reduce};
    for (auto [from, to] : tree_round(n, reduce ? rounds - 1 - k : k))
      round.messages.push_back(reduce ? BlockMessage{to, from, 0, 1}
                                      : BlockMessage{from, to, 0, 1});
    b.rounds.push_back(std::move(round));
  }
  return b;
}

BlockRounds binomial_tree_at_once(int n) {
  BlockRounds b{n, 1, {}};
  for (int distance = 1; distance < n; distance *= 2) b.rounds.emplace_back();
  for (int v = 0; v < n; ++v)
    for (int child : tree_children(n, v))
      b.rounds[std::popcount(static_cast<unsigned>(v))].messages.push_back({v, child, 0, 1});
  return b;
}

std::vector<int> tree_children(int ranks, int v) {
  std::vector<int> out;
  for (int distance = 1; v + distance < ranks; distance *= 2)
    if (distance > v) out.push_back(v + distance);
  return out;
}

}  // namespace ddpsim::collective
