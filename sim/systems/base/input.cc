// for x in loader: x.to(device), zero_grad, forward, backward. The loads of a step come first in
// its list; each wait is the first of its micro-step on the host, the first one of the step.
#include "sim/systems/base/input.h"

#include "sim/systems/base/insert.h"

namespace ddpsim::systems {
namespace {

constexpr const char* kStream = "input";

void feed(Program& p, StepProgram& s, const BatchTimes& batch) {
  std::vector<std::uint32_t> at =
      first_in_micro_steps(s, p.micro_steps, [](const Op&) { return true; });
  at.front() = 0;  // of the step
  Insertion in(p, s);
  for (int m = 0; m < p.micro_steps; ++m)
    in.at(in.add(kLoadInput, stream(p.streams.size() - 1), m)).duration = batch.made;
  for (int m = 0; m < std::ssize(at); ++m) {
    if (at[m] == s.ops.size() && m > 0) continue;
    in.until(at[m]);
    in.at(in.add(kAwaitInput, Lane::Host, m)).dep[0] = m;
    if (batch.copied.ps == 0) continue;
    const std::uint32_t copy = in.add(kCopyInput, Lane::Compute, m);
    in.at(copy).duration = batch.copied;
    in.at(copy).dep[0] = copy - 1;
  }
  in.finish();
}

}  // namespace

void feed(Program& p, const BatchTimes& batch) {
  p.streams.push_back(kStream);
  for (StepProgram& s : p.warmup) feed(p, s, batch);
  feed(p, p.steady, batch);
}

}  // namespace ddpsim::systems
