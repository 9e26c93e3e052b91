// How NVIDIA Apex's DistributedDataParallel puts gradients into buckets.
#pragma once

#include <vector>

#include "sim/model/plan.h"
#include "sim/model/workload.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// The first step records the order of gradients and reduces after backward.
Program lower_apex(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> apex_words();
Problem validate_apex(const Plan& p, const Workload& w, DeviceKind device);

// From the second step on, in the order in which they are reduced. Of each type (half, float,
// double) by itself, in the order of arrival: a bucket ends with the gradient that brings it to
// message_size elements, or is one of allreduce_trigger_params; then what is left of each type.
std::vector<std::vector<TensorIndex>> apex_buckets(const Workload& w, const Plan& plan);
// Where everything is reduced after backward: one of each type, in registration order.
std::vector<std::vector<TensorIndex>> apex_fallback(const Workload& w, const Plan& plan);
// Launches of Apex's multi_tensor_scale over two lists of tensors of so many elements.
std::int64_t multi_tensor_launches(const std::vector<std::int64_t>& elements);

}  // namespace ddpsim::systems
