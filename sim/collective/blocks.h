// How an algorithm's file says what it does: rounds of messages over ranges of equal blocks, by
// position. Its steps follow, and (where all rounds are listed) its closed form.
#pragma once

#include "sim/collective/round.h"

namespace ddpsim::collective {

// Blocks [lo, hi) of the sender's buffer.
struct BlockMessage {
  int from = 0;
  int to = 0;
  std::int64_t lo = 0;
  std::int64_t hi = 0;
};
struct BlockRound {
  std::vector<BlockMessage> messages;
  bool reduce = false;
};
struct BlockRounds {
  int positions = 0;
  std::int64_t blocks = 1;  // of equal size (within one element) that the buffer is cut into
  std::vector<BlockRound> rounds;
};

// Every position takes part in the rounds in which it has a message; one lane.
Schedule steps_of(const BlockRounds& b, std::int64_t elements);
Rounds rounds_of(const BlockRounds& b);

// The largest power of two that is at most n.
int power_below(int n);
// Ranks that are no power of two: with rem = n - power_below(n), position 2i (i < rem) gives all it
// has to 2i + 1 before, and gets the result after. MPICH and Open MPI: mpi/allreduce ("fold"). Who
// stays has the numbers 0 .. power_below(n) - 1: `stays[k]` is the position.
struct Fold {
  std::vector<int> stays;
  std::vector<BlockMessage> in;  // all blocks, to be summed
  std::vector<BlockMessage> out;
};
Fold fold(int n, std::int64_t blocks);

// One file each. REQUIRES: performs(...), n >= 2.
BlockRounds recursive_doubling(int n);
BlockRounds halving_doubling(Operation o, int n);
BlockRounds bcube(int n);
BlockRounds direct(Operation o, int n);
BlockRounds binomial_tree(Operation o, int n);
// Gloo's broadcast: round k are all messages of those who are k steps from the root.
BlockRounds binomial_tree_at_once(int n);
// Open MPI's: open_mpi_steps.cc. tree_broadcast: Chain, BinaryTree or Knomial; scatter_all_gather:
// a broadcast, n a power of two.
BlockRounds basic_linear(Operation o, int n);
BlockRounds nonoverlapping(int n);
BlockRounds rabenseifner(int n);
BlockRounds tree_broadcast(Algorithm a, int n);
BlockRounds scatter_all_gather(int n);
// Halving over numbers 0 .. p-1 at positions `at`, p a power of two and as many blocks: each keeps
// the half that its bit names and sends the other, the nearest number first or the farthest. And
// the same backwards: what was sent comes back, summed or whole.
std::vector<BlockRound> halve(const std::vector<int>& at, bool nearest_first);
void gather(const std::vector<BlockRound>& halves, std::vector<BlockRound>& rounds);
// Gloo's group sizes (gloo/allreduce.cc, bcube): the factors 2 of n, then what is left. 12 -> 2, 2,
// 3.
std::vector<int> bcube_groups(int n);

// `chunk`: elements of a piece of the chains (Broadcast, Reduce).
Schedule ring_steps(Operation o, int n, std::int64_t elements, std::int64_t chunk);
Rounds ring_rounds(Operation o, int n);
// Appends a ring over `members` on elements [begin, end) of everybody's buffer: reduce-scatter
// (`reduce`; member i ends with part i) or all-gather.
void add_ring_pass(Schedule& s, const std::vector<int>& members, std::int64_t begin,
                   std::int64_t end, bool reduce);

// `group`: of each position.
Schedule two_level_steps(const std::vector<int>& group, std::int64_t elements);
Rounds two_level_rounds(const std::vector<int>& group);

Schedule double_binary_tree_steps(Operation o, int n, std::int64_t elements, std::int64_t chunk);
Rounds double_binary_tree_rounds(Operation o, int n);

}  // namespace ddpsim::collective
