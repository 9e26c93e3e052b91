// Double binary tree: two trees, each with half of the bytes, in which a rank is an inner node at most once; pipelined in pieces of c bytes per tree.
//   all-reduce  four lanes: up and down each tree, the root's way down waits for its way up. A piece crosses a rank's link 2 (children) + 1 (parent) + 1 (the
//               leaf's, in the other tree) times in either direction:
//                 T = fill + (m - 1) period,  m = ceil(S / 2c),  period = max(4 c/B, a + 2 c/B + r(2c))
//                 fill = Σ over levels up of (a + children c/B + r(children c)) + Σ over levels down of (a + children c/B)
//   broadcast   two trees over everybody but the root, which feeds both (Sanders, Speck, Traeff 2009); reduce: the same backwards
// Trees: NCCL src/graph/trees.cc ncclGetBtree and ncclGetDtree, over ranks instead of nodes.
#include <algorithm>

#include "sim/collective/blocks.h"

namespace ddpsim::collective {
namespace {

int in_order_parent(int n, int rank) {
  if (rank == 0) return -1;
  int bit = rank & -rank;
  int up = (rank ^ bit) | (bit << 1);
  return up < n ? up : rank ^ bit;
}

// One of the trees as an operation sees it: parents by position (-1 = the root).
std::vector<int> parents_of(Operation o, int n, int tree) {
  if (o == Operation::AllReduce) return double_tree_parents(n, tree);
  std::vector<int> out{-1};
  for (int up : double_tree_parents(n - 1, tree)) out.push_back(up + 1);  // the tree's root hangs under position 0
  return out;
}

std::vector<std::vector<int>> children_of(const std::vector<int>& parents) {
  std::vector<std::vector<int>> out(parents.size());
  for (std::size_t p = 0; p < parents.size(); ++p)
    if (parents[p] >= 0) out[static_cast<std::size_t>(parents[p])].push_back(static_cast<int>(p));
  return out;
}

// Step j takes piece j from `from` and hands piece j - 1 on to `to` (piece j, if it takes none).
std::vector<Step> relay(const std::vector<int>& from, const std::vector<int>& to, std::int64_t begin, std::int64_t end, std::int64_t pieces, bool reduce) {
  std::vector<Step> out;
  std::int64_t late = from.empty() ? 0 : 1;
  auto piece = [&](int peer, std::int64_t i) {
    std::int64_t at = chunk_begin(end - begin, pieces, i);
    return Message{peer, begin + at, chunk_begin(end - begin, pieces, i + 1) - at};
  };
  if (from.empty() && to.empty()) return out;
  for (std::int64_t j = 0; j < pieces + (to.empty() ? 0 : late); ++j) {
    Step step;
    step.reduce = reduce;
    if (j < pieces)
      for (int peer : from) step.receives.push_back(piece(peer, j));
    if (j >= late)
      for (int peer : to) step.sends.push_back(piece(peer, j - late));
    out.push_back(std::move(step));
  }
  return out;
}

int depth_of(const std::vector<int>& parents, int p) {
  int d = 0;
  for (; parents[static_cast<std::size_t>(p)] >= 0; p = parents[static_cast<std::size_t>(p)]) ++d;
  return d;
}

int height_of(const std::vector<std::vector<int>>& children, int p) {
  int h = 0;
  for (int c : children[static_cast<std::size_t>(p)]) h = std::max(h, 1 + height_of(children, c));
  return h;
}

}  // namespace

std::vector<int> double_tree_parents(int n, int tree) {
  std::vector<int> out;
  for (int p = 0; p < n; ++p) {
    bool shift = n % 2 == 1;
    int at = tree == 0 ? p : shift ? (p + n - 1) % n : n - 1 - p;
    int up = in_order_parent(n, at);
    out.push_back(tree == 0 || up < 0 ? up : shift ? (up + 1) % n : n - 1 - up);
  }
  return out;
}

Schedule double_binary_tree_steps(Operation o, int n, std::int64_t elements, std::int64_t chunk) {
  Schedule s;
  s.ranks.resize(static_cast<std::size_t>(n));
  for (int tree = 0; tree < 2; ++tree) {
    std::int64_t begin = chunk_begin(elements, 2, tree);
    std::int64_t end = chunk_begin(elements, 2, tree + 1);
    std::int64_t pieces = end == begin ? 0 : chunk > 0 ? (end - begin + chunk - 1) / chunk : 1;
    std::vector<int> parents = parents_of(o, n, tree);
    auto children = children_of(parents);
    for (std::size_t p = 0; p < s.ranks.size(); ++p) {
      std::vector<int> parent;
      if (parents[p] >= 0) parent.push_back(parents[p]);
      auto& lanes = s.ranks[p].lanes;
      if (o != Operation::Broadcast) lanes.push_back(relay(children[p], parent, begin, end, pieces, true));
      if (o != Operation::Reduce) lanes.push_back(relay(parent, children[p], begin, end, pieces, false));
      if (o != Operation::AllReduce || !parent.empty()) continue;
      for (std::size_t j = 0; j < lanes.back().size(); ++j) {
        lanes.back()[j].after_lane = static_cast<int>(lanes.size()) - 2;
        lanes.back()[j].after_step = static_cast<int>(j);
      }
    }
  }
  return s;
}

Rounds double_binary_tree_rounds(Operation o, int n) {
  Rounds out;
  out.pipelined = true;
  out.lanes = 2;
  std::vector<Round> up;
  std::vector<Round> down;
  auto add = [](std::vector<Round>& rounds, int level, Transfer t, bool sums) {
    while (static_cast<int>(rounds.size()) <= level) rounds.push_back({{}, 1, sums});
    rounds[static_cast<std::size_t>(level)].transfers.push_back(t);
  };
  out.cycle.sums = o != Operation::Broadcast;
  for (int tree = 0; tree < 2; ++tree) {
    std::vector<int> parents = parents_of(o, n, tree);
    auto children = children_of(parents);
    for (int p = 0; p < n; ++p) {
      int parent = parents[static_cast<std::size_t>(p)];
      if (parent < 0) continue;
      Transfer rise{p, parent, 1};
      Transfer fall{parent, p, 1};
      if (o != Operation::Broadcast) add(up, height_of(children, p), rise, true), out.streamed.push_back(rise);
      if (o != Operation::Reduce) add(down, depth_of(parents, parent), fall, false), out.streamed.push_back(fall);
      if (tree == 0) out.cycle.transfers.push_back(o == Operation::Broadcast ? fall : rise);
    }
  }
  out.rounds = std::move(up);
  out.rounds.insert(out.rounds.end(), down.begin(), down.end());
  return out;
}

}  // namespace ddpsim::collective
