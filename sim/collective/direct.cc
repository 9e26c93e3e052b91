// Direct: everybody to everybody, nothing passed on.
//   reduce-scatter, all-gather  one round, n-1 messages of S/n out of every rank:  a + (n-1)/n S/B
//                               (+ (n-1)/n r(S), the reduce-scatter)
//   all-reduce                  the one, then the other
//   all-to-all                  n-1 rounds of pairs; round s: to the s-th next, from the s-th
//                               before: (n-1) (a + S/(nB)); Open MPI, MPICH: "pairwise"
//   send/recv                   one round: everything to the next position: a + S/B
#include "sim/collective/blocks.h"

namespace ddpsim::collective {

BlockRounds direct(Operation o, int n) {
  BlockRounds b{n, n, {}};
  BlockRound scatter{{}, true};
  BlockRound gather;
  for (int p = 0; p < n; ++p)
    for (int i = 1; i < n; ++i) {
      int q = (p + i) % n;
      scatter.messages.push_back({p, q, q, q + 1});
      gather.messages.push_back({p, q, p, p + 1});
    }
  if (o == Operation::AllReduce || o == Operation::ReduceScatter) b.rounds.push_back(scatter);
  if (o == Operation::AllReduce || o == Operation::AllGather) b.rounds.push_back(gather);
  if (o == Operation::AllToAll)
    for (int i = 1; i < n; ++i) {
      BlockRound pairs;
      for (int p = 0; p < n; ++p)
        pairs.messages.push_back({p, (p + i) % n, (p + i) % n, (p + i) % n + 1});
      b.rounds.push_back(std::move(pairs));
    }
  if (o == Operation::SendRecv) {
    BlockRound shift;
    for (int p = 0; p < n; ++p) shift.messages.push_back({p, (p + 1) % n, 0, n});
    b.rounds.push_back(std::move(shift));
  }
  return b;
}

}  // namespace ddpsim::collective
