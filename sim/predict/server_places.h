// Where a job's parameter servers are.
#pragma once

#include <vector>

#include "sim/model/program.h"
#include "sim/predict/host_memory.h"
#include "sim/predict/predict.h"

namespace ddpsim::predict {

// Of each server, a device of its host whose NIC it uses: on the ranks' hosts in turn, or on hosts
// without a rank, one each, in their order. REQUIRES: check_servers found nothing.
std::vector<DeviceId> server_devices(const topology::Fabric& fabric,
                                     const std::vector<DeviceId>& ranks, const Servers& servers);
// Hosts without a rank that are not there, or cannot be reached.
Problem check_server_places(const topology::Fabric& fabric, const std::vector<DeviceId>& ranks,
                            const Servers& servers);
// What keeps a plan's servers from having an answer.
Problem check_servers(const Question& q);

// What a server can read and write of its host's memory; none = the cluster does not say it.
std::optional<systems::HostMemory> server_memory(const Question& q, const Servers& servers,
                                                 Level level);

}  // namespace ddpsim::predict
