// for x in loader: x.to(device), zero_grad, forward, backward. The loads of a step come first in
// its list; each wait is the first of its micro-step on the host, the first one of the step.
#include "sim/strategy/input.h"

#include "sim/strategy/words.h"

namespace ddpsim::strategy {
namespace {

constexpr const char* kStream = "input";

std::uint16_t number_of(Program& p, const OpWord& word) {
  for (std::size_t k = 0; k < p.words.size(); ++k)
    if (p.words[k] == word.name) return static_cast<std::uint16_t>(k);
  p.words.push_back(word.name);
  return static_cast<std::uint16_t>(p.words.size() - 1);
}

Op make(Program& p, const OpWord& word, Lane lane, int micro) {
  Op op;
  op.kind = word.kind;
  op.word = number_of(p, word);
  op.lane = lane;
  op.micro = static_cast<std::int16_t>(p.micro_steps > 1 ? micro : -1);
  return op;
}

// The first operation of each micro-step; of the first one, that of the step.
std::vector<std::uint32_t> begins(const StepProgram& s, int micro_steps) {
  std::vector<std::uint32_t> out(static_cast<std::size_t>(micro_steps), 0);
  int next = 1;
  for (std::uint32_t i = 0; i < s.ops.size() && next < micro_steps; ++i) {
    const Op& op = is_launch(s.ops[i].kind) ? s.ops[s.ops[i].subject] : s.ops[i];
    if (op.micro == next) out[static_cast<std::size_t>(next++)] = i;
  }
  return out;
}

void feed(Program& p, StepProgram& s, const BatchTimes& batch) {
  const std::vector<std::uint32_t> at = begins(s, p.micro_steps);
  std::vector<Op> ops;
  for (int m = 0; m < p.micro_steps; ++m) {
    ops.push_back(make(p, kLoadInput, stream(p.streams.size() - 1), m));
    ops.back().duration = batch.made;
  }
  std::vector<std::uint32_t> now(s.ops.size());
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    for (; next < at.size() && at[next] == i; ++next) {
      ops.push_back(make(p, kAwaitInput, Lane::Host, static_cast<int>(next)));
      ops.back().dep[0] = static_cast<std::uint32_t>(next);
      if (batch.copied.ps == 0) continue;
      ops.push_back(make(p, kCopyInput, Lane::Compute, static_cast<int>(next)));
      ops.back().duration = batch.copied;
      ops.back().dep[0] = static_cast<std::uint32_t>(ops.size() - 2);
    }
    now[i] = static_cast<std::uint32_t>(ops.size());
    ops.push_back(s.ops[i]);
  }
  for (std::uint32_t i : now) {
    for (std::uint32_t& d : ops[i].dep)
      if (d != kNoOp) d = now[d];
    if (ops[i].kind.of == Of::Operation) ops[i].subject = now[ops[i].subject];
  }
  for (auto& e : s.extra_deps) e = {now[e.op], now[e.dep]};
  for (std::uint32_t& made : s.made_by)
    if (made != kNoOp) made = now[made];
  s.ops = std::move(ops);
}

}  // namespace

void feed(Program& p, const BatchTimes& batch) {
  p.streams.push_back(kStream);
  for (StepProgram& s : p.warmup) feed(p, s, batch);
  feed(p, p.steady, batch);
}

}  // namespace ddpsim::strategy
