// Step lists on backends tcp, gloo and mpi, S bytes.
//   ring (tcp)     2(n-1) steps of S/n, of one pass n-1: 4.6
//   any other      T = Σ over rounds of times * (a + r + S * max load/rate)     a: the slowest
//                  hop's latency (gloo: twice, for the go-ahead);
//                                                                             r: the busiest rank's
//                                                                               sum
//   pipelined      m = ceil(S / lanes / 128 KiB) pieces: T = fill + (m - 1) * (a + r + the slowest
//                  link's bytes of a piece in all lanes). Lanes share links evenly, so that they
//                  begin and end together, and their latencies and sums fall together too
// The engine gets work and a largest rate that makes T of it: a phase for each round, with the
// round's links; of a pipeline, one with what is streamed.
#include <algorithm>

#include "sim/collective/price_terms.h"

namespace ddpsim::collective {
namespace {

// Open MPI, the pattern's round k: what it takes as a multiple.
double exchange_factor(const Communicator& c, Turns turns, const Pattern::Round& round,
                       double bytes) {
  double most = 1;
  if (!round.exchange.exchanges) return most;
  for (const Hop& h : round.hops)
    most = std::max(most, in_turns(c, h.transport, round.message * bytes));
  return 1 + turns_share(turns, round.exchange.turns) * (most - 1);
}

// One of the pattern's rounds, alone, picoseconds. `bytes`: of the collective, or of a piece.
// `load`: what it puts on the links.
double round_time(const Communicator& c, const Profile& p, Level level, DType type,
                  const Pattern::Round& round, const std::vector<LinkLoad>& load, double bytes,
                  double factor = 1) {
  Duration gap;
  for (const Hop& h : round.hops) gap = std::max(gap, step_latency(c, p, h, round.messages));
  if (c.backend == Backend::Gloo) gap = gap * 2;
  gap += rendezvous(c, p, round.hops, round.message * bytes);
  if (round.summed > 0)
    gap += sum_time(c, p, type, round.summed * bytes, round.summed_by_all * bytes);
  double stretch = factor * correction(slowest_knots(c, p), round.message * bytes);
  return step_time(c, p, level, load, bytes * stretch, static_cast<double>(gap.ps), round.io);
}

}  // namespace

Turns turns_at(const Communicator& c, Level level) {
  if (level == Level::Low) return Turns::Always;
  if (c.mpi.polls) return level == Level::High ? Turns::ByPartner : Turns::Polled;
  return level == Level::High ? Turns::Never : Turns::ByPartner;
}

double in_turns(const Communicator& c, std::uint8_t transport, double message) {
  const bool tcp = c.fabric->transports()[transport] == "tcp";
  const auto eager = static_cast<double>(c.mpi.eager);
  return c.backend == Backend::Mpi && tcp && message > eager ? 2 - eager / message : 1;
}

Duration rendezvous(const Communicator& c, const Profile& p, const std::vector<Hop>& hops,
                    double message) {
  Duration most;
  if (c.backend != Backend::Mpi || message <= static_cast<double>(c.mpi.eager)) return most;
  for (const Hop& h : hops) most = std::max(most, section(c, p, h).rendezvous);
  return most;
}

std::int64_t pieces_of(const Pattern& pattern, std::int64_t bytes) {
  if (!pattern.pipelined) return 1;
  std::int64_t lane = (bytes + pattern.lanes - 1) / pattern.lanes;
  return (lane + kPieceBytes - 1) / kPieceBytes;
}

Price schedule_price(const Communicator& c, const Profile& p, Level level, int index, Bytes size,
                     DType type) {
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  const Pattern& pattern = c.patterns[static_cast<std::size_t>(index)];
  Price price;
  price.pattern = index;
  price.algorithm = name_of(pattern.algorithm);
  price.pieces = pieces_of(pattern, size.count);
  price.turns = turns_at(c, level);
  auto s = static_cast<double>(size.count);
  double bytes = pattern.pipelined ? s / pattern.lanes / static_cast<double>(price.pieces) : s;
  double time = 0;
  double rounds = 0;
  double largest = 0;
  bool own_launch = c.backend == Backend::Gloo || c.backend == Backend::Mpi;
  Duration launch = own_launch ? launch_time(c, p) : Duration{};
  for (std::size_t k = 0; k < pattern.rounds.size(); ++k) {
    const Pattern::Round& r = pattern.rounds[k];
    const double factor = exchange_factor(c, price.turns, r, bytes);
    double lasts = r.times * round_time(c, p, level, type, r, r.load, bytes, factor);
    time += lasts;
    rounds += r.times;
    largest = std::max(largest, r.message);
    for (const Hop& h : r.hops)
      price.hop_latency = std::max(price.hop_latency, step_latency(c, p, h, r.messages));
    if (!pattern.by_round) continue;
    price.phases.push_back({k == 0 ? launch : Duration{}, bytes * r.times, 1 / r.message,
                            bytes * r.times / lasts, static_cast<int>(k)});
  }
  price.chunk = static_cast<std::int64_t>(largest * bytes) + 1;
  if (sums(c, p)) price.sum_rate = sum_rate(c, p, type);
  if (!pattern.by_round) {
    Phase phase;
    phase.latency = launch;
    phase.work = bytes * rounds;
    if (pattern.pipelined) {
      time += static_cast<double>(price.pieces - 1) *
              round_time(c, p, level, type, pattern.cycle, pattern.load, bytes);
      phase.work = bytes * static_cast<double>(price.pieces);
    }
    phase.max_rate = phase.work / time;
    phase.weight = 1 / largest;
    price.phases.push_back(phase);
  }
  // Collectives of Gloo in flight share a connection, message by message.
  if (c.backend == Backend::Gloo)
    for (Phase& phase : price.phases) phase.weight = std::min(1.0, largest * bytes / kMiB);
  price.alone =
      alone(price, pattern.by_round ? 0 : bottleneck(c, p, level, pattern.load, pattern.io));
  return price;
}

Price mpi_all_reduce(const Communicator& c, const Profile& p, Level level, Bytes size, DType type) {
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  const MpiAllReduce runs = all_reduce_that_runs(c.mpi, c.ranks(), size.count, element_size(type));
  Price price = schedule_price(c, p, level, mpi_pattern(runs), size, type);
  price.algorithm = name_of(runs);
  return price;
}

Price mpi_broadcast(const Communicator& c, const Profile& p, Level level, Bytes size) {
  return schedule_price(c, p, level, mpi_broadcast_pattern(fixed_broadcast(c.ranks(), size.count)),
                        size);
}

Price tcp_ring(const Communicator& c, const Profile& p, Level level, int pattern, Bytes size,
               DType type) {
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  const double n = c.ranks();
  const int passes = pattern == kAllReduce ? 2 : 1;
  const std::int64_t steps = passes * (c.ranks() - 1);
  const std::int64_t sums = pattern == kAllGather ? 0 : c.ranks() - 1;
  const std::vector<LinkLoad>& load = c.patterns[static_cast<std::size_t>(pattern)].load;
  Price price;
  price.pattern = pattern;
  price.algorithm = "ring";
  const double chunk = static_cast<double>(size.count) / n;
  price.chunk = static_cast<std::int64_t>(chunk) + 1;
  if (sums > 0) price_sum(c, p, type, chunk, price);
  Phase phase;  // its launch passes before it is queued: see queued_launch
  phase.work = static_cast<double>(size.count) * (passes * (n - 1) / n) *
               correction(slowest_knots(c, p), chunk);
  Duration gaps = path_latency(c, p, passes);
  price.hop_latency = {(gaps.ps + steps / 2) / steps};
  gaps += price.reduce * sums;
  phase.max_rate =
      rate_with_latency(c, p, level, load, phase.work, static_cast<double>(steps), gaps);
  price.phases.push_back(phase);
  price.alone = alone(price, bottleneck(c, p, level, load));
  return price;
}

}  // namespace ddpsim::collective
