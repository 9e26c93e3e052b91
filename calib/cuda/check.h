// Every return code is looked at.
#pragma once

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

namespace ddpsim::calib::cuda {

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
}
#define DDPSIM_CUDA(call) ::ddpsim::calib::cuda::check((call), #call)

}  // namespace ddpsim::calib::cuda
