#include "sim/nccl/fabric/peers.h"

#include <algorithm>

#include "sim/nccl/nth.h"
#include "sim/topology/hop_routes.h"

namespace ddpsim::nccl {
namespace {

PathType p2p_level(const Settings& set, const topology::Fabric& f, int gpus) {
  return set.p2p_level.value_or(default_p2p_level(set.version, f.cluster().nccl.cpu, gpus));
}

// A type is that of the usual way. Over NVLink the GPUs have access; over PCIe if the machine does.
bool has_access(PathType level, const topology::Fabric& f, PathType type) {
  return type <= level && (type <= PathType::Nvb || f.cluster().nccl.peer_access);
}

bool same_host(const topology::Fabric& f, DeviceId a, DeviceId b) {
  return f.host_of(a) == f.host_of(b);
}

bool has_peer_access(const Group& g, DeviceId a, DeviceId b) {
  const topology::Fabric& f = *g.fabric;
  auto gpus = static_cast<int>(g.nodes.front().size());
  return has_access(p2p_level(g.settings, f, gpus), f, f.path_type(a, b));
}

bool by_memory(const Group& g, DeviceId a, DeviceId b) {
  return !g.to_memory.empty() && same_host(*g.fabric, a, b) && !has_peer_access(g, a, b);
}

}  // namespace

PathType default_p2p_level(Version v, HostCpu cpu, int gpus) {
  if (v.has(Change::PeersOfOneSwitch))
    return cpu == HostCpu::Amd && gpus <= 2 ? PathType::Sys : PathType::Pxb;
  if (!v.has(Change::PeersNotThroughIntel)) return PathType::Phb;
  return cpu == HostCpu::Intel || cpu == HostCpu::Arm ? PathType::Pxb : PathType::Sys;
}

PathType path_type_inside(const Group& g, DeviceId a, DeviceId b) {
  return by_memory(g, a, b) ? g.fabric->path_type_by_cpu(a, b) : g.fabric->path_type(a, b);
}

void find_route_inside(const Group& g, DeviceId a, DeviceId b, topology::Route& route) {
  if (by_memory(g, a, b))
    g.fabric->find_route_by_cpu(a, b, route);
  else
    g.fabric->find_route(a, b, route);
}

void find_hop_route(const Group& g, int from, int to, int nic, topology::Route& route) {
  const DeviceId a = nth(g.devices, from);
  const DeviceId b = nth(g.devices, to);
  if (same_host(*g.fabric, a, b))
    find_route_inside(g, a, b, route);
  else
    topology::find_hop_route(*g.fabric, g.devices, from, to, nic, route);
}

void find_hop_links(const Group& g, int from, int to, int nic,
                    std::vector<topology::LinkId>& links) {
  const DeviceId a = nth(g.devices, from);
  const DeviceId b = nth(g.devices, to);
  if (!by_memory(g, a, b))
    return topology::find_hop_links(*g.fabric, g.devices, from, to, nic, links);
  topology::Route route;
  g.fabric->find_route_by_cpu(a, b, route);
  links = std::move(route.links);
}

std::vector<bool> links_to_memory(const Group& g) {
  const topology::Fabric& f = *g.fabric;
  std::vector<bool> out;
  topology::Route route;
  for (const auto& node : g.nodes)
    for (int x : node)
      for (int y : node) {
        const DeviceId a = nth(g.devices, x);
        const DeviceId b = nth(g.devices, y);
        if (a == b || !same_host(f, a, b) || has_peer_access(g, a, b)) continue;
        f.find_route_by_cpu(a, b, route);
        out.resize(f.links().size());
        for (topology::LinkId l : route.links)
          if (f.links()[l].kind == topology::LinkKind::Pcie) out[l] = true;
      }
  return out;
}

Problem check_peers(const topology::Fabric& f, const std::vector<DeviceId>& devices,
                    const Settings& set) {
  for (const auto& node : nodes_of(f, devices)) {
    PathType level = p2p_level(set, f, static_cast<int>(node.size()));
    for (int x : node)
      for (int y : node) {
        const DeviceId a = nth(devices, x);
        const DeviceId b = nth(devices, y);
        if (a == b || has_access(level, f, f.path_type(a, b))) continue;
        std::string who = "GPUs " + std::to_string(f.local_of(a)) + " and " +
                          std::to_string(f.local_of(b)) + " of host " + to_string(f.host_of(a));
        if (!same_host(f, a, b))
          return {"/plan/environment",
                  "without P2P (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL) GPUs of an "
                  "NVLink rack are no longer one node; ddpsim does not model "
                  "that"};
        if (!set.shared_memory)
          return {"/plan/environment/NCCL_SHM_DISABLE",
                  who +
                      " have no peer access, and NCCL would send between them through the host's "
                      "network interface; ddpsim does not model that"};
        if (f.path_type_by_cpu(a, b) == PathType::Dis)
          return {"/inside", who +
                                 " have no peer access, and no way through the host's memory is "
                                 "drawn; draw PCIe (inside.pcie)"};
      }
  }
  return {};
}

}  // namespace ddpsim::nccl
