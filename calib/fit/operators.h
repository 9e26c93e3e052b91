// fit_operators: measured operators -> a Profile's `kernels` (sim/model/kernels.h). Pure.
//
// Samples read: torch/linear, torch/conv, torch/attention, torch/pointwise/*, torch/optimizer/*
// (tools/python/ddpsim_ops.py), and, where PyTorch's were not measured, gemm, conv and move of
// ddpsim's own bench. One shape in three is left out of the fit, in every pass, precision and
// layout at once (calib/fit/shapes.h held_out). What is minimised is the sum of
// max(fitted / measured, measured / fitted) - 1 over the others.
#pragma once

#include <string>
#include <vector>

#include "sim/model/profile.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

struct OperatorFit {
  KernelCosts costs;
  std::vector<KernelResidual> residuals;  // by class; shapes that were fitted to, then held out
  std::vector<std::string> notes;
};

// REQUIRES: measured Runs of one GPU with `sms` SMs. Throws InputError if no sample says how fast
// its memory is.
OperatorFit fit_operators(int sms, const std::vector<const Run*>& runs);

// How far `costs` are off these Runs' samples, by class; nothing of them was fitted to, so all
// shapes count as held out.
std::vector<KernelResidual> judge_operators(const KernelCosts& costs,
                                            const std::vector<const Run*>& runs);

// SMs and memory (MiB) of "NVIDIA H100 80GB HBM3 (132 SMs, 81079 MiB; ...)"; 0 = not said.
struct GpuSize {
  int sms = 0;
  std::int64_t mebibytes = 0;
};
GpuSize gpu_size(const std::string& gpu);

}  // namespace ddpsim::calib
