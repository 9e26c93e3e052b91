#include "sim/model/program.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "sim/units/by.h"

namespace ddpsim {

std::string name_of(Lane l, const std::vector<std::string>& streams) {
  constexpr std::array<const char*, kLanes> kNames{"host", "compute", "comm", "worker", "callback"};
  return number_of(l) < kLanes ? kNames[number_of(l)] : streams[number_of(l) - kLanes];
}

std::string name_of(const Program& p, const StepProgram& s, std::uint32_t index) {
  const Op& op = s.ops[index];
  std::string out = op.micro >= 0 ? "micro" + std::to_string(op.micro) + "/" : std::string();
  if (op.word < p.words.size()) out += p.words[op.word];
  switch (op.kind.of) {
    case Of::Nothing:
      break;
    case Of::Number:
    case Of::Bucket:
      out += std::to_string(op.subject);
      break;
    case Of::Tensor:
      out += p.tensor_names[op.subject];
      break;
    case Of::Operation:
      out += name_of(p, s, op.subject);
      break;
    case Of::Label:
      out += p.labels[op.subject];
      break;
  }
  return out;
}

std::vector<Lane> own_communicators(const Program& p) {
  std::vector<Lane> out;
  auto add = [&](const StepProgram& s) {
    for (const Op& op : s.ops)
      if (is_collective(op.kind) && number_of(op.lane) >= kLanes) out.push_back(op.lane);
  };
  for (const StepProgram& s : p.warmup) add(s);
  add(p.steady);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::size_t communicator_of(const std::vector<Lane>& own, Lane lane) {
  const auto at = std::find(own.begin(), own.end(), lane);
  return at == own.end() ? 0 : at - own.begin() + 1;
}

std::vector<std::vector<int>> members(const RankGroups& g, int ranks) {
  std::vector<std::vector<int>> out;
  const int block = g.size * g.stride;
  for (int first = 0; first + block <= ranks; first += block)
    for (int k = 0; k < g.stride; ++k) {
      std::vector<int>& group = out.emplace_back();
      for (int i = 0; i < g.size; ++i) group.push_back(first + k + i * g.stride);
    }
  return out;
}

std::vector<TensorIndex> tensors_of(const Program& p, const StepProgram& s, std::uint32_t index) {
  const Op& op = s.ops[index];
  switch (op.kind.touches) {
    case Touches::Nothing:
      break;
    case Touches::Tensor:
      return {op.subject};
    case Touches::Bucket:
      return s.buckets[op.subject].tensors;
    case Touches::Everything: {
      std::vector<TensorIndex> all(p.tensor_names.size() - p.frozen);
      std::iota(all.begin(), all.end(), 0u);
      return all;
    }
  }
  return {};
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

}  // namespace ddpsim
