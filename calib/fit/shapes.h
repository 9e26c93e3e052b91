// What is measured: shapes that layers of real models have, the most telling first, so that a clock
// that runs out costs the least. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/model/kernels.h"
#include "sim/model/workload.h"

namespace ddpsim::calib {

// C (m x n) = A (m x k) B (k x n); of a linear layer: m = tokens, n = outputs, k = inputs.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
};
// NCHW; square images and kernels. pad keeps the size at stride 1.
struct Conv {
  std::int64_t batch = 0, channels = 0, size = 0, filters = 0, kernel = 0, stride = 1;
  std::int64_t pad() const { return kernel / 2; }
  std::int64_t out_size() const { return (size + 2 * pad() - kernel) / stride + 1; }
};
using ddpsim::Pass;
// How cuDNN's algorithm of a convolution was chosen: the parameter `mode` of a sample, absent in
// Runs from before it was said, which are Heuristics.
enum class ConvMode : std::uint8_t { Heuristics, Benchmark };

std::vector<Gemm> gemm_shapes();
std::vector<Conv> conv_shapes();
std::vector<std::int64_t> memory_elements();   // of one tensor, float32
std::vector<std::int64_t> collective_bytes();  // 8 B to 1 GiB, by factors of 4

std::int64_t element_bytes(Precision p);
double flops(const Gemm& g);
double bytes(const Gemm& g, Precision p);  // each matrix once
double flops(const Conv& c);               // of any pass, direct
double bytes(const Conv& c, Precision p);

// Parameters of the sample of a shape, as in a Run (docs/formats.md): precision is the index of
// sim/model/workload.h's Precision.
std::map<std::string, std::int64_t> parameters(const Gemm& g, Precision p);
std::map<std::string, std::int64_t> parameters(const Conv& c, Pass pass, Precision p);

// A fit does not see this shape: one in three, by the hash of operation and parameters, less what
// is said of the reading (clock and power) and of how it was done (pass, precision, layout, mode):
// all ways of a shape are left out together.
bool held_out(const std::string& op, const std::map<std::string, std::int64_t>& parameters);

}  // namespace ddpsim::calib
