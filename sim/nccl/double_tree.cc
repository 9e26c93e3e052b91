#include "sim/nccl/double_tree.h"

#include "sim/nccl/nth.h"

namespace ddpsim::nccl {
namespace {

int in_order_parent(int n, int rank) {
  if (rank == 0) return -1;
  int bit = rank & -rank;
  int up = (rank ^ bit) | (bit << 1);
  return up < n ? up : rank ^ bit;
}

// Where position p of n stands in the first tree's order: the second is its mirror (n even) or its
// shift by one (n odd).
int place_in_tree(int n, int tree, int p) {
  return tree == 0 ? p : n % 2 == 1 ? (p + n - 1) % n : n - 1 - p;
}

}  // namespace

std::vector<int> double_tree_parents(int n, int tree) {
  std::vector<int> out;
  for (int p = 0; p < n; ++p) {
    int up = in_order_parent(n, place_in_tree(n, tree, p));
    out.push_back(tree == 0 || up < 0 ? up : n % 2 == 1 ? (up + 1) % n : n - 1 - up);
  }
  return out;
}

std::vector<std::vector<int>> children_of(const std::vector<int>& parents) {
  std::vector<std::vector<int>> out(parents.size());
  for (std::size_t p = 0; p < parents.size(); ++p)
    if (parents[p] >= 0) nth(out, parents[p]).push_back(static_cast<int>(p));
  return out;
}

std::vector<int> double_tree_children(int n, int tree) {
  std::vector<int> parents = double_tree_parents(n, tree);
  std::vector<int> out;
  for (int p = 0; p < n; ++p) {
    int up = nth(parents, p);
    out.push_back(up >= 0 && place_in_tree(n, tree, p) > place_in_tree(n, tree, up) ? 1 : 0);
  }
  return out;
}

}  // namespace ddpsim::nccl
