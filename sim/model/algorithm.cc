#include "sim/model/algorithm.h"

#include <array>

#include "sim/units/by.h"

namespace ddpsim {
namespace {

constexpr By<Operation, const char*, kOperations> kOperationNames{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "all_to_all", "send_recv",      "push",       "pull"};
constexpr By<Algorithm, const char*, kAlgorithms> kAlgorithmNames{"ring",
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

}  // namespace

const char* name_of(Operation o) {
  return kOperationNames[o];
}
const char* name_of(Algorithm a) {
  return kAlgorithmNames[a];
}
std::optional<Operation> parse_operation(std::string_view name) {
  return kOperationNames.find(name);
}
std::optional<Algorithm> parse_algorithm(std::string_view name) {
  return kAlgorithmNames.find(name);
}

}  // namespace ddpsim
