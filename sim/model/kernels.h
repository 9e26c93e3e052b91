// What kernels of a training step cost on a measured GPU, by class: a Profile's section `kernels`.
// File format: docs/formats.md. Equations: docs/model.md, 2.5; how they are fitted:
// calib/fit/kernels.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/model/workload.h"
#include "sim/units/by.h"
#include "sim/units/units.h"

namespace ddpsim {

enum class Pass : std::uint8_t { Forward, DataGradient, WeightGradient };
inline constexpr By<Pass, const char*, 3> kPasses{"forward", "data_gradient", "weight_gradient"};
constexpr const auto& names_of(Pass) {
  return kPasses;
}

// measured / predicted of shapes that the fit did not see: 80 % lie between the ends. A kernel
// takes `slow` times as long as said at Level::Low, `quick` times at Level::High. 0 < quick <= 1 <=
// slow
struct Spread {
  double quick = 1;
  double slow = 1;
};

// Sides of the tiles that a product is cut into, rows and columns in either order.
struct TileShape {
  int longer = 0;
  int shorter = 0;
};
inline constexpr std::array<TileShape, 5> kTiles{TileShape{256, 128}, TileShape{128, 128},
                                                 TileShape{256, 64}, TileShape{128, 64},
                                                 TileShape{64, 64}};

// Matrix products of one precision, or convolutions, which are computed as such.
struct ProductCost {
  std::string kernel;  // "gemm" or "conv"
  Precision precision = Precision::Fp32;
  double flops_per_s = 0;  // of all SMs, by tiles of 256 x 128, aligned
  Duration fixed;          // of a kernel
  Duration wave;           // of one tile on each SM, beside its operations
  Duration split;          // of adding up the parts of a sum, beside its traffic
  std::array<double, kTiles.size()> tile{1, 1, 1, 1, 1};  // share of the rate, by kTiles
  // Rows of the operands begin at multiples of 8, 4 or 2 bytes only: share of the rate.
  std::array<double, 3> unaligned{1, 1, 1};
  By<Pass, double, 3> pass{1, 1, 1};  // share of the rate, by Pass: operands lie differently
  double conversion = 0;  // conv in NCHW: traffic of conversions, as a multiple of its activations
  // 3 x 3 convolutions at stride 1, forward and the gradient of data: so many times fewer
  // operations.
  double winograd = 1;
  Spread spread;
};

// Kernels that memory decides: fixed + traffic / (bandwidth * efficiency).
struct MemoryCost {
  std::string op;  // "batch_norm", "relu", ...
  bool backward = false;
  bool halves = false;         // its elements have two bytes
  bool channels_last = false;  // where that makes a difference
  Duration fixed;
  double efficiency = 1;  // of the traffic that a described layer counts: may exceed 1
  Spread spread;
};

// Fused attention: waves of 128 rows an SM, in blocks of 128 x 128 scores.
struct AttentionCost {
  bool backward = false;
  bool halves = false;
  bool flash2 = false;  // FlashAttention-2; absent: the kernel that PyTorch takes there
  double flops_per_s = 0;
  Duration fixed;
  Duration block;  // of one block, beside its products: exponentials
  Spread spread;
};

struct KernelCosts {
  std::string source;  // measured; on which GPU, with which software
  int sms = 0;
  double bandwidth_bytes_per_s = 0;  // that large element-wise kernels reach
  std::vector<ProductCost> products;
  std::vector<MemoryCost> memory;
  std::vector<AttentionCost> attention;
  std::string carried_from;  // the profile that was measured; empty = measured on this GPU
  double fed = 0;            // carried: multiply-adds of halves a clock and SM (predict/carry.h)
  // Measured / predicted of all kernels of a step together: not averaged. Of convolutional networks
  // (most of their operations are convolutions'), and of others.
  Spread common_conv;
  Spread common;
  // Of whoever wants to know which entries a computation asks for: takes where their spreads are,
  // once for each time.
  std::vector<const Spread*>* asked = nullptr;
};

// Host time of one call of the framework, as it was measured: forward with autograd recording, and
// the node of autograd in backward.
struct CallCost {
  std::string op;  // as MemoryCost::op, and "linear", "conv"
  Duration forward;
  Duration backward;
};

const ProductCost* find_product(const KernelCosts& k, const std::string& kernel, Precision p);
// The nearest that was measured: of this layout, then of any; of this op, then "add" (a plain
// element-wise kernel); nullptr if there is none.
const MemoryCost* find_memory(const KernelCosts& k, const std::string& op, bool backward,
                              bool halves, bool channels_last);
// Where FlashAttention-2 was not measured, or not in that precision: the other.
const AttentionCost* find_attention(const KernelCosts& k, bool backward, bool halves, bool flash2);

Problem validate(const KernelCosts& k);

}  // namespace ddpsim
