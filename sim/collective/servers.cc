// push, pull: latency + S * max over links of (ranks whose way it is on / rate)
#include "sim/collective/servers.h"

#include <algorithm>

#include "sim/collective/price_terms.h"

namespace ddpsim::collective {

void find_server_route(const topology::Fabric& f, int device, int server, bool push,
                       topology::Route& route) {
  route = {};
  const int host = f.host_of(device);
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

Communicator make_server_communicator(const topology::Fabric& fabric, std::vector<int> devices,
                                      int server) {
  Communicator c;
  c.fabric = &fabric;
  c.devices = std::move(devices);
  c.backend = Backend::Tcp;
  c.server = server;
  topology::LinkLoads loads(fabric);
  topology::Route route;
  std::vector<bool> used(fabric.transports().size());
  for (bool push : {true, false}) {
    Pattern pattern;
    pattern.algorithm = Algorithm::Direct;
    pattern.operation = push ? Operation::Push : Operation::Pull;
    for (int device : c.devices) {
      find_server_route(fabric, device, server, push, route);
      loads.add(route, 1);
      if (!route.links.empty()) used[route.transport] = true;
    }
    pattern.load = loads.take();
    pattern.moved = static_cast<double>(c.devices.size());
    c.patterns.push_back(std::move(pattern));
  }
  for (std::size_t t = 0; t < used.size(); ++t)
    if (used[t]) c.transports.push_back(static_cast<std::uint8_t>(t));
  return c;
}

Duration server_latency(const Communicator& c, const Profile& p, int device, bool push) {
  topology::Route route;
  find_server_route(*c.fabric, device, c.server, push, route);
  if (route.links.empty()) return {};
  const TransportSection& t = p.transports.at(c.fabric->transports()[route.transport]);
  return t.launch + t.latency + route.latency;
}

Price server_price(const Communicator& c, const Profile& p, Level level, Operation operation,
                   Bytes size) {
  const bool push = operation == Operation::Push;
  Price out;
  out.pattern = push ? kPush : kPull;
  out.algorithm = push ? "to a server" : "from a server";
  Phase phase;
  for (int device : c.devices)
    phase.latency = std::max(phase.latency, server_latency(c, p, device, push));
  const auto& load = c.patterns[static_cast<std::size_t>(out.pattern)].load;
  phase.work = load.empty() ? 0 : static_cast<double>(size.count);
  out.phases.push_back(phase);
  out.chunk = size.count;
  out.hop_latency = phase.latency;
  out.alone = alone(out, load.empty() ? 0 : bottleneck(c, p, level, load));
  return out;
}

}  // namespace ddpsim::collective
