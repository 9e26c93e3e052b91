// What the samples of operators say, as points of the forms of sim/cost/kernel_time.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cost/kernel_time.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

// A matrix product or a convolution that was measured.
struct ProductPoint {
  std::string kernel;  // "gemm", "conv"
  Precision precision = Precision::Fp32;
  predict::Product product;
  std::vector<predict::Cut> cuts;
  bool contiguous = false;        // conv in NCHW
  double converted = 0;           // bytes that NCHW converts
  std::optional<int> as_product;  // alignment of the pixels' rows: NCHW, 1 x 1 at stride 1
  double flops = 0;
  double ps = 0;  // median
  bool held_out = false;
};

struct MemoryPoint {
  std::string op;
  bool backward = false;
  bool halves = false;
  bool channels_last = false;
  double traffic = 0;  // bytes that a described layer counts for it
  double kernels = 1;
  double ps = 0;
  bool held_out = false;
};

struct AttentionPoint {
  bool backward = false;
  bool halves = false;
  bool flash2 = false;
  predict::AttentionShape shape;
  double ps = 0;
  bool held_out = false;
};

struct Points {
  std::vector<ProductPoint> products;
  std::vector<MemoryPoint> memory;
  std::vector<AttentionPoint> attention;
};

// Where PyTorch's own operators were measured, ddpsim's bench of the same is left aside.
Points points_of(int sms, const std::vector<const Run*>& runs);

double time_of(const ProductPoint& q, const ProductCost& c, const KernelCosts& k);

}  // namespace ddpsim::calib
