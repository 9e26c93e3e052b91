#include <algorithm>
#include <limits>

#include "sim/collective/nccl.h"
#include "sim/collective/price_terms.h"
#include "sim/collective/servers.h"
#include "sim/collective/sockets.h"

namespace ddpsim::collective {

double heaviest(const Communicator& c, const std::vector<const Price*>& of_a_job) {
  double most = 0;
  if (c.backend == Backend::Gloo)
    for (const Price* p : of_a_job)
      for (const Phase& f : p->phases)
        if (p->pattern == kAllReduce && f.work > 0) most = std::max(most, f.weight);
  return most > 0 ? most : 1;
}

double link_rate(const Communicator& c, const Profile& p, Level level, topology::LinkId link) {
  if (c.nccl) return nccl::link_rate(*c.nccl, p, level, link);
  const topology::Link& l = c.fabric->links()[link];
  const TransportSection& t =
      c.sockets ? socket_section(p) : p.transports.at(c.fabric->transports()[l.transport]);
  return l.bandwidth.bytes_per_ps() * at(t.efficiency, level);
}

Duration launch_time(const Communicator& c, const Profile& p) {
  if (c.sockets) return socket_section(p).launch;
  Duration launch;
  for (std::uint8_t t : c.transports)
    launch = std::max(launch, p.transports.at(c.fabric->transports()[t]).launch);
  return launch;
}

Duration queued_launch(const Communicator& c, const Profile& p) {
  return c.backend == Backend::Tcp && c.ranks() > 1 ? launch_time(c, p) : Duration{};
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
    f.find_route(c.devices.front(), c.devices[static_cast<std::size_t>(to)], route);
    Hop h{0, to, route.transport, route.latency};
    const auto& quick = p.transports.at(f.transports()[h.transport]).ll_latency;
    return quick ? *quick + h.wire_latency : step_latency(c, p, h);
  };
  int inside = 1;  // ranks of the first one's host
  while (inside < c.ranks() &&
         f.host_of(c.devices[static_cast<std::size_t>(inside)]) == f.host_of(c.devices.front()))
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
  if (c.server >= 0 && operation != Operation::Push && operation != Operation::Pull) return false;
  switch (operation) {
    case Operation::AllReduce:
    case Operation::Broadcast:
      return true;
    case Operation::AllGather:
    case Operation::ReduceScatter:
    case Operation::Reduce:
      return c.nccl || c.backend == Backend::Tcp || c.ranks() < 2;
    case Operation::AllToAll:
      return c.all_to_all > 0 || (c.ranks() < 2 && c.backend == Backend::Nccl);
    case Operation::SendRecv:
      return c.send_recv > 0;
    case Operation::Push:
    case Operation::Pull:
      return c.server >= 0;
  }
  return false;
}

Price price(const Communicator& c, const Profile& p, Level level, Operation operation, Bytes size,
            DType type) {
  if (c.server >= 0) return server_price(c, p, level, operation, size);
  if (operation == Operation::Broadcast) return broadcast(c, p, level, size);
  if (operation == Operation::AllReduce) return all_reduce(c, p, level, size, type);
  if (c.ranks() < 2) return nothing(c, p);
  if (operation == Operation::AllToAll) return nccl_all_to_all(c, p, level, size);
  if (operation == Operation::SendRecv) return schedule_price(c, p, level, c.send_recv, size, type);
  if (c.backend != Backend::Tcp) return nccl_collective(c, p, level, operation, size);
  if (operation == Operation::Reduce) return schedule_price(c, p, level, kReduce, size, type);
  return tcp_ring(c, p, level, operation == Operation::AllGather ? kAllGather : kReduceScatter,
                  size, type);
}

Price all_reduce(const Communicator& c, const Profile& p, Level level, Bytes size, DType type) {
  if (c.nccl) return nccl_collective(c, p, level, Operation::AllReduce, size);
  if (c.backend == Backend::Nccl) return nccl_ring_all_reduce(c, p, level, size);
  if (c.backend == Backend::Mpi) return mpi_all_reduce(c, p, level, size, type);
  if (c.patterns[kAllReduce].algorithm != Algorithm::Ring)
    return schedule_price(c, p, level, kAllReduce, size, type);
  return c.backend == Backend::Gloo ? gloo_ring_all_reduce(c, p, level, size, type)
                                    : tcp_ring(c, p, level, kAllReduce, size, type);
}

}  // namespace ddpsim::collective
