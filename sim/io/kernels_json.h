// A Profile's `kernels` and `host.calls` as JSON (sim/FORMATS.md).
#pragma once

#include <vector>

#include "sim/io/codecs.h"
#include "sim/model/kernels.h"

namespace ddpsim::io {

KernelCosts read_kernel_costs(const Reader& r);
std::vector<CallCost> read_calls(const Reader& r);
OrderedJson write_kernel_costs(const KernelCosts& k);
OrderedJson write_calls(const std::vector<CallCost>& calls);

}  // namespace ddpsim::io
