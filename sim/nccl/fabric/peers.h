// Which GPUs of a host reach one another's memory (P2P); the others go through the host's: the
// sender's thread block writes into a buffer there, the receiver's reads it (SHM). Source: NCCL
// 2.28.9, src/graph/paths.cc (ncclTopoCheckP2p, ncclTopoComputePaths), src/transport/shm.cc;
// docs/model.md 7.1.
#pragma once

#include "sim/nccl/fabric/group.h"

namespace ddpsim::nccl {

// The farthest path over which NCCL uses P2P where the settings name none, between `gpus` GPUs of
// a host.
PathType default_p2p_level(Version v, HostCpu cpu, int gpus);
// The way that NCCL takes inside a host, and its path type; between hosts the usual one. REQUIRES:
// the group's to_memory is known.
PathType path_type_inside(const Group& g, DeviceId device_a, DeviceId device_b);
void find_route_inside(const Group& g, DeviceId device_a, DeviceId device_b,
                       topology::Route& route);
// As topology::find_hop_route, by that way inside a host.
void find_hop_links(const Group& g, int from, int to, int nic,
                    std::vector<topology::LinkId>& links);

// By LinkId: PCIe links through which GPUs of the group reach the host's memory; empty = all GPUs
// of a host have peer access.
std::vector<bool> links_to_memory(const Group& g);

}  // namespace ddpsim::nccl
