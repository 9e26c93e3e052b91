// Published times of single kernels beside predictions: what the profiles of GPUs that nobody here
// measured say of products, judged by source, GPU and size.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/model/profile.h"
#include "sim/units/units.h"

namespace ddpsim::validation {

// y = x W: x (rows x inputs), W (inputs x outputs).
struct PublishedKernel {
  std::string source;   // its file's name
  std::string profile;  // shipped
  std::string gpu;      // as printed
  Precision precision = Precision::Fp16;
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  Duration measured;
};

struct KernelResult {
  PublishedKernel row;
  Duration predicted;
  double error() const { return predicted / row.measured - 1; }
};
// REQUIRES: `profile` has costs of products in the row's precision.
KernelResult predict_kernel(const PublishedKernel& row, const Profile& profile);

struct KernelLine {
  std::string what;  // "gpu A40", "gpu A40, 10 to 100 GFLOP"
  std::size_t rows = 0;
  std::size_t sources = 0;
  double bias = 0;    // median error
  double median = 0;  // of |error|
  double p95 = 0;
  double rate = 0;  // median of what was measured, FLOP/s
};
struct KernelsReport {
  std::vector<KernelLine> lines;  // all, each GPU, each GPU by size
};
KernelsReport judge_kernels(const std::vector<KernelResult>& results);
// "a100-sxm4-80gb.datasheet.median", ".bias", ".p95"; "all.median".
std::map<std::string, double> values(const std::vector<KernelResult>& results);

}  // namespace ddpsim::validation
