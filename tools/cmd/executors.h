// How ddpsim run executes a step: by its own processes, by PyTorch, over MPI or on GPUs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/run.h"
#include "tools/cmd/executed.h"

namespace ddpsim::cli {

inline constexpr int kMostSteps = 64;  // steady ones

struct ExecuteFlags : ExecutedFlags {
  std::string compute;
  std::string split;
  std::vector<std::string> record;
  int steps = 0;
  bool one_gpu = false;
  double timeout_s = 0;  // backends nccl and torch; 0 = by the predicted step
};

struct Executed {
  Run run;
  Duration predicted;  // from the workload's own times
  std::string basis;
  std::optional<Duration> from_layers;  // from the layer profile that the Run brought
  std::string note;                     // why the two cannot be compared
};

// The ranks drive GPUs of this machine, and hosts are not made.
bool on_gpus(const Loaded& l, const ExecuteFlags& flags);

// They refuse before anything starts: they throw InputError for what a backend cannot do.
void check_hosts(const Loaded& l, const ExecuteFlags& flags);
void check_torch(const Loaded& l, const ExecuteFlags& flags);
void check_mpi(const Loaded& l);
// Requires of Python what --backend mpi needs, and asks again with the PyTorch that its Horovod was
// built for. Throws InputError.
void complete_mpi(const Terminal& t, ExecuteFlags& flags, Loaded& l);

// REQUIRES: the checks. Throw InputError for what else a backend cannot do, std::runtime_error
// where the execution fails.
Executed execute_tcp(const Loaded& l, const ExecuteFlags& flags);
Executed execute_torch(const Terminal& t, const Loaded& l, const ExecuteFlags& flags);
Executed execute_mpi(const Terminal& t, const Loaded& l, const ExecuteFlags& flags);
Executed execute_nccl(const Loaded& l, const ExecuteFlags& flags);

}  // namespace ddpsim::cli
