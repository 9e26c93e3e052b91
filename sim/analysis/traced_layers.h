// When each layer of an iteration's forward ran: what shards weights by layer needs to know.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/trace.h"

namespace ddpsim::analysis {

// As `times.layers` of a captured Workload: from its begin to that of the next, or to forward's
// end.
struct TracedLayer {
  std::string name;
  std::vector<std::size_t> arrivals;  // whose gradients are its parameters'
  Duration forward;
  Duration host_forward;  // GPU
};

// In order of execution. `modules`: of each arrival, the module that owns the parameter; "" = not
// known: parameters of one operator are a layer. Empty: the trace does not tell where in forward
// one of them was used.
std::vector<TracedLayer> layers_of(const Trace& trace, const TracedStep& step,
                                   const std::vector<std::string>& modules);

}  // namespace ddpsim::analysis
