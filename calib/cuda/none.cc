// This build has no CUDA toolkit.
#include <stdexcept>

#include "calib/cuda/cuda.h"

namespace ddpsim::calib::cuda {
namespace {

constexpr const char* kNone =
    "this build of ddpsim has no CUDA: build it where nvcc is (cmake -DDDPSIM_CUDA=ON)";

}  // namespace

bool built() {
  return false;
}
struct OneGpu::Daemon {};
OneGpu::OneGpu() {
  throw std::runtime_error(kNone);
}
OneGpu::~OneGpu() = default;
std::vector<std::pair<std::string, std::string>> OneGpu::environment(int, int) const {
  return {};
}
Probe probe() {
  Probe out;
  out.items.push_back({"gpu", false, kNone});
  return out;
}
std::vector<Run> calibrate(const CalibrateOptions&) {
  throw std::runtime_error(kNone);
}
Run execute(const predict::Question&, const ExecuteOptions&) {
  throw std::runtime_error(kNone);
}

}  // namespace ddpsim::calib::cuda
