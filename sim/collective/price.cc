#include "sim/collective/price.h"

#include <algorithm>

#include "sim/collective/backend/sockets.h"
#include "sim/collective/price_terms.h"

namespace ddpsim::collective {

double heaviest(const Communicator& c, const std::vector<const Price*>& of_a_job) {
  double most = 0;
  if (const auto* gloo = std::get_if<Gloo>(&c.library))
    for (const Price* p : of_a_job)
      for (const Phase& f : p->phases)
        if (p->pattern == gloo->all_reduce && f.work > 0) most = std::max(most, f.weight);
  return most > 0 ? most : 1;
}

double link_rate(const Communicator& c, const Profile& p, Level level, topology::LinkId link) {
  if (const nccl::Group* group = nccl_group(c)) return nccl::link_rate(*group, p, level, link);
  const topology::Link& l = c.fabric->links()[link];
  const TransportSection& t =
      by_sockets(c) ? socket_section(p) : p.transports.at(c.fabric->transports()[l.transport]);
  return l.bandwidth.bytes_per_ps() * at(t.efficiency, level);
}

Duration launch_time(const Communicator& c, const Profile& p) {
  if (by_sockets(c)) return socket_section(p).launch;
  Duration launch;
  for (std::uint8_t t : c.transports)
    launch = std::max(launch, p.transports.at(c.fabric->transports()[t]).launch);
  return launch;
}

Duration queued_launch(const Communicator& c, const Profile& p) {
  return c.backend() == Backend::Tcp && c.ranks() > 1 ? launch_time(c, p) : Duration{};
}

Duration step_latency(const Communicator& c, const Profile& p, const Hop& hop, int messages) {
  const TransportSection& t = section(c, p, hop);
  int cores = c.fabric->cluster().emulated_on_cores;
  Duration own = t.latency;
  if (cores > 0)
    own = std::max(own, Duration{t.message_core.ps * (messages > 0 ? messages : c.ranks()) /
                                 cores});  // all ranks' messages at once, in turn
  return own + hop.wire_latency;
}

Duration agreement_time(const Communicator& c, const Profile& p) {
  const topology::Fabric& f = *c.fabric;
  auto step = [&](int to) {
    topology::Route route;
    f.find_route(c.devices.front(), c.devices[to], route);
    Hop h{0, to, route.transport, route.latency};
    const auto& quick = p.transports.at(f.transports()[h.transport]).ll_latency;
    return quick ? *quick + h.wire_latency : step_latency(c, p, h);
  };
  int inside = 1;  // ranks of the first one's host
  while (inside < c.ranks() && f.host_of(c.devices[inside]) == f.host_of(c.devices.front()))
    ++inside;
  Duration sum;
  int ranks = 1;
  for (; ranks < inside; ranks *= 2) sum += step(1);
  for (; ranks < c.ranks(); ranks *= 2) sum += step(inside);
  return sum;
}

Profile between_hosts(const Profile& p) {
  Profile out = p;
  for (auto& [name, t] : out.transports) {
    t.launch = {};
    if (t.ll_latency) t.latency = *t.ll_latency;
  }
  return out;
}

std::string missing_transport(const topology::Fabric& f, const Profile& p) {
  for (const std::string& name : f.transports())
    if (!p.transports.count(name)) return name;
  return {};
}

bool performs(const Communicator& c, Operation operation) {
  const bool alone = c.ranks() < 2 && !std::holds_alternative<Server>(c.library);
  if (!alone) return static_cast<bool>(c.id(operation));
  if (operation == Operation::AllToAll) return c.backend() == Backend::Nccl;
  return operation != Operation::SendRecv && operation != Operation::Push &&
         operation != Operation::Pull;
}

Price price(const Communicator& c, const Asked& asked) {
  const bool moves = c.ranks() > 1 && asked.size.count > 0;
  if (!moves && !std::holds_alternative<Server>(c.library)) return nothing(c, asked.profile);
  return std::visit([&](const auto& l) { return l.price(c, asked); }, c.library);
}

}  // namespace ddpsim::collective
