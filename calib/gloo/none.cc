// This build has no Gloo.
#include <stdexcept>

#include "calib/gloo/gloo.h"

namespace ddpsim::calib::gloo_library {

bool built() {
  return false;
}
Run measure_all_reduce(const topology::Fabric&, const std::vector<int>&, Algorithm,
                       const CollectiveOptions&) {
  throw std::runtime_error(
      "this build of ddpsim has no Gloo: build it where Debian's libgloo-dev is installed");
}

}  // namespace ddpsim::calib::gloo_library
