#include "sim/predict/server_places.h"

#include <algorithm>
#include <map>
#include <set>

#include "sim/cost/roofline.h"
#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

std::vector<HostId> hosts_of(const topology::Fabric& f, const std::vector<DeviceId>& devices) {
  std::vector<HostId> out;
  for (DeviceId d : devices)
    if (std::find(out.begin(), out.end(), f.host_of(d)) == out.end()) out.push_back(f.host_of(d));
  return out;
}

// Of other jobs, too, whose hosts are not free.
std::vector<HostId> free_hosts(const topology::Fabric& f, const std::vector<DeviceId>& devices) {
  std::set<HostId> taken;
  for (DeviceId d : devices) taken.insert(f.host_of(d));
  std::vector<HostId> out;
  for (HostId h : each<HostId>(f.cluster().hosts))
    if (!taken.count(h)) out.push_back(h);
  return out;
}

}  // namespace

std::vector<DeviceId> server_devices(const topology::Fabric& f, const std::vector<DeviceId>& ranks,
                                     const Servers& servers) {
  const std::vector<HostId> hosts = servers.own_hosts ? free_hosts(f, ranks) : hosts_of(f, ranks);
  const int per_host = f.cluster().devices_per_host;
  std::vector<DeviceId> out;
  for (int s = 0; s < servers.count; ++s) {
    const auto n = static_cast<int>(hosts.size());
    // Those of one host use its NICs in turn.
    out.push_back(f.device_of(hosts[s % n], s / n % per_host));
  }
  return out;
}

Problem check_server_places(const topology::Fabric& f, const std::vector<DeviceId>& devices,
                            const Servers& servers) {
  // A message between a GPU and its own host that costs nothing is no answer.
  if (!servers.own_hosts && f.cluster().device == DeviceKind::Gpu)
    for (DeviceId d : devices)
      if (!f.drawn() || f.inside(f.host_of(d)).to_cpu(f.local_of(d)).links.empty())
        return {"/plan/server_hosts",
                "shared: gradients go from GPUs to servers on their own hosts, and cluster \"" +
                    f.cluster().name +
                    "\" draws no PCIe (or C2C) link to a CPU; dgx-h100, hgx-h200, a100-pcie-8 and "
                    "gh200x4-slingshot do, or put servers on hosts of their own "
                    "(server_hosts=own, with cluster.hosts for them)"};
  if (!servers.own_hosts) return {};
  const auto there = free_hosts(f, devices).size();
  if (there < static_cast<std::size_t>(servers.count))
    return {"/plan/server_hosts",
            "own: " + std::to_string(servers.count) + " hosts without a worker are needed, and " +
                std::to_string(there) + (there == 1 ? " is" : " are") +
                " there (raise cluster.hosts, lower --ranks or servers; server_hosts=shared puts "
                "servers on the workers' hosts)"};
  std::vector<DeviceId> all = devices;
  for (DeviceId d : server_devices(f, devices, servers)) all.push_back(d);
  return topology::check_reachable(f, all);
}

Problem check_servers(const Question& q) {
  if (!servers_of(q.scenario.plan)) return {};
  const Servers servers = *servers_of(q.scenario.plan);
  const std::vector<DeviceId> devices = devices_of(q.scenario);
  if (auto m = collective::missing_transport(q.fabric, q.profile); !m.empty())
    return {"/cluster", "the cluster uses transport \"" + m + "\", which profile \"" +
                            q.profile.name + "\" does not have"};
  if (!q.scenario.other_jobs.empty())
    return {"/other_jobs", "beside parameter servers other jobs are not modelled: leave them out"};
  if (q.scenario.jitter)
    return {"/jitter",
            "is of ranks that wait for one another in each step; of parameter servers: slow_ranks"};
  constexpr int kMostApart = 64;
  constexpr double kMostRatio = 8;
  double slowest = 1;
  double fastest = std::ssize(q.scenario.slow_ranks) < q.scenario.ranks ? 1 : 1e300;
  for (const auto& [rank, factor] : q.scenario.slow_ranks) {
    slowest = std::max(slowest, factor);
    fastest = std::min(fastest, factor);
  }
  if (servers.apart() && q.scenario.ranks > kMostApart)
    return {"/ranks", "workers that go at their own pace are simulated one by one: at most " +
                          std::to_string(kMostApart) +
                          " (synchronous=true: as many as the cluster has)"};
  if (servers.apart() && slowest > kMostRatio * fastest)
    return {"/slow_ranks",
            "of workers that go at their own pace the slowest is at most 8 times as slow as the "
            "fastest"};
  return check_server_places(q.fabric, devices, servers);
}

std::optional<systems::HostMemory> server_memory(const Question& q, const Servers& servers,
                                                 Level level) {
  const std::vector<DeviceId> places = server_devices(q.fabric, devices_of(q.scenario), servers);
  std::map<HostId, int> of_host;
  int most = 1;
  for (DeviceId d : places) most = std::max(most, ++of_host[q.fabric.host_of(d)]);
  systems::HostMemory out;
  out.touched = q.profile.kind == DeviceKind::Cpu
                    ? memory_rate(q.profile, level) / most
                    : q.fabric.cluster().host_memory.bytes_per_ps() / most;
  if (!(out.touched > 0)) return std::nullopt;
  return out;
}

}  // namespace ddpsim::predict
