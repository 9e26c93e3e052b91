#include "sim/nccl/names.h"

namespace ddpsim::nccl {
namespace {

constexpr By<Algorithm, const char*> kAlgorithmWords{
    {"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"}};
constexpr By<Protocol, const char*> kProtocolWords{{"ll", "ll128", "simple"}};
constexpr By<GraphId, const char*> kGraphWords{
    {"ring", "tree", "collnet_chain", "nvls", "collnet_direct"}};
constexpr By<Operation, const char*> kOperationWords{
    {"allreduce", "reducescatter", "allgather", "broadcast", "reduce"}};

}  // namespace

const char* name_of(Algorithm a) {
  return kAlgorithmWords[a];
}
const char* name_of(Protocol p) {
  return kProtocolWords[p];
}
const char* name_of(GraphId g) {
  return kGraphWords[g];
}
const char* nccl_word(Operation o) {
  return kOperationWords[o];
}

}  // namespace ddpsim::nccl
