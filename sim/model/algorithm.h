// What a collective does and by which algorithm. A plan names algorithms; sim/collective has their
// steps and prices.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/units/by.h"

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

inline constexpr By<Operation, const char*, 9> kOperationNames{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "all_to_all", "send_recv",      "push",       "pull"};
constexpr const auto& names_of(Operation) {
  return kOperationNames;
}
inline constexpr By<Algorithm, const char*, 21> kAlgorithmNames{"ring",
                                                                "double_binary_tree",
                                                                "recursive_doubling",
                                                                "halving_doubling",
                                                                "bcube",
                                                                "hierarchical",
                                                                "torus2d",
                                                                "direct",
                                                                "binomial_tree",
                                                                "nvls",
                                                                "nvls_tree",
                                                                "collnet_direct",
                                                                "collnet_chain",
                                                                "pat",
                                                                "basic_linear",
                                                                "nonoverlapping",
                                                                "rabenseifner",
                                                                "chain",
                                                                "binary_tree",
                                                                "knomial",
                                                                "scatter_allgather"};
constexpr const auto& names_of(Algorithm) {
  return kAlgorithmNames;
}
std::optional<Operation> parse_operation(std::string_view name);
std::optional<Algorithm> parse_algorithm(std::string_view name);

}  // namespace ddpsim
