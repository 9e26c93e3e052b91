// Two levels: G groups of g positions (hierarchical: hosts or racks; torus: rows).
//   even groups    reduce-scatter rings in the groups, all-reduce rings across them (member i of
//                  every group, on block i), all-gather rings in the groups: T = 2 (g-1) (a +
//                  S/(gB)) + 2 (G-1) (a + S/(gGB)) + (gG-1)/(gG) r(S)
//   uneven groups  binomial reduce to the first of each group, ring all-reduce among these on
//                  everything, binomial broadcast
// Horovod's NCCLHierarchicalAllreduce and Sony's 2D torus (Mikami et al. 2018) are the even form; a
// leader per host is Open MPI's coll/han and Gloo-era practice.
#include <algorithm>
#include <map>

#include "sim/collective/blocks.h"

namespace ddpsim::collective {
namespace {

// Positions of each group, groups in the order of their first position.
std::vector<std::vector<int>> members_of(const std::vector<int>& group) {
  std::vector<std::vector<int>> out;
  std::map<int, std::size_t> index;
  for (int p = 0; p < std::ssize(group); ++p) {
    auto [it, fresh] = index.emplace(group[p], out.size());
    if (fresh) out.emplace_back();
    out[it->second].push_back(p);
  }
  return out;
}

bool even(const std::vector<std::vector<int>>& groups) {
  return std::all_of(groups.begin(), groups.end(),
                     [&](const auto& g) { return g.size() == groups.front().size(); });
}

// Member i of every group.
std::vector<int> across(const std::vector<std::vector<int>>& groups, std::size_t i) {
  std::vector<int> out;
  for (const auto& g : groups) out.push_back(g[i]);
  return out;
}

// Binomial trees in all groups at once; the rounds of the deepest.
BlockRounds trees(const std::vector<std::vector<int>>& groups, int positions, Operation o) {
  BlockRounds out{positions, 1, {}};
  std::size_t rounds = 0;
  std::vector<BlockRounds> each;
  for (const auto& g : groups) {
    each.push_back(binomial_tree(o, static_cast<int>(g.size())));
    rounds = std::max(rounds, each.back().rounds.size());
  }
  out.rounds.assign(rounds, {{}, o == Operation::Reduce});
  for (std::size_t k = 0; k < groups.size(); ++k) {
    std::size_t first = o == Operation::Reduce ? rounds - each[k].rounds.size() : 0;
    for (std::size_t i = 0; i < each[k].rounds.size(); ++i)
      for (const BlockMessage& m : each[k].rounds[i].messages)
        out.rounds[first + i].messages.push_back({groups[k][m.from], groups[k][m.to], 0, 1});
  }
  return out;
}

void append(Schedule& s, const Schedule& more) {
  for (std::size_t r = 0; r < s.ranks.size(); ++r) {
    auto& to = s.ranks[r].lanes[0];
    const auto& from = more.ranks[r].lanes[0];
    to.insert(to.end(), from.begin(), from.end());
  }
}

void add_rings(Rounds& out, const std::vector<std::vector<int>>& rings, double share, bool sums) {
  Round round;
  round.sums = sums;
  round.times = static_cast<double>(rings.front().size()) - 1;
  if (round.times == 0) return;
  for (const auto& ring : rings)
    for (std::size_t i = 0; i < ring.size(); ++i)
      round.transfers.push_back(
          {ring[i], ring[(i + 1) % ring.size()], share / static_cast<double>(ring.size())});
  out.rounds.push_back(std::move(round));
}

}  // namespace

Schedule two_level_steps(const std::vector<int>& group, std::int64_t elements) {
  auto n = static_cast<int>(group.size());
  auto groups = members_of(group);
  Schedule s;
  s.ranks.resize(group.size());
  for (RankSteps& r : s.ranks) r.lanes.resize(1);
  if (!even(groups)) {
    std::vector<int> leaders = across(groups, 0);
    append(s, steps_of(trees(groups, n, Operation::Reduce), elements));
    add_ring_pass(s, leaders, 0, elements, true);
    add_ring_pass(s, leaders, 0, elements, false);
    append(s, steps_of(trees(groups, n, Operation::Broadcast), elements));
    return s;
  }
  std::int64_t g = groups.front().size();
  for (const auto& members : groups) add_ring_pass(s, members, 0, elements, true);
  for (std::int64_t i = 0; i < g; ++i) {
    std::vector<int> column = across(groups, i);
    for (bool reduce : {true, false})
      add_ring_pass(s, column, chunk_begin(elements, g, i), chunk_begin(elements, g, i + 1),
                    reduce);
  }
  for (const auto& members : groups) add_ring_pass(s, members, 0, elements, false);
  return s;
}

Rounds two_level_rounds(const std::vector<int>& group) {
  auto groups = members_of(group);
  auto n = static_cast<int>(group.size());
  Rounds out;
  auto append_rounds = [&](const Rounds& more) {
    out.rounds.insert(out.rounds.end(), more.rounds.begin(), more.rounds.end());
  };
  if (!even(groups)) {
    append_rounds(rounds_of(trees(groups, n, Operation::Reduce)));
    for (bool sums : {true, false}) add_rings(out, {across(groups, 0)}, 1, sums);
    append_rounds(rounds_of(trees(groups, n, Operation::Broadcast)));
    return out;
  }
  std::size_t g = groups.front().size();
  std::vector<std::vector<int>> columns;
  for (std::size_t i = 0; i < g; ++i) columns.push_back(across(groups, i));
  add_rings(out, groups, 1, true);
  for (bool sums : {true, false}) add_rings(out, columns, 1.0 / static_cast<double>(g), sums);
  add_rings(out, groups, 1, false);
  return out;
}

}  // namespace ddpsim::collective
