// One collective alone, on hosts of this machine: what an algorithm costs, without computation or another collective beside it.
#pragma once

#include <vector>

#include "sim/collective/algorithm.h"
#include "sim/model/run.h"
#include "sim/topology/fabric.h"

namespace ddpsim::calib {

struct CollectiveOptions {
  std::vector<std::int64_t> bytes;  // sizes, each at least 4; elements are float32
  int warmups = 2;
  int repetitions = 7;
  bool loopback = false;
  double timeout_s = 600;
};

// All-reduces of `algorithm` on the ranks that `devices` names, as backend tcp plays them. Samples, durations raw:
//   all_reduce {ranks, bytes}  end on the last rank minus begin on the last rank; before each a barrier and a common start
// Throws std::runtime_error as execute() does, and if a sum is wrong. REQUIRES: performs(algorithm, AllReduce), at least two devices.
Run measure_all_reduce(const topology::Fabric& fabric, const std::vector<int>& devices, Algorithm algorithm, const CollectiveOptions& options);

}  // namespace ddpsim::calib
