// NCCL's names, and arrays that are indexed by them.
#pragma once

#include <array>
#include <cstdint>

#include "sim/model/algorithm.h"
#include "sim/units/by.h"

namespace ddpsim::nccl {

enum class Algorithm : std::uint8_t {
  Tree,
  Ring,
  CollnetDirect,
  CollnetChain,
  Nvls,
  NvlsTree,
  Pat
};
enum class Protocol : std::uint8_t { Ll, Ll128, Simple };
// What the search makes, by NCCL's ids.
enum class GraphId : std::uint8_t { Ring, Tree, CollnetChain, Nvls, CollnetDirect };
// Of a graph's channels, by NCCL's numbers (NCCL_TOPO_PATTERN_*).
enum class Pattern : std::uint8_t {
  None,
  BalancedTree,  // a parent's first child enters at its chain's second GPU
  SplitTree,     // is not searched for
  PlainTree,
  Ring,
  Nvls,
  CollnetDirect
};

// What NCCL has besides rings (fabric/stages.h).
enum class Pipeline : std::uint8_t { Tree, Nvls, NvlsTree, CollnetDirect, CollnetChain, Pat };

// How many there are. Of operations: those that NCCL chooses for, the first of ddpsim's.
template <class Name>
inline constexpr std::size_t kCount = 0;
template <>
inline constexpr std::size_t kCount<Operation> = 5;
template <>
inline constexpr std::size_t kCount<Algorithm> = 7;
template <>
inline constexpr std::size_t kCount<Protocol> = 3;
template <>
inline constexpr std::size_t kCount<GraphId> = 5;
template <>
inline constexpr std::size_t kCount<Pattern> = 7;
template <>
inline constexpr std::size_t kCount<Pipeline> = 6;

// All of them, in order.
template <class Name>
inline constexpr auto kAll = all_of<Name, kCount<Name>>();

// One value for each name.
template <class Name, class T>
using By = ddpsim::By<Name, T, kCount<Name>>;

const char* name_of(Algorithm a);  // "ring", as NCCL_ALGO takes it, in lower case
const char* name_of(Protocol p);   // "ll", "ll128", "simple"
const char* name_of(GraphId g);    // "ring", "tree", "collnet_chain", "nvls", "collnet_direct"
// NCCL's names for the five operations: "allreduce", "reducescatter", ...
const char* nccl_word(Operation o);
constexpr bool is_chosen_for(Operation o) {
  return static_cast<std::size_t>(o) < kCount<Operation>;
}

constexpr bool is_nvls(Algorithm a) {
  return a == Algorithm::Nvls || a == Algorithm::NvlsTree;
}
constexpr bool is_collnet(Algorithm a) {
  return a == Algorithm::CollnetDirect || a == Algorithm::CollnetChain;
}
// REQUIRES: not Ring.
constexpr Pipeline pipeline_of(Algorithm a) {
  switch (a) {
    case Algorithm::Nvls:
      return Pipeline::Nvls;
    case Algorithm::NvlsTree:
      return Pipeline::NvlsTree;
    case Algorithm::CollnetDirect:
      return Pipeline::CollnetDirect;
    case Algorithm::CollnetChain:
      return Pipeline::CollnetChain;
    case Algorithm::Pat:
      return Pipeline::Pat;
    case Algorithm::Ring:
    case Algorithm::Tree:
      break;
  }
  return Pipeline::Tree;
}
// Whose channels an algorithm uses.
constexpr GraphId graph_of(Algorithm a) {
  switch (a) {
    case Algorithm::Tree:
      return GraphId::Tree;
    case Algorithm::CollnetChain:
      return GraphId::CollnetChain;
    case Algorithm::Nvls:
    case Algorithm::NvlsTree:
      return GraphId::Nvls;
    case Algorithm::CollnetDirect:
      return GraphId::CollnetDirect;
    case Algorithm::Ring:
    case Algorithm::Pat:
      break;
  }
  return GraphId::Ring;
}

}  // namespace ddpsim::nccl
