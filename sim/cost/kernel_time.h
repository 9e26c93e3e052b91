// What one kernel takes by a Profile's `kernels`: products by tiles and waves, traffic, attention.
// Pure arithmetic on doubles in a fixed order (no exp, log or pow); picoseconds.
#pragma once

#include <vector>

#include "sim/model/kernels.h"

namespace ddpsim::predict {

// One core of a CPU (sms = 1): products have no waves of tiles; their operands are packed before
// they are multiplied (`conversion` times their bytes), and what is computed of each element
// matters.
inline bool is_core(const KernelCosts& k) {
  return k.sms == 1;
}

// C (rows x columns) = A (rows x sum) B (sum x columns), `count` of them in one kernel.
struct Product {
  double rows = 0;
  double columns = 0;
  double sum = 0;
  double count = 1;
  double bytes = 0;  // of all operands, each once
  int aligned = 16;  // rows of the operands begin at multiples of so many bytes: 16, 8, 4 or 2
  Pass pass = Pass::Forward;
};

// Bytes that divide a row of `elements` of this precision: 16, 8, 4 or 2.
int alignment(std::int64_t elements, Precision p);
// Bytes of one element.
double element_bytes(Precision p);

// Of y = x W: x (rows x inputs), W (inputs x outputs).
Product linear_product(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, Pass pass,
                       Precision p);

// Square images and filters, NHWC, `out` = side of the result. `groups` divides channels and
// filters: as many products of channels / groups by filters / groups, in one kernel.
// As a number of elements or operations.
template <class... Factors>
constexpr double product_of(Factors... factors) {
  return (1.0 * ... * static_cast<double>(factors));
}

struct ConvShape {
  std::int64_t batch = 0, channels = 0, size = 0, filters = 0, kernel = 0, out = 0, groups = 1;
};
Product conv_product(const ConvShape& c, Pass pass, Precision p);
// On one core PyTorch takes its own convolution of 1 x 1 without a stride for fewer than 16
// samples, oneDNN's for all others (aten/src/ATen/native/Convolution.cpp, use_mkldnn): a product a
// sample.
bool is_by_samples(const ConvShape& c);
Product by_samples_product(const ConvShape& c, Pass pass, Precision p);
// Bytes of the image, the result and the filters: what a convolution in NCHW converts.
double conv_bytes(const ConvShape& c, Precision p);
// Three conversions between NCHW and NHWC, of so many bytes together.
double conversion_ps(double bytes, const ProductCost& c, const KernelCosts& k);

// A way to cut a product into tiles: what depends on its shape alone.
struct Cut {
  std::size_t tile = 0;  // index into kTiles
  double waves = 0;
  double flops = 0;  // of the tile of one SM in one wave
  double parts = 1;  // that each sum is split into
};
// Cuts worth a look, the same for every GPU with so many SMs.
std::vector<Cut> cuts_of(const Product& q, int sms);

// fixed + (shortest cut ^ 4 + traffic ^ 4) ^ (1/4), where a cut takes
//   waves (flops / (rate / SMs * tile * unaligned * pass) + wave) + split + traffic of its parts
// on a core: fixed + count (flops / (rate * unaligned * pass) + wave) + conversion * traffic
double product_ps(const Product& q, const std::vector<Cut>& cuts, const ProductCost& c,
                  const KernelCosts& k);
double product_ps(const Product& q, const ProductCost& c, const KernelCosts& k);
// Convolution of either layout: in NCHW the product in NHWC and its conversions,
// or, of 1 x 1 at stride 1, a product with the pixels as rows, whichever is shorter.
double conv_ps(const ConvShape& s, Pass pass, bool channels_last, const ProductCost& c,
               const KernelCosts& k);

// `traffic` bytes by `kernels` kernels.
double memory_ps(double traffic, double kernels, const MemoryCost& c, const KernelCosts& k);

struct AttentionShape {
  std::int64_t batch = 0, heads = 0, sequence = 0, dim = 0;
  bool causal = false;
};
// Launches of an optimizer's multi-tensor kernels, or kernels of a loop over parameters.
double optimizer_launches(const Optimizer& o, double tensors, double elements);

// Operations that matter: a causal one skips half. Backward does 2.5 times those of forward.
double attention_flops(const AttentionShape& a, bool backward);

// Waves of tiles of 128 rows; backward does 2.5 times the operations of forward.
double attention_ps(const AttentionShape& a, const AttentionCost& c, const KernelCosts& k);

}  // namespace ddpsim::predict
