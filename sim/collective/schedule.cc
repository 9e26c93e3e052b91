#include "sim/collective/schedule.h"

#include "sim/collective/blocks.h"

namespace ddpsim::collective {
namespace {

std::vector<int> groups_of(Algorithm a, const Layout& layout) {
  std::vector<int> group = layout.group;
  if (a == Algorithm::Hierarchical) {
    group.resize(layout.ranks, 0);
    return group;
  }
  int rows = layout.rows > 0 ? layout.rows : torus_rows(layout.ranks);
  group.clear();
  for (int p = 0; p < layout.ranks; ++p) group.push_back(p / (layout.ranks / rows));
  return group;
}

BlockRounds blocks_of(Algorithm a, Operation o, int n) {
  switch (a) {
    case Algorithm::RecursiveDoubling:
      return recursive_doubling(n);
    case Algorithm::HalvingDoubling:
      return halving_doubling(o, n);
    case Algorithm::Bcube:
      return bcube(n);
    case Algorithm::Direct:
      return direct(o, n);
    case Algorithm::BasicLinear:
      return basic_linear(o, n);
    case Algorithm::NonOverlapping:
      return nonoverlapping(n);
    case Algorithm::Rabenseifner:
      return rabenseifner(n);
    case Algorithm::Chain:
    case Algorithm::BinaryTree:
    case Algorithm::Knomial:
      return tree_broadcast(a, n);
    case Algorithm::ScatterAllGather:
      return scatter_all_gather(n);
    default:
      return binomial_tree(o, n);
  }
}

// By position.
Schedule by_position(Algorithm a, Operation o, const Layout& layout, std::int64_t elements,
                     const ScheduleOptions& options) {
  int n = layout.ranks;
  switch (a) {
    case Algorithm::Ring:
      return ring_steps(o, n, elements, options.chunk);
    case Algorithm::DoubleBinaryTree:
      return double_binary_tree_steps(o, n, elements, options.chunk);
    case Algorithm::Hierarchical:
    case Algorithm::Torus2d:
      return two_level_steps(groups_of(a, layout), elements);
    default:
      return steps_of(blocks_of(a, o, n), elements);
  }
}

// What comes in goes to the second half of the buffer, by who sent it.
void receive_apart(Operation o, int n, std::int64_t elements, Schedule& s) {
  for (RankSteps& r : s.ranks)
    for (Step& step : r.lanes[0])
      for (Message& m : step.receives)
        m.offset = elements + (o == Operation::AllToAll ? chunk_begin(elements, n, m.peer) : 0);
}

}  // namespace

bool performs(Algorithm a, Operation o, int ranks) {
  bool two_halves = o == Operation::ReduceScatter || o == Operation::AllGather;
  bool rooted = o == Operation::Broadcast || o == Operation::Reduce;
  switch (a) {
    case Algorithm::Ring:
      return o == Operation::AllReduce || two_halves || rooted;
    case Algorithm::DoubleBinaryTree:
      return o == Operation::AllReduce || rooted;
    case Algorithm::HalvingDoubling:
      return o == Operation::AllReduce || (two_halves && (ranks & (ranks - 1)) == 0);
    case Algorithm::RecursiveDoubling:
    case Algorithm::Bcube:
    case Algorithm::Hierarchical:
    case Algorithm::Torus2d:
      return o == Operation::AllReduce;
    case Algorithm::Direct:
      return !rooted && o != Operation::Push && o != Operation::Pull;
    case Algorithm::BinomialTree:
      return rooted;
    case Algorithm::BasicLinear:
      return o == Operation::AllReduce || o == Operation::Broadcast;
    case Algorithm::NonOverlapping:
    case Algorithm::Rabenseifner:
      return o == Operation::AllReduce;
    case Algorithm::Chain:
    case Algorithm::BinaryTree:
    case Algorithm::Knomial:
      return o == Operation::Broadcast;
    case Algorithm::ScatterAllGather:
      return o == Operation::Broadcast && (ranks & (ranks - 1)) == 0;
    default:
      return false;
  }
}

int torus_rows(int n) {
  int rows = 1;
  for (int r = 2; r * r <= n; ++r)
    if (n % r == 0) rows = r;
  return rows;
}

std::int64_t buffer_elements(Operation o, std::int64_t elements) {
  return o == Operation::AllToAll || o == Operation::SendRecv ? 2 * elements : elements;
}

Schedule make_schedule(Algorithm a, Operation o, const Layout& layout, std::int64_t elements,
                       const ScheduleOptions& options) {
  Schedule s;
  std::size_t n = layout.ranks;
  s.ranks.resize(n);
  if (n < 2 || elements == 0) return s;
  Schedule at = by_position(a, o, layout, elements, options);
  if (o == Operation::AllToAll || o == Operation::SendRecv)
    receive_apart(o, layout.ranks, elements, at);
  if (layout.order.empty()) return at;
  for (std::size_t p = 0; p < n; ++p) {
    for (auto& lane : at.ranks[p].lanes)
      for (Step& step : lane)
        for (auto* list : {&step.sends, &step.receives})
          for (Message& m : *list) m.peer = layout.order[m.peer];
    s.ranks[layout.order[p]] = std::move(at.ranks[p]);
  }
  return s;
}

Rounds make_rounds(Algorithm a, Operation o, const Layout& layout) {
  switch (a) {
    case Algorithm::Ring:
      return ring_rounds(o, layout.ranks);
    case Algorithm::DoubleBinaryTree:
      return double_binary_tree_rounds(o, layout.ranks);
    case Algorithm::Hierarchical:
    case Algorithm::Torus2d:
      return two_level_rounds(groups_of(a, layout));
    default:
      return rounds_of(blocks_of(a, o, layout.ranks));
  }
}

}  // namespace ddpsim::collective
