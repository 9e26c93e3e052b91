// Which blocks FSDP gathers together: the partition of a list of blocks into units that makes the
// step shortest, where collectives follow one another and computation hides them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/units/units.h"

namespace ddpsim::predict {

using UnitPrice = std::function<Duration(std::int64_t bytes)>;

// Blocks in order of forward; `before` and `after`: the root's computation before the first and
// after the last block.
struct UnitProblem {
  struct Pass {
    Duration before;
    std::vector<Duration> blocks;
    Duration after;
  };
  Pass forward;
  Pass backward;
  std::vector<std::int64_t> gathered;   // bytes of a block's weights, for forward
  std::vector<std::int64_t> again;      // the same for backward; 0 = they were kept
  std::vector<std::int64_t> scattered;  // of its gradients
  std::vector<bool> joins;              // whether a unit may hold this block and the next
  UnitPrice gather;                     // of so many bytes, with the links to itself
  UnitPrice gather_again;
  UnitPrice scatter;
};

// Blocks of each unit; and what the model says of the step between the root's gathering and its
// reduction.
struct UnitPartition {
  std::vector<std::int64_t> blocks;
  Duration model;
};

// Of how many blocks these are asked: their time grows with the fourth power.
inline constexpr std::size_t kMostBlocks = 96;

// FSDP2's order. In forward a unit is gathered after the one before it, and once the second before
// it computes (its buffer is free then), and the last one at once again; in backward a gathering
// follows, on the same communicator, the reduction of the second unit after it:
//
//   forward   A(u) = max(A(u - 1), S(u - 2)) + g(u)         gathered
//             S(u) = max(S(u - 1) + f(u - 1), A(u))         computes, S(1) = max(before, A(1))
//             S(k) + max(f(k) + after + after of backward, g'(k))
//   backward  sum over u of max(b(u), s(u + 1) + g'(u - 1)) + max(before, s(1))
//
// The best partition with units of at most `most` blocks, exactly. REQUIRES: at least one block,
// lists of one length, most >= 1.
UnitPartition best_units(const UnitProblem& problem, std::size_t most);

}  // namespace ddpsim::predict
