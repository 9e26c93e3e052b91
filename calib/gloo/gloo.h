// The real Gloo (Debian's libgloo) on hosts of this machine: its all-reduces alone.
#pragma once

#include "calib/collectives.h"

namespace ddpsim::calib::gloo_library {

bool built();  // with libgloo
// As calib::measure_all_reduce, played by gloo::allreduce with AllreduceOptions::RING or BCUBE.
// REQUIRES: algorithm is Ring or Bcube. Throws std::runtime_error, also where this build has no
// Gloo.
Run measure_all_reduce(const topology::Fabric& fabric, const std::vector<DeviceId>& devices,
                       Algorithm algorithm, const CollectiveOptions& options);

}  // namespace ddpsim::calib::gloo_library
