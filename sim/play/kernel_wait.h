// How long a collective waits for the kernels that run where it is launched (docs/model.md 5.5).
#pragma once

#include "sim/model/profile.h"
#include "sim/model/program.h"

namespace ddpsim::predict {

// NCCL's kernel begins when the running kernel ends; that is at any of its moments, on each rank at
// another one.
struct KernelWait {
  Duration mean;  // of a rank's kernel, which holds its share of the device from then on
  Duration last;  // of the last of all ranks, when the collective begins; >= mean
};

// `kernel`: Program::kernel. At Level::Low, the longer end, twice of it; at High nothing.
inline KernelWait kernel_wait(Duration kernel, int ranks, Level level) {
  const Duration k = level == Level::Mid ? kernel : level == Level::Low ? kernel * 2 : Duration{};
  return {scale(k, 0.5), scale(k, ranks / (ranks + 1.0))};
}

// Of a collective of one of the Program's groups (0: all ranks); nothing where no kernel of NCCL's
// is launched beside computation.
inline KernelWait kernel_wait(const Program& program, std::uint8_t group, Lane lane, int ranks,
                              Level level) {
  if (program.backend != Backend::Nccl || lane == Lane::Compute || lane == Lane::Worker) return {};
  return kernel_wait(program.kernel, group == 0 ? ranks : program.groups[group - 1u].size, level);
}

}  // namespace ddpsim::predict
