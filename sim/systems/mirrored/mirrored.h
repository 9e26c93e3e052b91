// How TensorFlow's mirrored strategies put gradients into packs.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/plan.h"
#include "sim/model/program.h"
#include "sim/model/workload.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// Steps after the first, which builds the graph, are alike: there is no warm-up.
Program lower_mirrored(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> mirrored_words();
Problem validate_mirrored(const Plan& p, const Workload& w, DeviceKind device);

// group_by_size: in the reverse of registration order; a pack begins where the last one is already
// larger than bytes_per_pack (cross_device_utils.py). 0: one pack. REQUIRES: of collective
// operations.
std::vector<std::vector<TensorIndex>> tensorflow_packs(const Workload& w, const Plan& plan);

// ConcatAndSplitPacker's: so many parts of one flat copy, of equally many elements; the last one
// has what is left.
std::vector<std::int64_t> packed_parts(std::int64_t elements, std::int64_t packs);

// SystemRecord::groups and ::check.
std::vector<RankGroups> mirrored_groups(const Plan& plan, int ranks, int per_host);
Problem check_mirrored_ranks(const Plan& plan, int ranks, int per_host);

}  // namespace ddpsim::systems
