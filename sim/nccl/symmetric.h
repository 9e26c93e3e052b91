// What NCCL runs instead of a ring, a tree or NVLS where a program's buffers are registered as
// symmetric windows (ncclCommWindowRegister with NCCL_WIN_COLL_SYMMETRIC, 2.27 on): one kernel that
// loads from and stores to the other GPUs' buffers. The choice and the estimate are NCCL's own; its
// numbers are the same from 2.27 to 2.30. No table or Run of such kernels is known here.
// Source: NCCL src/symmetric.cc (2.27), src/sym_kernels.cc (2.28 on).
// Of GPUs behind NVSwitches. Not here: GPUs that reach one another otherwise, kernels of several
// nodes (2.29 on, through GIN), those by TMA (NCCL_SYM_TMA_ENABLE=1, off by default), and
// collectives by copy engines (NCCL_CTA_POLICY=2).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/nccl/choose.h"

namespace ddpsim::nccl {

struct SymmetricKernel {
  std::string_view name;  // as NCCL_SYM_KERNEL takes it
  int blocks = 0;         // thread blocks, each on an SM of its own
  Microseconds estimate;  // NCCL's
};

// Of one operation of `bytes` (as nccl-tests states it), a sum of floating-point numbers of at most
// 32 bits, both buffers registered. none: this version, operation, size or system has no such
// kernel. `settings`: NCCL_MIN_CTAS and NCCL_MAX_CTAS.
std::optional<SymmetricKernel> symmetric_kernel(const System& s, const Settings& settings,
                                                Operation op, std::int64_t bytes);

}  // namespace ddpsim::nccl
