// NCCL's double binary tree. Source: NCCL src/graph/trees.cc.
#pragma once

#include <vector>

namespace ddpsim::nccl {

// Parent of each of n positions, -1 = the root. Tree 0 is NCCL's in-order B-tree, tree 1 its mirror
// (n even) or its shift by one (n odd).
std::vector<int> double_tree_parents(int n, int tree);
std::vector<std::vector<int>> children_of(const std::vector<int>& parents);
// Which of its parent's two children each position is (ncclGetBtree): 0 if it stands before its
// parent in the tree's order, else 1; of the root: 0.
std::vector<int> double_tree_children(int n, int tree);

}  // namespace ddpsim::nccl
