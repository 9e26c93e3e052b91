// push, pull: latency + S * max over links of (ranks whose way it is on / rate)
#include "sim/collective/backend/server.h"

#include <algorithm>

#include "sim/collective/price_terms.h"

namespace ddpsim::collective {

void find_server_route(const topology::Fabric& f, DeviceId device, DeviceId server, bool push,
                       topology::Route& route) {
  route = {};
  const HostId host = f.host_of(device);
  if (host != f.host_of(server)) {
    push ? f.find_route(device, server, route) : f.find_route(server, device, route);
    return;
  }
  if (!f.drawn()) return;
  const auto& links = f.inside(host).to_cpu(f.local_of(device)).links;
  for (std::uint32_t local : links)
    route.links.push_back(f.inside_link(host, push ? local : local ^ 1u));
  for (topology::LinkId l : route.links) {
    route.latency += f.links()[l].latency;
    route.transport = f.links()[l].transport;
  }
  if (!push) std::reverse(route.links.begin(), route.links.end());
}

Communicator make_server_communicator(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                                      DeviceId server) {
  Communicator c;
  c.fabric = &fabric;
  c.devices = std::move(devices);
  Server own{.device = server, .push = {}, .pull = {}};
  topology::LinkLoads loads(fabric);
  topology::Route route;
  std::vector<bool> used(fabric.transports().size());
  for (bool push : {true, false}) {
    Pattern pattern;
    pattern.algorithm = Algorithm::Direct;
    pattern.operation = push ? Operation::Push : Operation::Pull;
    for (DeviceId device : c.devices) {
      find_server_route(fabric, device, server, push, route);
      loads.add(route, 1);
      if (!route.links.empty()) used[route.transport] = true;
    }
    pattern.load = loads.take();
    pattern.moved = static_cast<double>(c.devices.size());
    (push ? own.push : own.pull) = c.add(std::move(pattern));
  }
  c.library = own;
  for (std::size_t t = 0; t < used.size(); ++t)
    if (used[t]) c.transports.push_back(static_cast<std::uint8_t>(t));
  return c;
}

Duration server_latency(const Communicator& c, const Profile& p, DeviceId device, bool push) {
  topology::Route route;
  find_server_route(*c.fabric, device, *server_of(c), push, route);
  if (route.links.empty()) return {};
  const TransportSection& t = p.transports.at(c.fabric->transports()[route.transport]);
  return t.launch + t.latency + route.latency;
}

std::optional<DeviceId> server_of(const Communicator& c) {
  const auto* own = std::get_if<Server>(&c.library);
  return own ? std::optional(own->device) : std::nullopt;
}

PatternId Server::pattern(Operation o) const {
  if (o == Operation::Push) return push;
  return o == Operation::Pull ? pull : PatternId{};
}

Price Server::price(const Communicator& c, const Asked& asked) const {
  const bool pushes = asked.operation == Operation::Push;
  Price out;
  out.pattern = pattern(asked.operation);
  out.algorithm = pushes ? "to a server" : "from a server";
  Phase phase;
  for (DeviceId each : c.devices)
    phase.latency = std::max(phase.latency, server_latency(c, asked.profile, each, pushes));
  const auto& load = c.pattern(out.pattern).load;
  phase.work = load.empty() ? 0 : static_cast<double>(asked.size.count);
  out.phases.push_back(phase);
  out.chunk = asked.size.count;
  out.hop_latency = phase.latency;
  out.alone = alone(out, load.empty() ? 0 : bottleneck(c, asked.profile, asked.level, load));
  return out;
}

}  // namespace ddpsim::collective
