// DDP's bucket assignment. Source: PyTorch reducer.cpp, compute_bucket_assignment_by_size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/model/plan.h"
#include "sim/model/workload.h"

namespace ddpsim::systems {

enum class Order { Registration, Explicit };

// Walks `order`; per dtype, appends a tensor to the open bucket and closes it when its bytes are >=
// the limit (the tensor that overflows stays in). Limits are consumed per dtype, the last one
// repeats. Registration: buckets sorted by smallest index. Explicit: in the order of closing,
// left-overs last, the dtype seen last first (libstdc++'s unordered_map). REQUIRES: limits not
// empty, indices within tensors.
std::vector<std::vector<TensorIndex>> assign_buckets(std::span<const Tensor> tensors,
                                                     std::span<const TensorIndex> order,
                                                     std::span<const std::int64_t> limits,
                                                     Order kind);

// Buckets of the first iteration, in launch order: one per dtype with default flags; [first, cap]
// reversed with find_unused_parameters.
std::vector<std::vector<TensorIndex>> initial_buckets(const Workload& w, const Plan& plan);
// Buckets after the rebuild, in launch order, from the order in which gradients were marked ready.
std::vector<std::vector<TensorIndex>> rebuilt_buckets(const Workload& w, const Plan& plan,
                                                      std::span<const TensorIndex> ready_order);
// The order in which a synchronised backward marks gradients ready: unused ones at the first hook
// (static_graph), then arrival.
std::vector<TensorIndex> ready_order(const Workload& w, const Plan& plan);
// Whether DDP forms its buckets anew after the first step.
bool rebuilds(const Plan& plan);
// Buckets of every steady step, in launch order.
std::vector<std::vector<TensorIndex>> steady_buckets(const Workload& w, const Plan& plan);
// broadcast_coalesced's groups of buffers (250 MiB, per dtype).
std::vector<std::vector<TensorIndex>> buffer_groups(const Workload& w);

}  // namespace ddpsim::systems
