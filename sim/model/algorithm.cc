#include "sim/model/algorithm.h"

namespace ddpsim {

std::optional<Operation> parse_operation(std::string_view name) {
  return kOperationNames.find(name);
}
std::optional<Algorithm> parse_algorithm(std::string_view name) {
  return kAlgorithmNames.find(name);
}

}  // namespace ddpsim
