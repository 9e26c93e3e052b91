// What nn.DataParallel sends between its replicas.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/workload.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// One process on one host. REQUIRES: ranks are devices of one host.
Program lower_data_parallel(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> data_parallel_words();

// broadcast_coalesced's and reduce_add_coalesced's groups of tensors: of each type, in registration
// order, one ends with the tensor that brings it to 10 MiB (torch/csrc/utils/tensor_flatten.h
// take_tensors, torch/nn/parallel/comm.py buffer_size).
std::vector<std::vector<TensorIndex>> coalesced_groups(const std::vector<Tensor>& tensors);

// The layers at the end of forward that are its loss, from this one on; all of them: none is.
std::size_t first_loss_layer(const Workload& w);
// Of a sample: bytes of what these layers read, which the replicas return; 0 where the workload
// does not say it.
double output_bytes(const Workload& w);

}  // namespace ddpsim::systems
