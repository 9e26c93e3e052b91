// Binomial tree: broadcast from position 0, and the reduce that is the same backwards. Everything
// in each of d = ceil(log2 n) rounds.
//   T = d (a + S/B) (+ d r(S), the reduce)
// Round k of the broadcast: v < 2^k sends to v + 2^k (gloo/broadcast.cc; Open MPI "binomial").
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

}  // namespace ddpsim::collective
