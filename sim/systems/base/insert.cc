#include "sim/systems/base/insert.h"

#include <algorithm>

namespace ddpsim::systems {

void Insertion::until(std::uint32_t old) {
  while (now_.size() < old && now_.size() < step_.ops.size()) {
    now_.push_back(size());
    own_.push_back(true);
    ops_.push_back(step_.ops[now_.size() - 1]);
  }
}

std::uint32_t Insertion::add(const OpWord& word, Lane lane, int micro) {
  auto at = std::find(program_.words.begin(), program_.words.end(), word.name);
  Op op;
  op.kind = word.kind;
  op.word = static_cast<std::uint16_t>(at - program_.words.begin());
  if (at == program_.words.end()) program_.words.push_back(word.name);
  op.lane = lane;
  op.micro = static_cast<std::int16_t>(program_.micro_steps > 1 ? micro : -1);
  ops_.push_back(op);
  own_.push_back(false);
  return size() - 1;
}

std::uint32_t Insertion::last_on(Lane lane) const {
  for (std::uint32_t i = size(); i-- > 0;)
    if (ops_[i].lane == lane) return i;
  return kNoOp;
}

void Insertion::finish() {
  until(step_.next_op());
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!own_[i]) continue;
    for (std::uint32_t& d : ops_[i].dep)
      if (d != kNoOp) d = now_[d];
    if (ops_[i].kind.of == Of::Operation) ops_[i].subject = now_[ops_[i].subject];
  }
  for (auto& e : step_.extra_deps) e = {now_[e.op], now_[e.dep]};
  for (MemoryChange& m : step_.memory) m.op = now_[m.op];
  for (std::uint32_t& made : step_.made_by)
    if (made != kNoOp) made = now_[made];
  step_.ops = std::move(ops_);
}

}  // namespace ddpsim::systems
