// copied = min over a device's links to its CPU of bandwidth * efficiency / ranks that use it;
// touched = the host's bandwidth / ranks of the host. Of all ranks, the least.
#include "sim/predict/host_memory.h"

#include <algorithm>
#include <map>

#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

std::vector<topology::LinkId> links_to_cpu(const topology::Fabric& fabric, DeviceId device) {
  std::vector<topology::LinkId> out;
  if (!fabric.drawn()) return out;
  const HostId host = fabric.host_of(device);
  for (std::uint32_t local : fabric.inside(host).to_cpu(fabric.local_of(device)).links)
    out.push_back(fabric.inside_link(host, local));
  return out;
}

}  // namespace

bool uses_host_memory(const Question& q) {
  return offloads(q.scenario.plan) || stages_collectives(q.scenario.plan, q.profile.kind) ||
         (q.profile.kind == DeviceKind::Gpu &&
          stages_on_hosts(q.scenario.plan, q.scenario.ranks, q.fabric.cluster().devices_per_host));
}

Problem check_host_memory(const Question& q) {
  const bool plan = uses_host_memory(q);
  const bool input = q.scenario.input && q.scenario.input->bytes_per_sample > 0;
  if (!plan && !input) return {};
  const std::string what = plan ? "the plan copies" : "input is copied";
  if (q.profile.kind != DeviceKind::Gpu && input)
    return {"/input/bytes_per_sample", "input is copied to GPUs; a CPU has it in its memory"};
  const Cluster& cluster = q.fabric.cluster();
  for (DeviceId device : devices_of(q.scenario))
    if (links_to_cpu(q.fabric, device).empty())
      return {"/cluster/inside",
              what + " between GPUs and their hosts, and cluster \"" + cluster.name +
                  "\" draws no PCIe (or C2C) link from GPU " +
                  std::to_string(q.fabric.local_of(device)) +
                  " to a CPU; dgx-h100, hgx-h200, a100-pcie-8 and gh200x4-slingshot do, and "
                  "cluster.inside can (docs/formats.md, pcie_tree)"};
  for (DeviceId device : devices_of(q.scenario))
    for (topology::LinkId link : links_to_cpu(q.fabric, device))
      if (const std::string& name = q.fabric.transports()[q.fabric.links()[link].transport];
          !q.profile.transports.count(name))
        return {"/cluster", what + " between GPUs and their hosts over transport \"" + name +
                                "\", which profile \"" + q.profile.name + "\" does not have"};
  const bool by_cores = plan && !stages_collectives(q.scenario.plan, q.profile.kind);
  if (by_cores && cluster.host_memory.bits_per_s <= 0)
    return {"/cluster/host_memory",
            std::string(offloads(q.scenario.plan) ? "the plan updates weights on the host's CPUs"
                                                  : "the plan sums gradients on the host's CPUs") +
                ", and what their memory's bandwidth is cluster \"" + cluster.name +
                "\" does not say: --set cluster.host_memory=300GB/s, as STREAM measures it with "
                "all cores of a host"};
  return {};
}

systems::HostMemory host_memory(const Question& q, Level level) {
  const topology::Fabric& fabric = q.fabric;
  std::map<topology::LinkId, int> users;
  std::map<HostId, int> ranks_of;
  for (DeviceId device : devices_of(q.scenario)) {
    ++ranks_of[fabric.host_of(device)];
    for (topology::LinkId link : links_to_cpu(fabric, device)) ++users[link];
  }
  systems::HostMemory out;
  for (DeviceId device : devices_of(q.scenario)) {
    Duration latency = q.profile.memory.kernel;
    for (topology::LinkId id : links_to_cpu(fabric, device)) {
      const topology::Link& link = fabric.links()[id];
      const auto& transport =
          q.profile.transports.find(fabric.transports()[link.transport])->second;
      const double rate =
          link.bandwidth.bytes_per_ps() * at(transport.efficiency, level) / users[id];
      out.copied = out.copied > 0 ? std::min(out.copied, rate) : rate;
      latency += link.latency;
    }
    out.latency = std::max(out.latency, latency);
  }
  int most = 1;
  for (const auto& [host, ranks] : ranks_of) most = std::max(most, ranks);
  out.touched = fabric.cluster().host_memory.bytes_per_ps() / most;
  return out;
}

}  // namespace ddpsim::predict
