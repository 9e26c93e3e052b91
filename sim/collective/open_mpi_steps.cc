// What Open MPI's coll/base does besides rings, recursive doubling and the binomial tree.
//   rabenseifner       p = 2^k <= n: T = 2 k a + 2 (p-1)/p S/B + (p-1)/p r(S); n > p: halves are
//                      exchanged with the neighbour, summed, and the odd one's comes to the even
//                      one; afterwards the even one sends everything: + 3 a + 2 S/B + r(S/2)
//   basic linear       everybody sends to rank 0, which sums one after another and sends the result
//                      to everybody: T = 2 a + 2 (n-1) S/B + (n-1) r(S)
//   nonoverlapping     a reduce, then a broadcast. Here both along the binomial tree
//   chain, binary and k-nomial tree (radix 4)   broadcasts without segments: a rank that has
//                      everything sends to all its children at once; round k are the messages of
//                      those who are k steps from the root
//   scatter, all-gather   k rounds of halves down a binomial tree, k rounds of recursive doubling:
//                      T = 2 k a + 2 (n-1)/n S/B, n = 2^k
// Source: ompi/mca/coll/base/coll_base_{allreduce,reduce,bcast,topo}.c, v4.1.6 (v5.0.9: the same).
#include "sim/collective/blocks.h"

namespace ddpsim::collective {
namespace {

constexpr int kRadix = 4;  // coll_tuned_bcast_algorithm_knomial_radix

// Children of a rank in the order in which it sends to them. Binary tree: the k-th level has 2^k
// ranks, and child i of rank v of level k is v + (i + 1) 2^k.
std::vector<int> children(Algorithm a, int n, int v) {
  std::vector<int> out;
  auto add = [&](int child) {
    if (child < n) out.push_back(child);
  };
  if (a == Algorithm::Chain) add(v + 1);
  if (a == Algorithm::BinaryTree) {
    int level = 1;
    while (v >= 2 * level - 1) level *= 2;
    for (int i = 1; i <= 2; ++i) add(v + i * level);
  }
  if (a == Algorithm::Knomial)
    for (int mask = 1; mask < n && v % (mask * kRadix) == 0; mask *= kRadix)
      for (int i = 1; i < kRadix; ++i) add(v + i * mask);
  return out;
}

}  // namespace

BlockRounds basic_linear(Operation o, int n) {
  BlockRounds b{n, 1, {}};
  BlockRound in{{}, true};
  BlockRound out;
  for (int p = 1; p < n; ++p) {
    in.messages.push_back({p, 0, 0, 1});
    out.messages.push_back({0, p, 0, 1});
  }
  if (o == Operation::AllReduce) b.rounds.push_back(std::move(in));
  b.rounds.push_back(std::move(out));
  return b;
}

BlockRounds nonoverlapping(int n) {
  BlockRounds b = binomial_tree(Operation::Reduce, n);
  for (BlockRound& round : binomial_tree(Operation::Broadcast, n).rounds)
    b.rounds.push_back(std::move(round));
  return b;
}

BlockRounds rabenseifner(int n) {
  const int p = power_below(n);
  const int rem = n - p;
  BlockRounds b{n, p, {}};
  std::vector<int> stays;
  BlockRound exchange{{}, true};
  BlockRound other_half;
  BlockRound result;
  for (int i = 0; i < rem; ++i) {
    const int even = 2 * i;
    exchange.messages.push_back({even + 1, even, 0, p / 2});
    exchange.messages.push_back({even, even + 1, p / 2, p});
    other_half.messages.push_back({even + 1, even, p / 2, p});
    result.messages.push_back({even, even + 1, 0, p});
    stays.push_back(even);
  }
  for (int r = 2 * rem; r < n; ++r) stays.push_back(r);
  if (rem > 0) b.rounds = {exchange, other_half};
  const std::vector<BlockRound> halves = halve(stays, true);
  b.rounds.insert(b.rounds.end(), halves.begin(), halves.end());
  gather(halves, b.rounds);
  if (rem > 0) b.rounds.push_back(std::move(result));
  return b;
}

BlockRounds tree_broadcast(Algorithm a, int n) {
  BlockRounds b{n, 1, {}};
  for (std::vector<int> level{0}; !level.empty();) {
    BlockRound round;
    std::vector<int> next;
    for (int v : level)
      for (int child : children(a, n, v)) {
        round.messages.push_back({v, child, 0, 1});
        next.push_back(child);
      }
    if (!round.messages.empty()) b.rounds.push_back(std::move(round));
    level = std::move(next);
  }
  return b;
}

BlockRounds scatter_all_gather(int n) {
  BlockRounds b{n, n, {}};
  for (int distance = n / 2; distance > 0; distance /= 2) {
    BlockRound round;
    for (int v = 0; v < n; v += 2 * distance)
      round.messages.push_back({v, v + distance, v + distance, v + 2 * distance});
    b.rounds.push_back(std::move(round));
  }
  for (int distance = 1; distance < n; distance *= 2) {
    BlockRound round;
    for (int v = 0; v < n; ++v) {
      const int first = v / distance * distance;
      round.messages.push_back({v, v ^ distance, first, first + distance});
    }
    b.rounds.push_back(std::move(round));
  }
  return b;
}

}  // namespace ddpsim::collective
