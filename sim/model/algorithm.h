// What a collective does and by which algorithm. A plan names algorithms; sim/collective has their
// steps and prices.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddpsim {

enum class Operation : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Reduce,
  AllToAll,
  SendRecv,
  Push,  // from each rank to a parameter server, and from it to each (RankGroups::server)
  Pull
};
inline constexpr int kOperations = 9;
// Those from Nvls to Pat are NCCL's on GPUs; the others are step lists (collective/schedule.h).
enum class Algorithm : std::uint8_t {
  Ring,
  DoubleBinaryTree,
  RecursiveDoubling,
  HalvingDoubling,
  Bcube,
  Hierarchical,
  Torus2d,
  Direct,
  BinomialTree,
  Nvls,
  NvlsTree,
  CollnetDirect,
  CollnetChain,
  Pat,
  BasicLinear,
  NonOverlapping,
  Rabenseifner,
  Chain,
  BinaryTree,
  Knomial,
  ScatterAllGather
};
inline constexpr int kAlgorithms = 21;

// "all_reduce"
const char* name_of(Operation o);
// "halving_doubling"
const char* name_of(Algorithm a);
std::optional<Operation> parse_operation(std::string_view name);
std::optional<Algorithm> parse_algorithm(std::string_view name);

}  // namespace ddpsim
