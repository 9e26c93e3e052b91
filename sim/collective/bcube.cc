// Bcube, base 2, of Gloo: groups of g(1), g(2), ... (product n); in step i a rank exchanges parts
// of what it still owns with the g(i) - 1 others of its group and sums them, then the same
// backwards without sums. D(i) = g(1) ... g(i-1):
//   T = 2 Σ (a + (g-1)/(g D) S/B) + (n-1)/n r(S)            a powers of two is halving-doubling
// Source: gloo/allreduce.cc (bcube), base 2.
#include "sim/collective/blocks.h"

namespace ddpsim::collective {

std::vector<int> bcube_groups(int n) {
  std::vector<int> out;
  while (n % 2 == 0) {
    out.push_back(2);
    n /= 2;
  }
  if (n > 1) out.push_back(n);
  return out;
}

BlockRounds bcube(int n) {
  BlockRounds b{n, n, {}};
  std::vector<std::pair<std::int64_t, std::int64_t>> owned(n, {0, n});
  int distance = 1;
  for (int g : bcube_groups(n)) {
    BlockRound round{{}, true};
    auto part = [&](int p, int i) {
      return owned[p].first + (owned[p].second - owned[p].first) / g * i;
    };
    for (int p = 0; p < n; ++p) {
      int digit = p / distance % g;
      for (int i = 1; i < g; ++i) {
        int other = (digit + i) % g;
        round.messages.push_back(
            {p, p + (other - digit) * distance, part(p, other), part(p, other + 1)});
      }
    }
    for (int p = 0; p < n; ++p) {
      int digit = p / distance % g;
      owned[p] = {part(p, digit), part(p, digit + 1)};
    }
    distance *= g;
    b.rounds.push_back(std::move(round));
  }
  for (std::size_t k = b.rounds.size(); k-- > 0;) {
    BlockRound back;
    for (const BlockMessage& m : b.rounds[k].messages)
      back.messages.push_back({m.to, m.from, m.lo, m.hi});
    b.rounds.push_back(std::move(back));
  }
  return b;
}

}  // namespace ddpsim::collective
