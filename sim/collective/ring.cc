// Ring all-reduce of S bytes on n ranks.
//   NCCL:  T = launch + (latency of the slowest path of 2(n-1) consecutive hops) + c * 2(n-1)/n * S
//          * max over links (edges(l) / rate(l))
//   Gloo:  per phase (reduce-scatter, all-gather) each rank sends m = per_rank * (n-1) segments;
//          with segment time t, reduction time r (first phase only), message latency a and two
//          segments in flight: a + max(m t, (m/2 - 1)(t + 2a + r) + 2t) + a + r.
#include <algorithm>

#include "sim/collective/nccl.h"
#include "sim/collective/price_terms.h"

namespace ddpsim::collective {
namespace {

// Chain along the ring, in pieces of at most 512 KiB per channel: fill n - 2 pieces, then stream.
Price nccl_broadcast(const Communicator& c, const Profile& p, Level level, double s) {
  double piece = 512.0 * 1024 * static_cast<double>(c.rings.size());
  Price price;
  price.pattern = kAllReduce;
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
  phase.weight = static_cast<double>(c.rings.size());
  phase.max_rate =
      rate_with_latency(c, p, level, c.patterns[kAllReduce].load, phase.work, steps, latency);
  price.phases.push_back(phase);
  price.alone = alone(price, bottleneck(c, p, level, c.patterns[kAllReduce].load));
  return price;
}

}  // namespace

Price nccl_ring_all_reduce(const Communicator& c, const Profile& p, Level level, Bytes size) {
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  double n = c.ranks();
  Price price;
  price.algorithm = "ring/Simple";
  double channels = static_cast<double>(c.rings.size());
  double chunk = static_cast<double>(size.count) / n / channels;
  price.chunk = static_cast<std::int64_t>(chunk) + 1;
  double c_x = correction(slowest_knots(c, p), chunk);
  Phase phase;
  phase.latency = launch_time(c, p);
  phase.work = static_cast<double>(size.count) * (2 * (n - 1) / n) * c_x;
  phase.weight = channels;
  Duration gaps = path_latency(c, p);
  price.hop_latency = {(gaps.ps + (c.ranks() - 1)) / (2 * (c.ranks() - 1))};
  phase.max_rate =
      rate_with_latency(c, p, level, c.patterns[kAllReduce].load, phase.work, 2 * (n - 1), gaps);
  price.phases.push_back(phase);
  price.alone = alone(price, bottleneck(c, p, level, c.patterns[kAllReduce].load));
  return price;
}

GlooSegments gloo_segments(std::int64_t bytes, int ranks, std::int64_t element_size) {
  auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  GlooSegments g;
  std::int64_t n = ranks;
  g.segments = ceil_div(std::max(ceil_div(bytes, kMiB), 2 * n), n) * n;
  g.per_rank = g.segments / n;
  g.segment_bytes = ceil_div(ceil_div(bytes, g.segments), element_size) * element_size;
  return g;
}

Price gloo_ring_all_reduce(const Communicator& c, const Profile& p, Level level, Bytes size,
                           DType type) {
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  double n = c.ranks();
  GlooSegments g = gloo_segments(size.count, c.ranks());
  Price price;
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
    phase.work = static_cast<double>(size.count) * ((n - 1) / n) * c_x;
    // Collectives in flight together share one connection to each neighbour, which takes a segment
    // of each in turn.
    phase.weight = segment / kMiB;
    // The gap of a cycle is what its latency leaves of the other segment's transfer.
    double wire = segment * c_x * bottleneck(c, p, level, c.patterns[kAllReduce].load);
    auto hidden = static_cast<double>(cycle.ps);
    double gap = std::max(0.0, hidden - wire);
    // On two ranks a go-ahead follows its giver's own payload on the one connection: a latency
    // after each segment that lasts longer.
    auto call = static_cast<double>(price.hop_latency.ps);
    bool calls = c.ranks() == 2 && call < wire && 2 * call > gap;
    if (gap > 0 || calls) {
      double pair =
          calls ? 2 * step_time(c, p, level, c.patterns[kAllReduce].load, segment * c_x, call)
                : step_time(c, p, level, c.patterns[kAllReduce].load, 2 * segment * c_x, gap);
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
  price.alone = alone(price, bottleneck(c, p, level, c.patterns[kAllReduce].load));
  return price;
}

Price broadcast(const Communicator& c, const Profile& p, Level level, Bytes size) {
  if (c.nccl) return nccl_collective(c, p, level, Operation::Broadcast, size);
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  Price price;
  Phase phase;
  auto s = static_cast<double>(size.count);
  if (c.backend == Backend::Nccl) return nccl_broadcast(c, p, level, s);
  if (c.backend == Backend::Mpi) return mpi_broadcast(c, p, level, size);
  price.pattern = kBroadcast;
  price.algorithm = "tree";
  price.chunk = size.count;
  if (c.backend != Backend::Tcp) phase.latency = launch_time(c, p);
  phase.work = s * static_cast<double>(c.patterns[kBroadcast].rounds.size());
  // The rounds follow one another, each as slow as its slowest link: together they limit the rate;
  // the mean load is what others see.
  double time = 0;
  for (const auto& round : c.patterns[kBroadcast].rounds) {
    Duration latency;
    for (const Hop& h : round.hops) latency = std::max(latency, step_latency(c, p, h));
    // The go-ahead of the root's receivers; those of others came while they waited.
    if (c.backend == Backend::Gloo && time == 0) phase.latency += latency;
    time += step_time(c, p, level, round.load, s, static_cast<double>(latency.ps), round.io);
  }
  phase.max_rate = phase.work / time;
  price.phases.push_back(phase);
  const Pattern& tree = c.patterns[kBroadcast];
  price.alone = alone(price, bottleneck(c, p, level, tree.load, tree.io));
  return price;
}

}  // namespace ddpsim::collective
