// The knobs of each system, in the order in which they are listed.
#pragma once

#include <span>

#include "sim/strategy/systems.h"

namespace ddpsim::strategy {

std::span<const KnobRecord> ddp_knobs();
std::span<const KnobRecord> averaging_knobs();
std::span<const KnobRecord> fsdp_knobs();
std::span<const KnobRecord> fsdp2_knobs();
std::span<const KnobRecord> horovod_knobs();
std::span<const KnobRecord> zero_knobs();
std::span<const KnobRecord> megatron_knobs();
std::span<const KnobRecord> zero_redundancy_knobs();
std::span<const KnobRecord> apex_knobs();
std::span<const KnobRecord> local_sgd_knobs();
// Its groups of ranks, and which numbers of ranks they leave (SystemRecord).
std::vector<RankGroups> local_sgd_groups(const Plan& plan, int ranks, int per_host);
Problem check_local_sgd_ranks(const Plan& plan, int ranks, int per_host);
std::span<const KnobRecord> mirrored_knobs();
std::span<const KnobRecord> parameter_server_knobs();
std::span<const KnobRecord> multi_worker_mirrored_knobs();
std::span<const KnobRecord> data_parallel_knobs();  // it has none

}  // namespace ddpsim::strategy
