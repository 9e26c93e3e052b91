// What offloading to the hosts' memory takes on a cluster: copies over the links between devices
// and CPUs, and the cores' own work.
#pragma once

#include "sim/predict/predict.h"
#include "sim/systems/base/lower.h"

namespace ddpsim::predict {

// Why a plan that offloads, or input that is copied to the device, cannot be timed on this cluster;
// others always can.
Problem check_host_memory(const Question& q);
// Of the plan: it keeps something there, or reduces there.
bool uses_host_memory(const Question& q);

// All ranks of a host copy at once: each link's rate is shared equally by those whose way to the
// nearest CPU it is on, and the slowest rank's is the answer; the efficiency is that of the
// profile's transport. Not shared with NCCL's messages on the same links. The cores' rate is the
// host's over its ranks. REQUIRES: something is copied, check_host_memory(q) found nothing.
systems::HostMemory host_memory(const Question& q, Level level);

}  // namespace ddpsim::predict
