// NCCL's ring by a profile's own latencies: an all-reduce takes
//   T = launch + (latency of the slowest path of 2(n-1) consecutive hops) + c * 2(n-1)/n * S
//       * max over links (edges(l) / rate(l))
#include <algorithm>

#include "sim/collective/make.h"
#include "sim/collective/message_tasks.h"
#include "sim/collective/price_terms.h"

namespace ddpsim::collective {
namespace {

// Ring c enters each host at the first rank behind NIC c and leaves it by the rank before that one:
// in all, every NIC sends once and receives once.
std::vector<std::vector<int>> nccl_rings(const topology::Fabric& f,
                                         const std::vector<DeviceId>& devices) {
  auto groups = ranks_by_host(f, devices);
  std::size_t rings = 1;
  if (groups.size() > 1) {
    rings = f.cluster().nics_per_host;
    for (const auto& g : groups) rings = std::min(rings, g.size());
  }
  std::vector<std::vector<int>> out(rings);
  for (std::size_t c = 0; c < rings; ++c) {
    out[c].reserve(devices.size());
    for (const auto& g : groups)
      for (std::size_t i = 0; i < g.size(); ++i)
        out[c].push_back(g[(c * g.size() / rings + i) % g.size()]);
  }
  return out;
}

// Chain along the ring, in pieces of at most 512 KiB per channel: fill n - 2 pieces, then stream.
Price nccl_chain(const Communicator& c, const Asked& asked) {
  const auto& [p, level, operation, size, type] = asked;
  const auto s = static_cast<double>(size.count);
  const std::vector<LinkLoad>& load = c.pattern(operation).load;
  double piece = 512.0 * 1024 * c.channels();
  Price price;
  price.pattern = c.id(operation);
  price.algorithm = "ring/Simple";
  price.pieces = 1 + static_cast<std::int64_t>((s - 1) / piece);
  double steps = static_cast<double>(price.pieces) + c.ranks() - 2;
  price.chunk = static_cast<std::int64_t>(s / static_cast<double>(price.pieces)) + 1;
  Duration latency;
  for (std::size_t i = 0; i + 1 < c.ring_hops.size(); ++i)
    latency += step_latency(c, p, c.ring_hops[i]);
  Phase phase;
  phase.latency = launch_time(c, p);
  phase.work = s * steps / static_cast<double>(price.pieces);
  phase.weight = c.channels();
  phase.max_rate = rate_with_latency(c, p, level, load, phase.work, steps, latency);
  price.phases.push_back(phase);
  price.alone = alone(price, bottleneck(c, p, level, load));
  return price;
}

Price nccl_ring(const Communicator& c, const Asked& asked) {
  const auto& [p, level, operation, size, type] = asked;
  const std::vector<LinkLoad>& load = c.pattern(operation).load;
  double n = c.ranks();
  Price price;
  price.pattern = c.id(operation);
  price.algorithm = "ring/Simple";
  double channels = c.channels();
  double chunk = static_cast<double>(size.count) / n / channels;
  price.chunk = static_cast<std::int64_t>(chunk) + 1;
  double c_x = correction(slowest_knots(c, p), chunk);
  Phase phase;
  phase.latency = launch_time(c, p);
  phase.work = size * (2 * (n - 1) / n) * c_x;
  phase.weight = channels;
  Duration gaps = path_latency(c, p);
  price.hop_latency = {(gaps.ps + (c.ranks() - 1)) / (2 * (c.ranks() - 1))};
  phase.max_rate = rate_with_latency(c, p, level, load, phase.work, 2 * (n - 1), gaps);
  price.phases.push_back(phase);
  price.alone = alone(price, bottleneck(c, p, level, load));
  return price;
}

}  // namespace

PatternId NcclRing::pattern(Operation o) const {
  return o == Operation::AllReduce || o == Operation::Broadcast ? ring : PatternId{};
}

Price NcclRing::price(const Communicator& c, const Asked& asked) const {
  return asked.operation == Operation::Broadcast ? nccl_chain(c, asked) : nccl_ring(c, asked);
}

std::vector<engine::TaskId> NcclRing::add_messages(const Communicator& c,
                                                   const MessagePlay& play) const {
  return add_ring_messages(c, play, false);
}

Communicator make_nccl_ring(const topology::Fabric& fabric, std::vector<DeviceId> devices) {
  auto rings = nccl_rings(fabric, devices);
  Begun b = begin(fabric, std::move(devices), NcclRing{}, std::move(rings));
  if (b.c.ranks() > 1)
    std::get<NcclRing>(b.c.library).ring = b.c.add(along_rings(b, Operation::AllReduce));
  return finish(std::move(b));
}

}  // namespace ddpsim::collective
