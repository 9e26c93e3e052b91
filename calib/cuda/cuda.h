// What ddpsim measures and executes on NVIDIA GPUs. In a build without the CUDA toolkit every
// function says so (calib/cuda/none.cc).
//
// cudart is linked in; the driver, cuBLASLt, cuDNN, NCCL and NVML are opened when they are needed,
// so that the binary starts anywhere. Memory comes from cudaMalloc only; clocks, power limits,
// compute mode and MIG are read, never set.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/model/run.h"
#include "sim/predict/predict.h"

namespace ddpsim::calib::cuda {

// Several ranks on one GPU: each is a host of its own to NCCL, which goes over sockets on loopback.
inline constexpr const char* kOneGpuCluster = "one-gpu";  // topologies/one-gpu.json
inline constexpr const char* kLoopback = "loopback";      // the transport of its links
inline constexpr int kOneGpuChannels = 2;                 // that NCCL is given there

// Whether this build has the CUDA toolkit.
bool built();

// Several ranks on one GPU, as long as this is there: a private MPS daemon, and what each rank
// needs in its environment. Throws std::runtime_error where the daemon cannot be started.
class OneGpu {
 public:
  OneGpu();
  OneGpu(const OneGpu&) = delete;
  OneGpu& operator=(const OneGpu&) = delete;
  ~OneGpu();
  std::vector<std::pair<std::string, std::string>> environment(int rank, int ranks) const;

 private:
  struct Daemon;
  std::unique_ptr<Daemon> daemon_;
};

// What one is told before anything is measured.
struct Probe {
  struct Item {
    std::string what;  // "gpu", "cuBLASLt", "cuDNN", "NCCL", "NVML", "MPS"
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
  std::string stage;     // one of stages()
  double budget_s = 60;  // wall clock; what does not fit is skipped, and the Run says so
  int ranks = 0;         // nccl: processes; 0 = as many as GPUs
  bool one_gpu = false;  // nccl: all ranks on the first GPU, under a private MPS daemon
  std::string cluster;   // nccl, a GPU each: name of the shipped cluster that this machine is
  // nccl: told each Run as soon as it is measured, so that nothing is lost if the process is ended.
  std::function<void(const Run&)> measured;
};
// In order of value.
inline std::vector<std::string> stages() {
  return {"memory", "gemm", "host", "nccl", "conv", "copies", "interference"};
}

// Samples of one stage -> measured Runs, one at least (evidence: kernel, one Run; nccl: collective,
// one for each operation and way). What cannot run here is in Run::skipped, of the first of them,
// with its reason. Throws std::runtime_error with the failing call's own words; nothing is left
// running.
std::vector<Run> calibrate(const CalibrateOptions& options);

struct ExecuteOptions {
  int steady_steps = 8;
  int recorded_steps = 3;
  bool one_gpu = false;
  double timeout_s = 300;  // wall clock; ranks that are not done then are ended
};
// REQUIRES: a question about GPUs (backend nccl) whose predict::check is empty. A process per rank;
// the Program is the one that is simulated.
Run execute(const predict::Question& q, const ExecuteOptions& options);

}  // namespace ddpsim::calib::cuda
