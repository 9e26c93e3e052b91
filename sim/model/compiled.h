// A described workload as torch.compile's Inductor runs it: what lies between two products is one
// kernel, products' operands are aligned, images lie channels last.
//
// Sources: torch/_inductor (scheduler.py: pointwise kernels and reductions over the same elements
// fuse; graph.py, decide_layout_opt; fx_passes/pad_mm.py) and torch/_functorch/partitioners.py
// (backward computes cheap operators again, so forward keeps what products read and made). What the
// kernels take was measured: kernel names and times of GPT-2 small on an H200, docs/model.md 5.1.
#pragma once

#include <cstdint>

#include "sim/model/workload.h"

namespace ddpsim {

// Kinds of the layers that fused kernels stand for (LayerOp::kind). Their bytes are as moved: no
// precision scales them.
inline constexpr const char* kFusedPointwise = "fused_pointwise";
inline constexpr const char* kFusedReduction = "fused_reduction";  // with a norm or a softmax
inline constexpr const char* kFusedLoss = "fused_loss";
inline constexpr const char* kFused = "fused";  // inside the kernel of a later layer: no cost

bool is_fused(const LayerOp& op);

// Layer by layer: the last layer of a kernel has its costs and what it keeps, the others none.
// Kernels end at blocks' borders where each block is compiled by itself, or checkpointed. REQUIRES:
// w described.
Workload compiled(const Workload& w);
// False: the layer runs eagerly.
bool is_compiled(const Workload& w, const Layer& l);

// Inductor pads operands of halves to multiples of 16 bytes, of four-byte elements too.
std::int64_t padded(std::int64_t elements, Precision p);

}  // namespace ddpsim
