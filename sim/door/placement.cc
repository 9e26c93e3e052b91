#include "sim/door/placement.h"

#include <utility>

#include <fmt/format.h>

#include "sim/door/documents.h"
#include "sim/units/text.h"

namespace ddpsim::door {

Placing place_ranks(const Cluster& c, int ranks, const std::string& gpus_per_host, bool sized) {
  Placing out{ranks, c.devices_per_host, "", ""};
  if (!gpus_per_host.empty()) out.each = parse_gpus_per_host(gpus_per_host, c);
  if (out.ranks == 0) out.ranks = c.hosts * out.each;
  if (out.each <= 0 || out.ranks <= 0 || out.ranks > kMaxDevices) return out;
  const int hosts = (out.ranks - 1) / out.each + 1;
  if (hosts > c.hosts && c.pattern == Pattern::Star && !sized) {
    out.set = fmt::format("cluster.hosts={}", hosts);
    out.says = fmt::format("has {} devices; taken with --set {}", c.devices(), out.set);
  } else if (hosts > c.hosts && out.each < c.devices_per_host) {
    throw InputError{
        "--gpus-per-host " + gpus_per_host,
        fmt::format("{} ranks need {} hosts, and the cluster has {}", out.ranks, hosts, c.hosts)};
  } else if (hosts < c.hosts && sized && out.each == c.devices_per_host) {
    out.says =
        fmt::format("its {} ranks are on {} of {} hosts (--gpus-per-host says how many of each)",
                    out.ranks, hosts, c.hosts);
  }
  return out;
}

std::vector<DeviceId> devices_of(const Placing& p, const Cluster& c) {
  std::vector<DeviceId> out;
  for (int r = 0; r < p.ranks; ++r)
    out.push_back(DeviceId::at(r / p.each * c.devices_per_host + r % p.each));
  return out;
}

PlacedHardware load_placed_hardware(const Context& context, QuestionText flags) {
  const std::string each = std::exchange(flags.gpus_per_host, "");
  const int asked = flags.ranks.empty() ? 0 : parse_ranks(flags.ranks);
  PlacedHardware out{load_hardware(context, flags), 0, {}};
  const Cluster& c = out.hardware.cluster;
  const Placing p = place_ranks(c, asked, each, Settings(flags.sets).sizes_cluster());
  if (!p.says.empty()) context.note(printable(c.name) + ": " + p.says);
  if (!p.set.empty()) {
    flags.sets.push_back(p.set);
    out.hardware = load_hardware(context, flags);
  }
  const std::string flag = "--ranks " + std::to_string(p.ranks);
  if (p.ranks < 2) throw InputError{flag, "a collective has at least two ranks"};
  if (p.ranks > c.devices())
    throw InputError{flag, fmt::format("the cluster has {} devices", c.devices())};
  out.ranks = p.ranks;
  out.devices = devices_of(p, c);
  return out;
}

}  // namespace ddpsim::door
