// What ddpsim measures and executes on NVIDIA GPUs. In a build without the CUDA toolkit every function says so (calib/cuda/none.cc).
//
// cudart is linked in; the driver, cuBLASLt, cuDNN, NCCL and NVML are opened when they are needed, so that the binary starts anywhere. Memory comes from cudaMalloc only;
// clocks, power limits, compute mode and MIG are read, never set.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/model/run.h"
#include "sim/predict/predict.h"

namespace ddpsim::calib::cuda {

// Whether this build has the CUDA toolkit.
bool built();

// What one is told before anything is measured.
struct Probe {
  struct Item {
    std::string what;    // "gpu", "cuBLASLt", "cuDNN", "NCCL", "NVML", "MPS"
    bool found = false;
    std::string detail;  // version and place, or why not
  };
  std::vector<Item> items;
  const Item* item(const std::string& what) const {
    for (const Item& i : items)
      if (i.what == what) return &i;
    return nullptr;
  }
};
Probe probe();

struct CalibrateOptions {
  std::string stage;       // one of stages()
  double budget_s = 60;    // wall clock; what does not fit is skipped, and the Run says so
  int ranks = 0;           // nccl: processes; 0 = as many as GPUs
  bool one_gpu = false;    // nccl: all ranks on the first GPU, under a private MPS daemon
};
// In order of value.
inline std::vector<std::string> stages() { return {"memory", "gemm", "host", "nccl", "conv", "copies", "interference"}; }

// Samples of one stage -> a measured Run (evidence: kernel; nccl: collective). What cannot run here is in Run::skipped with its reason. Throws std::runtime_error with
// the failing call's own words; nothing is left running.
Run calibrate(const CalibrateOptions& options);

struct ExecuteOptions {
  int steady_steps = 8;
  int recorded_steps = 3;
  bool one_gpu = false;
  double timeout_s = 300;
};
// REQUIRES: a question about GPUs (backend nccl) whose predict::check is empty. A process per rank; the Program is the one that is simulated.
Run execute(const predict::Question& q, const ExecuteOptions& options);

}  // namespace ddpsim::calib::cuda
