// fit_kernels: measured kernels -> the device's and the host's sections of a Profile. Pure.
//
// A kernel's time is the longest of: a floor (kernel_ps); its traffic / (bandwidth * efficiency), stretched; its flops / (peak * efficiency), stretched. Peak is the
// best rate of any product of that precision; efficiency is what products of the longest octave reach; stretch is what shorter ones take longer, by octave of
// that ideal duration. One shape in three is left out (calib/fit/shapes.h held_out), and has residuals of its own.
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

// Samples read (sim/FORMATS.md): gemm, conv, move, launch, interference; others are passed over. `base`: every term that no sample identifies, marked as it was.
// REQUIRES: measured Runs of one GPU. Throws InputError if there is neither a gemm nor a move sample.
KernelFit fit_kernels(const Profile& base, const std::string& name, const std::vector<const Run*>& runs);

}  // namespace ddpsim::calib
