// ZeRO++'s qgZ: gradients of stage 3 as int4, exchanged by all-to-alls inside hosts, summed there,
// and exchanged once more between them.
#pragma once

#include <vector>

#include "sim/systems/zero/zero_step.h"

namespace ddpsim::systems {

inline constexpr OpWord kInterleave = zero_word("interleave/bucket.", Does::Copy, Phase::Backward);
inline constexpr OpWord kScatterBucket = zero_word("reduce_scatter/bucket.", Does::Communicate,
                                                   Phase::Backward, Operation::ReduceScatter);

std::span<const OpWord> zero_exchange_words();

// Of these gradients, one after another on the stream of reductions: a bucket of its own each. The
// last one's number. REQUIRES: exchanges_gradients, check_quantised found nothing; not empty.
std::uint32_t exchange_gradients(ZeroStep& s, const ZeroJob& job,
                                 const std::vector<TensorIndex>& tensors);

}  // namespace ddpsim::systems
