// Operations that are put between those of a lowered step: a loader's, and a training script's own.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/systems/base/words.h"

namespace ddpsim::systems {

// Copies a step with more operations, in order. REQUIRES: finish() ends it.
class Insertion {
 public:
  Insertion(Program& p, StepProgram& s) : program_(p), step_(s) {}
  // The step's own operations in front of its `old`-th come first.
  void until(std::uint32_t old);
  // A new one; dependencies are among what is there already. Returns its index.
  std::uint32_t add(const OpWord& word, Lane lane, int micro);
  Op& at(std::uint32_t index) { return ops_[index]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(ops_.size()); }
  // The last operation on a lane so far; kNoOp: there is none.
  std::uint32_t last_on(Lane lane) const;
  void finish();

 private:
  Program& program_;
  StepProgram& step_;
  std::vector<Op> ops_;
  std::vector<std::uint32_t> now_;  // of the step's own
  std::vector<bool> own_;           // by new index
};

// The first operation of each micro-step that is `wanted`, or that launches one; of a micro-step
// without any, the step's number of operations.
template <class Wanted>
std::vector<std::uint32_t> first_in_micro_steps(const StepProgram& s, int micro_steps,
                                                Wanted wanted) {
  const auto none = s.next_op();
  std::vector<std::uint32_t> out(micro_steps, none);
  for (std::uint32_t i = 0; i < none; ++i) {
    const Op& op = is_launch(s.ops[i].kind) ? s.ops[s.ops[i].subject] : s.ops[i];
    const int micro = micro_steps > 1 ? op.micro : 0;
    if (micro < 0 || micro >= micro_steps || !wanted(op)) continue;
    std::uint32_t& first = out[micro];
    first = std::min(first, i);
  }
  return out;
}

}  // namespace ddpsim::systems
