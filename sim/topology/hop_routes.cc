#include "sim/topology/hop_routes.h"

#include <map>

namespace ddpsim::topology {

void find_hop_route(const Fabric& f, const std::vector<DeviceId>& devices, int from, int to,
                    int nic, Route& route) {
  const DeviceId a = devices[from];
  const DeviceId b = devices[to];
  if (nic < 0 || f.nvlink_domain(a, b) || f.host_of(a) == f.host_of(b))
    f.find_route(a, b, route);
  else
    f.find_route_by_nics(a, nic, b, nic, route);
}

void find_hop_links(const Fabric& f, const std::vector<DeviceId>& devices, int from, int to,
                    int nic, std::vector<LinkId>& links) {
  const DeviceId a = devices[from];
  const DeviceId b = devices[to];
  if (nic < 0 || f.nvlink_domain(a, b) || f.host_of(a) == f.host_of(b))
    f.find_links(a, b, links);
  else
    f.find_links_by_nics(a, nic, b, nic, links);
}

std::vector<std::vector<int>> ranks_by_host(const Fabric& f, const std::vector<DeviceId>& devices,
                                            bool racks) {
  std::vector<std::vector<int>> groups;
  std::map<int, std::size_t> group_of;  // by host, or by rack
  for (std::size_t r = 0; r < devices.size(); ++r) {
    const HostId host = f.host_of(devices[r]);
    auto [it, fresh] = group_of.emplace(racks ? f.group_of(host) : host.number, groups.size());
    if (fresh) groups.emplace_back();
    groups[it->second].push_back(static_cast<int>(r));
  }
  return groups;
}

}  // namespace ddpsim::topology
