// Matrix products (cuBLASLt) and convolutions (cuDNN), set up once and launched many times.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "calib/fit/shapes.h"

namespace ddpsim::calib::cuda {

// Bytes that a matrix product may take, as PyTorch's default for cuBLASLt on Hopper.
inline constexpr std::int64_t kWorkspace = 32ll << 20;

class Product {
 public:
  virtual ~Product() = default;
  // `operands`, `workspace`: bytes() and workspace() of device memory. Asynchronous.
  virtual void launch(void* operands, void* workspace, cudaStream_t s) const = 0;
  virtual std::int64_t bytes() const = 0;
  virtual std::int64_t workspace() const = 0;
  // What the library chose, as parameters of the sample (docs/formats.md); empty: it does not say.
  virtual std::map<std::string, std::int64_t> chosen() const { return {}; }
};

// y = x W^T, as a linear layer's forward. Throws std::runtime_error where the library offers no
// algorithm.
std::unique_ptr<Product> make_gemm(const Gemm& g, Precision p);

// How PyTorch chooses a convolution's algorithm (aten/src/ATen/native/cudnn/Conv_v8.cpp):
//   heuristics (torch.backends.cudnn.benchmark = False, its default): cuDNN's heuristics name
//     engines, the best first; the first that runs is taken, whatever workspace it needs, as long
//     as the allocator finds it.
//   benchmark (= True): of what heuristics and the list of fallbacks name, engines whose workspace
//     is at most the largest block that the allocator can get are timed once each, benchmark_limit
//     (10) of them, and the fastest is taken.
// Conv_v7.cpp does the same with cudnnGetConvolution*Algorithm_v7, and with
// cudnnFindConvolution*AlgorithmEx over all algorithms of the pass with the largest workspace that
// one of them asks for and that block holds. These are asked here: they number what they chose.
// cuDNN's other interface has more engines than these have algorithms, and PyTorch may get another
// kernel. In both modes workspace has one limit: what the device has left, which is less in
// training.
//
// `limit`: bytes that a workspace may take. In benchmark mode each algorithm runs: on `operands`
// (enough for the shape, overwritten), in what `workspace(bytes)` hands out, on stream `s`.
struct Trial {
  void* operands = nullptr;
  std::function<void*(std::int64_t bytes)> workspace;
  cudaStream_t s = nullptr;
};
std::unique_ptr<Product> make_conv(const Conv& c, Pass pass, Precision p, std::int64_t limit);
std::unique_ptr<Product> make_conv(const Conv& c, Pass pass, Precision p, std::int64_t limit,
                                   const Trial& benchmark);

}  // namespace ddpsim::calib::cuda
