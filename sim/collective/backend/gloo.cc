// Ring all-reduce of S bytes on n ranks: per phase (reduce-scatter, all-gather) each rank sends
// m = per_rank * (n-1) segments; with segment time t, reduction time r (first phase only), message
// latency a and two segments in flight: a + max(m t, (m/2 - 1)(t + 2a + r) + 2t) + a + r.
#include "sim/collective/backend/gloo.h"

#include <algorithm>

#include "sim/collective/blocks.h"
#include "sim/collective/make.h"
#include "sim/collective/message_tasks.h"
#include "sim/collective/price_terms.h"

namespace ddpsim::collective {

GlooSegments gloo_segments(std::int64_t bytes, int ranks, std::int64_t element_size) {
  auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  GlooSegments g;
  std::int64_t n = ranks;
  g.segments = ceil_div(std::max(ceil_div(bytes, kMiB), 2 * n), n) * n;
  g.per_rank = g.segments / n;
  g.segment_bytes = ceil_div(ceil_div(bytes, g.segments), element_size) * element_size;
  return g;
}

namespace {

// Reduce-scatter, then all-gather, two segments in flight, payload after the receiver's go.
Price gloo_ring(const Communicator& c, const Asked& asked) {
  const auto& [p, level, operation, size, type] = asked;
  const std::vector<LinkLoad>& load = c.pattern(Operation::AllReduce).load;
  double n = c.ranks();
  GlooSegments g = gloo_segments(size.count, c.ranks());
  Price price;
  price.pattern = c.id(Operation::AllReduce);
  price.algorithm = "ring";
  price.chunk = std::min(g.segment_bytes, size.count);
  for (const Hop& h : c.ring_hops)
    price.hop_latency = std::max(price.hop_latency, step_latency(c, p, h));
  price_sum(c, p, type, static_cast<double>(price.chunk), price);
  double c_x = correction(slowest_knots(c, p), static_cast<double>(price.chunk));
  double segment = static_cast<double>(price.chunk);
  for (bool reducing : {true, false}) {
    Phase phase;
    Duration reduce = reducing ? price.reduce : Duration{};
    // Two segments in flight: a segment's cycle (its own time, its latency, the go-ahead's, the
    // sum) is shared by two.
    Duration cycle = price.hop_latency * 2 + reduce;
    phase.latency =
        price.hop_latency * 2 + reduce;  // go-ahead of the first, arrival (and sum) of the last
    if (reducing) phase.latency += launch_time(c, p);
    phase.work = size * ((n - 1) / n) * c_x;
    // Collectives in flight together share one connection to each neighbour, which takes a segment
    // of each in turn.
    phase.weight = segment / kMiB;
    // The gap of a cycle is what its latency leaves of the other segment's transfer.
    double wire = segment * c_x * bottleneck(c, p, level, load);
    auto hidden = static_cast<double>(cycle.ps);
    double gap = std::max(0.0, hidden - wire);
    // On two ranks a go-ahead follows its giver's own payload on the one connection: a latency
    // after each segment that lasts longer.
    auto call = static_cast<double>(price.hop_latency.ps);
    bool calls = c.ranks() == 2 && call < wire && 2 * call > gap;
    if (gap > 0 || calls) {
      double pair = calls ? 2 * step_time(c, p, level, load, segment * c_x, call)
                          : step_time(c, p, level, load, 2 * segment * c_x, gap);
      double last = g.per_rank * (c.ranks() - 1) % 2 == 0
                        ? 2 * wire
                        : wire;  // the last pair, or the odd one, is not followed by a gap
      double pairs = static_cast<double>((g.segments - g.per_rank - 1) / 2);
      phase.max_rate = phase.work / (pairs * pair + last);
    }
    // One worker sums one segment after the other.
    if (auto sums = static_cast<double>((g.segments - g.per_rank) * reduce.ps); sums > 0)
      phase.max_rate = std::min(phase.max_rate > 0 ? phase.max_rate : 1e300, phase.work / sums);
    price.phases.push_back(phase);
  }
  price.alone = alone(price, bottleneck(c, p, level, load));
  return price;
}

}  // namespace

PatternId Gloo::pattern(Operation o) const {
  switch (o) {
    case Operation::AllReduce:
      return all_reduce;
    case Operation::Broadcast:
      return broadcast;
    case Operation::SendRecv:
      return send_recv;
    default:
      return {};
  }
}

Price Gloo::price(const Communicator& c, const Asked& asked) const {
  if (asked.operation == Operation::Broadcast) return tree_price(c, asked);
  const PatternId id = pattern(asked.operation);
  const bool ring = id == all_reduce && c.pattern(id).algorithm == Algorithm::Ring;
  return ring ? gloo_ring(c, asked) : schedule_price(c, id, asked);
}

Communicator make_gloo(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                       Algorithm algorithm, bool sockets) {
  const int n = static_cast<int>(devices.size());
  std::vector<int> order;
  for (int r = 0; r < n; ++r) order.push_back((n - r) % n);
  Begun b = begin(fabric, std::move(devices), Gloo{.sockets = sockets}, {std::move(order)});
  Communicator& c = b.c;
  if (n < 2) return std::move(c);
  Gloo& gloo = std::get<Gloo>(c.library);
  gloo.all_reduce =
      c.add(algorithm == Algorithm::Ring ? along_rings(b, Operation::AllReduce)
                                         : make_pattern(c, algorithm, Operation::AllReduce));
  gloo.broadcast = c.add(broadcast_tree(c, rounds_of(binomial_tree_at_once(n))));
  return finish(std::move(b));
}

}  // namespace ddpsim::collective
