// T of a ring is Gloo's (ring.cc), where a byte takes the slower of
//   1 / socket_rate     the rank's thread
//   load / rate         the busiest link of the network, of the hops between hosts
#include "sim/collective/backend/sockets.h"

#include <algorithm>

#include "sim/units/convert.h"

namespace ddpsim::collective {
namespace {

// Typical of Gloo over Linux TCP, as calib/profiles/cpu-generic.datasheet.json has it: 30 us to
// wake a worker and start an operation, 15 us a message. One thread: 1.85 to 1.95 GB/s while it
// receives as much on cloud hosts (NVIDIA/nccl issue 209, whose sockets are served alike), 2.6 GB/s
// over the loopback of H100 hosts (calib/profiles/h100-sxm.one-gpu.json).
TransportSection typical_sockets() {
  TransportSection t;
  t.launch = Duration{30'000'000};
  t.latency = Duration{15'000'000};
  t.efficiency = {0.85, 0.92, 0.97};
  t.thread_bytes_per_s = Range{1.85e9, 2.2e9, 2.6e9};
  return t;
}
const TransportSection kTypicalSockets = typical_sockets();
// One thread that adds two arrays, 12 bytes of traffic for 4 bytes summed: the same profile.
constexpr double kTypicalSum = 4e9;

const TransportSection* own_section(const Profile& p) {
  auto it = p.transports.find("gloo");
  return it == p.transports.end() ? nullptr : &it->second;
}

}  // namespace

void find_socket_route(const topology::Fabric& f, DeviceId from, DeviceId to,
                       topology::Route& route) {
  route = {};
  if (f.host_of(from) == f.host_of(to)) return;
  f.find_route_by_nics(from, 0, to, 0, route);
  route.latency = {};
  std::erase_if(route.links,
                [&](topology::LinkId l) { return f.links()[l].kind != topology::LinkKind::Net; });
  for (topology::LinkId l : route.links) route.latency += f.links()[l].latency;
}

const TransportSection& socket_section(const Profile& p) {
  const TransportSection* own = own_section(p);
  return own ? *own : kTypicalSockets;
}

double socket_rate(const Profile& p, Level level) {
  const TransportSection& t = socket_section(p);
  return per_ps(at(
      t.thread_bytes_per_s ? *t.thread_bytes_per_s : *kTypicalSockets.thread_bytes_per_s, level));
}

double socket_sum_rate(const Profile& p) {
  return per_ps(p.reduction_bytes_per_s > 0 ? p.reduction_bytes_per_s : kTypicalSum);
}

std::string socket_assumptions(const Profile& p) {
  if (own_section(p) && p.reduction_bytes_per_s > 0) return {};
  return "what Gloo takes on the hosts' CPUs (30 us a collective, 15 us a message, 1.85 to 2.6 "
         "GB/s a rank, sums at 4 GB/s) is typical and was not measured: profile \"" +
         p.name + "\" has no transport \"gloo\" and no section \"reduction\"";
}

}  // namespace ddpsim::collective
