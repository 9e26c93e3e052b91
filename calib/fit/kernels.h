// fit_kernels: measured kernels -> the device's and the host's sections of a Profile. Pure.
//
// Two forms. Of layers that say what they compute: `kernels`, products by tiles and waves, traffic
// by kind of kernel (calib/fit/operators.h). Of layers that say only their operations and bytes:
// the longest of a floor (kernel_ps), traffic / (bandwidth * efficiency) and flops / (peak *
// efficiency), both stretched by octave of that duration; peak is the best rate of any product of
// that precision, efficiency what products of the longest octave reach. One shape in three is left
// out of both (calib/fit/shapes.h held_out), and has residuals of its own.
#pragma once

#include <string>
#include <vector>

#include "sim/model/profile.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

struct KernelFit {
  Profile profile;
  std::vector<std::string> notes;  // what came from where, one sentence each
};

// Samples read (docs/formats.md): gemm, conv, move, launch, interference, torch/*, torch_host/*;
// others are passed over. `base`: every term that no sample identifies, marked as it was.
// REQUIRES: measured Runs of one GPU, of which refused() says nothing. Throws InputError if there
// is neither a gemm nor a move sample.
KernelFit fit_kernels(const Profile& base, const std::string& name,
                      const std::vector<const Run*>& runs);

// Why no profile with this base is made from these Runs: one of them is noisy, or they are of
// another GPU (name, memory) than the base. "" = nothing is wrong.
std::string refused(const Profile& base, const std::vector<const Run*>& runs);

}  // namespace ddpsim::calib
