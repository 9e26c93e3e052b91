#include "sim/model/algorithm.h"

#include <array>

namespace ddpsim {
namespace {

constexpr std::array<const char*, kOperations> kOperationNames{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "all_to_all", "send_recv",      "push",       "pull"};
constexpr std::array<const char*, kAlgorithms> kAlgorithmNames{"ring",
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

template <class E, std::size_t N>
std::optional<E> parse(const std::array<const char*, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace

const char* name_of(Operation o) {
  return kOperationNames[static_cast<std::size_t>(o)];
}
const char* name_of(Algorithm a) {
  return kAlgorithmNames[static_cast<std::size_t>(a)];
}
std::optional<Operation> parse_operation(std::string_view name) {
  return parse<Operation>(kOperationNames, name);
}
std::optional<Algorithm> parse_algorithm(std::string_view name) {
  return parse<Algorithm>(kAlgorithmNames, name);
}

}  // namespace ddpsim
