// Ways between ranks, which are devices in some order.
#pragma once

#include <vector>

#include "sim/topology/fabric.h"

namespace ddpsim::topology {

// The way from one rank to another, between hosts by this NIC at both ends (-1 = each device's
// own). Reuses the storage of `route`.
void find_hop_route(const Fabric& fabric, const std::vector<DeviceId>& devices, int from, int to,
                    int nic, Route& route);
void find_hop_links(const Fabric& fabric, const std::vector<DeviceId>& devices, int from, int to,
                    int nic, std::vector<LinkId>& links);

// Ranks of each host (of each rack, where NVLinks span its hosts: `racks`), hosts in the order of
// their first rank.
std::vector<std::vector<int>> ranks_by_host(const Fabric& fabric,
                                            const std::vector<DeviceId>& devices,
                                            bool racks = false);

}  // namespace ddpsim::topology
