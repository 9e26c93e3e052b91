// Matrix products (cuBLASLt) and convolutions (cuDNN), set up once and launched many times.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "calib/fit/shapes.h"

namespace ddpsim::calib::cuda {

// Bytes that a shape's operands and workspace take.
inline constexpr std::int64_t kWorkspace = 32ll
                                           << 20;  // as PyTorch's default for cuBLASLt on Hopper

// Of convolutions: PyTorch takes the first engine of cuDNN's heuristics that runs, whatever it
// needs.
inline constexpr std::int64_t kConvWorkspace = 1ll << 30;

class Product {
 public:
  virtual ~Product() = default;
  // `operands`: bytes() of device memory. Asynchronous.
  virtual void launch(void* operands, void* workspace, cudaStream_t s) const = 0;
  virtual std::int64_t bytes() const = 0;
  // What the library chose, as parameters of the sample (sim/FORMATS.md); empty: it does not say.
  virtual std::map<std::string, std::int64_t> chosen() const { return {}; }
};

// y = x W^T, as a linear layer's forward. Throws std::runtime_error where the library offers no
// algorithm.
std::unique_ptr<Product> make_gemm(const Gemm& g, Precision p);
std::unique_ptr<Product> make_conv(const Conv& c, Pass pass, Precision p);

}  // namespace ddpsim::calib::cuda
