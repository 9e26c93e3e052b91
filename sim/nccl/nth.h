// Ranks, nodes, GPUs and NICs are ints; places of a vector are not.
#pragma once

#include <cstddef>

namespace ddpsim::nccl {

template <class List>
constexpr decltype(auto) nth(List& list, int i) {
  return list[i];
}

}  // namespace ddpsim::nccl
