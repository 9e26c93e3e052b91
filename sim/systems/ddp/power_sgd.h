// PyTorch's PowerSGD hook: what of a bucket is sent as two thin matrices, and how.
#pragma once

#include <span>

#include "sim/systems/base/builder.h"
#include "sim/systems/base/record.h"
#include "sim/systems/ddp/plan.h"

namespace ddpsim::systems {

// Elements of a bucket. A parameter of n rows and m columns (all its other dimensions) becomes
// n x r and m x r numbers, r = min(n, m, matrix_approximation_rank), if
// (n + m) r x min_compression_rate < n m.
struct PowerSgdParts {
  std::int64_t whole = 0;  // reduced as they are
  std::int64_t whole_tensors = 0;
  std::int64_t compressed = 0;  // of the parameters that become matrices
  std::int64_t matrices = 0;
  std::int64_t p = 0;  // n x r of all
  std::int64_t q = 0;  // m x r
  std::int64_t wire() const { return whole + p + q; }
};
PowerSgdParts power_sgd_parts(const Workload& w, const std::vector<TensorIndex>& tensors,
                              const DdpPlan& plan);

// The hook of bucket k, in a step in which it compresses: three all-reduces, each after the one
// before. `stream`: of its futures' callbacks (GPU). Returns what makes the bucket's gradients.
std::uint32_t reduce_by_power_sgd(StepBuilder& b, std::uint32_t k, const PowerSgdParts& parts,
                                  const DdpPlan& plan, Lane stream);

// What the hook keeps between steps: the error of each bucket, and its thin matrices.
std::int64_t power_sgd_bytes(const Workload& w, const Plan& plan);

// What cannot be: over Gloo with several buckets the hook ends with an error.
Problem check_power_sgd(const Plan& plan, const Workload& w, DeviceKind device);

std::span<const OpWord> power_sgd_words();

}  // namespace ddpsim::systems
