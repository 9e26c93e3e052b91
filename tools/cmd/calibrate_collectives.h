// ddpsim calibrate --collectives: all-reduces alone on hosts of this machine.
#pragma once

#include <string>
#include <vector>

#include "tools/cmd/executed.h"

namespace ddpsim::cli {

struct CalibrateFlags : ExecutedFlags {
  std::vector<std::string> stages;
  double seconds = 60;
  bool one_gpu = false;
  bool collectives = false;
  std::vector<std::string> algorithms;
  std::vector<std::string> sizes;
  int repetitions = 7;
  std::string split;
};

// All throw InputError, or calib::NothingMeasured where they were interrupted before anything was.
// One Run for each algorithm; its scenario names cluster, rank order and algorithm.
void calibrate_collectives(Terminal& t, const CalibrateFlags& flags);
// One Run: what the real Open MPI takes for each size, by the algorithm that it chooses, or that
// OMPI_MCA_ variables of the question make it choose.
void calibrate_mpi(Terminal& t, const CalibrateFlags& flags);

}  // namespace ddpsim::cli
