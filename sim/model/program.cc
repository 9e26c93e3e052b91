#include "sim/model/program.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace ddpsim {
namespace {

struct Name {
  const char* verb;
  enum { Plain, Tensor, BucketNumber, Number, Step } subject;
};
constexpr std::array<Name, 28> kNames{{{"launch", Name::Plain},
                                       {"zero_grad", Name::Plain},
                                       {"broadcast/rebuild.", Name::Number},
                                       {"wait/broadcast/rebuild.", Name::Number},
                                       {"flatten/buffers.", Name::Number},
                                       {"broadcast/buffers.", Name::Number},
                                       {"wait/broadcast/buffers.", Name::Number},
                                       {"unflatten/buffers.", Name::Number},
                                       {"fwd", Name::Plain},
                                       {"find_unused", Name::Plain},
                                       {"bwd/", Name::Tensor},
                                       {"bwd/tail", Name::Plain},
                                       {"accumulate/", Name::Tensor},
                                       {"copy_in/", Name::Tensor},
                                       {"compress/bucket.", Name::Number},
                                       {"divide/bucket.", Name::Number},
                                       {"allreduce/bucket.", Name::BucketNumber},
                                       {"allreduce/unused", Name::Plain},
                                       {"wait/unused", Name::Plain},
                                       {"decompress/bucket.", Name::Number},
                                       {"wait/bucket.", Name::Number},
                                       {"copy_out/", Name::Tensor},
                                       {"allreduce/", Name::Tensor},
                                       {"wait/", Name::Tensor},
                                       {"div/", Name::Tensor},
                                       {"flatten/grads", Name::Plain},
                                       {"unflatten/grads", Name::Plain},
                                       {"optimizer", Name::Plain}}};

}  // namespace

const char* name_of(Lane l) {
  constexpr std::array<const char*, 5> kLanes{"host", "compute", "comm", "worker", "callback"};
  return kLanes[static_cast<std::size_t>(l)];
}
const char* name_of(StepKind k) {
  constexpr std::array<const char*, 3> kKinds{"first", "rebuild", "steady"};
  return kKinds[static_cast<std::size_t>(k)];
}

std::string name_of(const Program& p, const StepProgram& s, std::uint32_t index) {
  const Op& op = s.ops[index];
  if (op.kind == OpKind::Launch) return "launch/" + name_of(p, s, op.subject);
  const Name& n = kNames[static_cast<std::size_t>(op.kind)];
  std::string out = op.micro >= 0 ? "micro" + std::to_string(op.micro) + "/" : std::string();
  out += n.verb;
  if (n.subject == Name::Tensor) out += op.subject == kNoSubject ? "flat" : p.tensor_names[op.subject];
  if (n.subject == Name::Number || n.subject == Name::BucketNumber) out += std::to_string(op.subject);
  return out;
}

std::vector<TensorIndex> tensors_of(const Program& p, const StepProgram& s, std::uint32_t index) {
  const Op& op = s.ops[index];
  switch (op.kind) {
    case OpKind::Backward:
    case OpKind::Accumulate:
    case OpKind::CopyIn:
    case OpKind::CopyOut:
      return {op.subject};
    case OpKind::AllReduce:
      return s.buckets[op.subject].tensors;
    case OpKind::GradDivide:
      if (op.subject == kNoSubject) return {};
      return {op.subject};
    case OpKind::GradAllReduce:
      if (op.subject != kNoSubject) return {op.subject};
      return s.buckets[0].tensors;
    case OpKind::FlattenGrads:
    case OpKind::UnflattenGrads:
      return s.buckets[0].tensors;
    case OpKind::ZeroGrad:
    case OpKind::Optimizer: {
      std::vector<TensorIndex> all(p.tensor_names.size());
      std::iota(all.begin(), all.end(), 0u);
      return all;
    }
    default:
      return {};
  }
}

std::vector<std::uint32_t> deps_of(const StepProgram& s, std::uint32_t index) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t d : s.ops[index].dep)
    if (d != kNoOp) out.push_back(d);
  for (const auto& e : s.extra_deps)
    if (e.op == index) out.push_back(e.dep);
  std::sort(out.begin(), out.end());
  return out;
}

DType element_type(const Op& op, const StepProgram& s, const Workload& w, CommHook hook) {
  if (op.kind == OpKind::AllReduce) {
    const Bucket& b = s.buckets[op.subject];
    if (b.wire_bytes.count != b.bytes.count) return hook == CommHook::Bf16Compress ? DType::BFloat16 : DType::Float16;
    return b.dtype;
  }
  if (op.kind == OpKind::GradAllReduce) return op.subject == kNoSubject ? DType::Float32 : w.tensors[op.subject].dtype;
  return op.bytes % 4 == 0 ? DType::Int32 : DType::UInt8;
}

}  // namespace ddpsim
