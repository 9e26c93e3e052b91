// A Program's steady step as nodes. All that an operation waits for is in data_deps, the one before
// it on its lane included: Chakra's feeder resolves data dependencies alone (src/feeder).
#include <algorithm>

#include "sim/io/chakra.h"
#include "sim/units/convert.h"

namespace ddpsim::io {
namespace {

// Chakra's size of a collective is of what a rank puts in.
std::int64_t put_in(const Op& op, std::int64_t size) {
  if (op.kind.operation != Operation::AllGather) return op.bytes;
  return (op.bytes + size - 1) / size;
}

std::uint64_t microseconds(std::int64_t ps) {
  return (std::max<std::int64_t>(ps, 0) + kMicrosecond.ps / 2) / kMicrosecond.ps;
}

ChakraCollective type_of(Operation o) {
  switch (o) {
    case Operation::AllReduce:
      return ChakraCollective::AllReduce;
    case Operation::ReduceScatter:
      return ChakraCollective::ReduceScatter;
    case Operation::AllGather:
      return ChakraCollective::AllGather;
    case Operation::Broadcast:
      return ChakraCollective::Broadcast;
    case Operation::Reduce:
      return ChakraCollective::Reduce;
    default:
      return ChakraCollective::AllToAll;
  }
}

}  // namespace

ChakraWriter::ChakraWriter(const Program& program, const Workload& workload, int ranks,
                           const std::vector<ChakraTime>& times)
    : program_(program), times_(times), ranks_(ranks) {
  document_ = write_program(program, workload, ranks);
  const StepProgram& s = program.steady;
  std::vector<std::uint32_t> last(kLanes + program.streams.size(), kNoOp);
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    std::vector<std::uint64_t> after;
    for (std::uint32_t d : deps_of(s, i)) after.push_back(d);
    std::size_t lane = number_of(s.ops[i].lane);
    if (in_order(s.ops[i].lane)) {
      if (last[lane] != kNoOp) after.push_back(last[lane]);
      last[lane] = i;
    }
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    after_.push_back(std::move(after));
  }
  for (const RankGroups& g : program.groups) parts_.push_back(members(g, ranks));
}

int ChakraWriter::number_of_part(std::size_t group, int rank) const {
  int number = 1;  // 0 is all ranks
  for (std::size_t k = 0; k < group; ++k) number += static_cast<int>(parts_[k].size());
  for (const std::vector<int>& part : parts_[group]) {
    if (std::find(part.begin(), part.end(), rank) != part.end()) return number;
    ++number;
  }
  return 0;
}

ChakraNode ChakraWriter::node(std::uint32_t i, int rank) const {
  const Op& op = program_.steady.ops[i];
  ChakraNode n;
  n.id = i;
  n.name = name_of(program_, program_.steady, i);
  n.after = after_[i];
  n.thread = number_of(op.lane);
  n.start_us = microseconds(times_[i].begin.ps);
  n.duration_us = microseconds(times_[i].takes.ps);
  if (is_collective(op.kind)) {
    n.type = ChakraType::Collective;
    std::int64_t size = op.group == 0 ? ranks_ : program_.groups[op.group - 1].size;
    n.comm_type = static_cast<std::int64_t>(type_of(op.kind.operation));
    n.comm_size = put_in(op, size);
    if (op.group > 0) n.group = std::to_string(number_of_part(op.group - 1u, rank));
  } else {
    n.type = ChakraType::Compute;
    // On a CPU the thread that trains is the device.
    bool device = program_.device == DeviceKind::Cpu && is_compute(op.kind);
    n.on_cpu = !on_device(op.lane) && op.lane != Lane::Callback && !device;
  }
  const OrderedJson& ops = document_["steps"].back()["ops"];
  n.operation = ops[i].dump();
  return n;
}

ChakraTrace ChakraWriter::of(int rank) const {
  ChakraTrace out;
  out.version = "0.0.4";
  for (std::uint32_t i = 0; i < program_.steady.ops.size(); ++i) out.nodes.push_back(node(i, rank));
  OrderedJson head = document_;
  head.erase("steps");
  out.program = head.dump();
  out.digest = digest_of(out.nodes);
  return out;
}

OrderedJson ChakraWriter::groups() const {
  OrderedJson out;
  int number = 1;
  for (const auto& parts : parts_)
    for (const std::vector<int>& part : parts) out[std::to_string(number++)] = part;
  return out;
}

}  // namespace ddpsim::io
