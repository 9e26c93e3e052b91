// A Profile's `kernels` and `host.calls` as JSON (docs/formats.md).
#pragma once

#include <vector>

#include "sim/io/codecs.h"
#include "sim/model/profile.h"

namespace ddpsim::io {

// The section of a profile that carries its kernels over from another GPU, whose calls of the host
// it also takes where it has none of its own. REQUIRES: compute, memory and host of `p` are read.
void read_carried(const Reader& r, Profile& p);
KernelCosts read_kernel_costs(const Reader& r);
std::vector<CallCost> read_calls(const Reader& r);
OrderedJson write_kernel_costs(const KernelCosts& k);
OrderedJson write_calls(const std::vector<CallCost>& calls);

}  // namespace ddpsim::io
