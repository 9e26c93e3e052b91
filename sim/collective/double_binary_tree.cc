// Double binary tree: two trees, each with half of the bytes, in which a rank is an inner node at
// most once; pipelined in pieces of c bytes per tree.
//   all-reduce  four lanes: up and down each tree, the root's way down waits for its way up. A
//               piece crosses a rank's link 2 (children) + 1 (parent) + 1 (the leaf's, in the other
//               tree) times in either direction:
//                 T = fill + (m - 1) period,  m = ceil(S / 2c),  period = max(4 c/B, a + 2 c/B +
//                   r(2c))
//                 fill = along the slowest way up and down: Σ of (a + k c/B + r(k c)), k = children
//                   that are ready at once, + Σ of (a + children c/B)
//   broadcast   two trees over everybody but the root, which feeds both (Sanders, Speck, Traeff
//               2009); reduce: the same backwards
// Trees: NCCL src/graph/trees.cc ncclGetBtree and ncclGetDtree, over ranks instead of nodes.
#include <algorithm>

#include "sim/collective/blocks.h"
#include "sim/nccl/double_tree.h"

namespace ddpsim::collective {
namespace {

using nccl::children_of;
using nccl::double_tree_parents;

// One of the trees as an operation sees it: parents by position (-1 = the root).
std::vector<int> parents_of(Operation o, int n, int tree) {
  if (o == Operation::AllReduce) return double_tree_parents(n, tree);
  std::vector<int> out{-1};
  for (int up : double_tree_parents(n - 1, tree))
    out.push_back(up + 1);  // the tree's root hangs under position 0
  return out;
}

// Step j takes piece j from `from` and hands piece j - 1 on to `to` (piece j, if it takes none).
std::vector<Step> relay(const std::vector<int>& from, const std::vector<int>& to,
                        std::int64_t begin, std::int64_t end, std::int64_t pieces, bool reduce) {
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

// The rounds that the first piece takes one after another on its slowest way, and how long that is
// if latency and piece take 1 each.
struct Way {
  int length = 0;
  std::vector<Round> rounds;
};

// Until `p` has the sum of its subtree. Children that are ready at once share p's link; one that is
// ready before them has been there already.
Way rise(const std::vector<std::vector<int>>& children, int p) {
  Way out;
  Round last{{}, 1, true};
  for (int c : children[p]) {
    Way w = rise(children, c);
    if (last.transfers.empty() || w.length > out.length) {
      last.transfers.clear();
      out = std::move(w);
    } else if (w.length < out.length) {
      continue;
    }
    last.transfers.push_back({c, p, 1});
  }
  if (last.transfers.empty()) return out;
  out.length += 1 + static_cast<int>(last.transfers.size());
  out.rounds.push_back(std::move(last));
  return out;
}

// From `p` to its farthest descendant.
Way fall(const std::vector<std::vector<int>>& children, int p) {
  Way out;
  Round first;
  for (int c : children[p]) {
    Way w = fall(children, c);
    if (first.transfers.empty() || w.length > out.length) out = std::move(w);
    first.transfers.push_back({p, c, 1});
  }
  if (first.transfers.empty()) return out;
  out.length += 1 + static_cast<int>(first.transfers.size());
  out.rounds.insert(out.rounds.begin(), std::move(first));
  return out;
}

}  // namespace

Schedule double_binary_tree_steps(Operation o, int n, std::int64_t elements, std::int64_t chunk) {
  Schedule s;
  s.ranks.resize(n);
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
      if (o != Operation::Broadcast)
        lanes.push_back(relay(children[p], parent, begin, end, pieces, true));
      if (o != Operation::Reduce)
        lanes.push_back(relay(parent, children[p], begin, end, pieces, false));
      if (o != Operation::AllReduce || !parent.empty()) continue;
      for (int j = 0; j < std::ssize(lanes.back()); ++j) {
        lanes.back()[j].after_lane = static_cast<int>(lanes.size()) - 2;
        lanes.back()[j].after_step = j;
      }
    }
  }
  return s;
}

Rounds double_binary_tree_rounds(Operation o, int n) {
  Rounds out;
  out.pipelined = true;
  out.lanes = 2;
  out.cycle.sums = o != Operation::Broadcast;
  std::vector<Way> ways;
  for (int tree = 0; tree < 2; ++tree) {
    std::vector<int> parents = parents_of(o, n, tree);
    auto children = children_of(parents);
    for (int p = 0; p < n; ++p) {
      int parent = parents[p];
      if (parent < 0) continue;
      Transfer up{p, parent, 1};
      Transfer down{parent, p, 1};
      if (o != Operation::Broadcast) out.streamed.push_back(up);
      if (o != Operation::Reduce) out.streamed.push_back(down);
      if (tree == 0) out.cycle.transfers.push_back(o == Operation::Broadcast ? down : up);
    }
    auto root = static_cast<int>(std::find(parents.begin(), parents.end(), -1) - parents.begin());
    Way way;
    if (o != Operation::Broadcast) way = rise(children, root);
    if (o != Operation::Reduce) {
      Way down = fall(children, root);
      way.length += down.length;
      way.rounds.insert(way.rounds.end(), down.rounds.begin(), down.rounds.end());
    }
    ways.push_back(std::move(way));
  }
  bool first = ways[0].length >= ways[1].length;
  Way& longer = ways[first ? 0 : 1];
  Way& other = ways[first ? 1 : 0];
  // The common root feeds both trees at once; and both trees may reach it at once.
  if (o == Operation::Broadcast)
    longer.rounds.front().transfers.push_back(other.rounds.front().transfers.front());
  if (o == Operation::Reduce && longer.length == other.length)
    longer.rounds.back().transfers.push_back(other.rounds.back().transfers.front());
  out.rounds = std::move(longer.rounds);
  return out;
}

}  // namespace ddpsim::collective
