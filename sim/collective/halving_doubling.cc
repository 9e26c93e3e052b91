// Halving-doubling (Rabenseifner), p = 2^k <= n: reduce-scatter by halves, all-gather by doubles;
// fold before and after where n > p.
//   T = 2 k a + 2 (p-1)/p S/B + (p-1)/p r(S)    (+ 2 (a + S/B) + r(S) where n > p)
// All-reduce: the largest messages go to the nearest position (distance 1 first), as Open MPI 4.1
// coll/base redscat_allgather and MPICH have it. Reduce-scatter and all-gather alone: the farthest
// first (last), so that block i ends (begins) at position i.
#include "sim/collective/blocks.h"

namespace ddpsim::collective {
std::vector<BlockRound> halve(const std::vector<int>& at, bool nearest_first) {
  auto p = static_cast<int>(at.size());
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges(at.size(), {0, p});  // what each keeps
  std::vector<BlockRound> out;
  for (int done = 1; done < p; done *= 2) {
    int distance = nearest_first ? done : p / (2 * done);
    BlockRound round{{}, true};
    for (int k = 0; k < p; ++k) {
      auto [lo, hi] = ranges[k];
      std::int64_t mid = (lo + hi) / 2;
      bool upper = (k & distance) != 0;
      round.messages.push_back({at[k], at[k ^ distance], upper ? lo : mid, upper ? mid : hi});
    }
    for (int k = 0; k < p; ++k) {
      auto& [lo, hi] = ranges[k];
      ((k & distance) != 0 ? lo : hi) = (lo + hi) / 2;
    }
    out.push_back(std::move(round));
  }
  return out;
}

void gather(const std::vector<BlockRound>& halves, std::vector<BlockRound>& rounds) {
  for (auto h = halves.rbegin(); h != halves.rend(); ++h) {
    BlockRound round;
    for (const BlockMessage& m : h->messages) round.messages.push_back({m.to, m.from, m.lo, m.hi});
    rounds.push_back(std::move(round));
  }
}

BlockRounds halving_doubling(Operation o, int n) {
  Fold f = fold(n, power_below(n));
  BlockRounds b{n, power_below(n), {}};
  std::vector<BlockRound> halves = halve(f.stays, o == Operation::AllReduce);
  if (!f.in.empty()) b.rounds.push_back({f.in, true});
  if (o != Operation::AllGather) b.rounds.insert(b.rounds.end(), halves.begin(), halves.end());
  if (o != Operation::ReduceScatter) gather(halves, b.rounds);
  if (!f.out.empty()) b.rounds.push_back({f.out, false});
  return b;
}

}  // namespace ddpsim::collective
