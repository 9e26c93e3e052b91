// fit: measured Runs -> Profile. Pure. Each term from the samples that identify it, in this order:
// reduction rate, step latency (smallest messages), link efficiency (largest chunk), launch (spans
// of executed steps), then a correction by chunk for what is left; residuals with a size, and with
// a rank count, left out say how far that carries.
#pragma once

#include <string>
#include <vector>

#include "sim/model/profile.h"
#include "sim/model/run.h"
#include "sim/predict/predict.h"

namespace ddpsim::calib {

// Samples on one cluster (calibrate). REQUIRES: measured.
struct FitCollectives {
  const Run* run = nullptr;
  const topology::Fabric* fabric = nullptr;
  Backend backend = Backend::Tcp;  // Gloo: of PyTorch's collectives, and of DDP's own work; Mpi
};
// An executed step of the fit set, and its question (under any profile).
struct FitStep {
  const Run* run = nullptr;
  const Workload* workload = nullptr;
  const topology::Fabric* fabric = nullptr;
  const Scenario* scenario = nullptr;
};

struct FitResidual {
  int ranks = 0;
  std::int64_t bytes = 0;
  Duration measured;         // median
  double error = 0;          // fitted / measured - 1
  double without_size = 0;   // fitted without any sample of this size
  double without_ranks = 0;  // fitted without any sample of this rank count
};

struct Fit {
  Profile profile;
  std::vector<FitResidual> residuals;  // all_reduce, by ranks and bytes
  bool identified = true;              // two or more rank counts
  std::vector<std::string> notes;      // what came from where, one sentence each
};

// All Runs are of one backend. The profile is of one occasion (occasions.h): that on which most of
// `steps` were executed. Samples of others are in the range of a message's cost
// (TransportSection::occasions), and nowhere else.
// `base`: device sections, transports that nothing measures, and every term that no sample
// identifies. Throws InputError if there is no usable sample.
Fit fit(const Profile& base, const std::string& name,
        const std::vector<FitCollectives>& collectives, const std::vector<FitStep>& steps);

}  // namespace ddpsim::calib
