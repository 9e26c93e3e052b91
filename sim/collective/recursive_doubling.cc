// Recursive doubling (all-reduce): log2 p rounds, each with everything, p = 2^k <= n; fold before
// and after where n > p.
//   T = (k + (n > p ? 2 : 0)) (a + S/B) + (k + (n > p ? 1 : 0)) r(S)
// Open MPI 4.1 coll/base ompi_coll_base_allreduce_intra_recursivedoubling; MPICH
// allreduce_intra_recursive_doubling.
#include "sim/collective/blocks.h"

namespace ddpsim::collective {

BlockRounds recursive_doubling(int n) {
  BlockRounds b{n, 1, {}};
  Fold f = fold(n, 1);
  if (!f.in.empty()) b.rounds.push_back({f.in, true});
  auto p = static_cast<int>(f.stays.size());
  for (int distance = 1; distance < p; distance *= 2) {
    BlockRound round{{}, true};
    for (int k = 0; k < p; ++k) round.messages.push_back({f.stays[k], f.stays[k ^ distance], 0, 1});
    b.rounds.push_back(std::move(round));
  }
  if (!f.out.empty()) b.rounds.push_back({f.out, false});
  return b;
}

}  // namespace ddpsim::collective
