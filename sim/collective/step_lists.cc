// Step lists on backends tcp, gloo and mpi, S bytes.
//   by rounds      T = Σ over rounds of times * (a + r + S * max load/rate)     a: the slowest
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
  if (step_list_ways(c).go_ahead) gap = gap * 2;
  gap += rendezvous(c, p, round.hops, round.message * bytes);
  if (round.summed > 0)
    gap += sum_time(c, p, type, round.summed * bytes, round.summed_by_all * bytes);
  double stretch = factor * correction(slowest_knots(c, p), round.message * bytes);
  return step_time(c, p, level, load, bytes * stretch, static_cast<double>(gap.ps), round.io);
}

}  // namespace

Turns turns_at(const Communicator& c, Level level) {
  const OpenMpi* mpi = step_list_ways(c).mpi;
  if (level == Level::Low) return Turns::Always;
  if (mpi && mpi->polls) return level == Level::High ? Turns::ByPartner : Turns::Polled;
  return level == Level::High ? Turns::Never : Turns::ByPartner;
}

double in_turns(const Communicator& c, std::uint8_t transport, double message) {
  const OpenMpi* mpi = step_list_ways(c).mpi;
  if (!mpi || c.fabric->transports()[transport] != "tcp") return 1;
  const auto eager = static_cast<double>(mpi->eager);
  return message > eager ? 2 - eager / message : 1;
}

Duration rendezvous(const Communicator& c, const Profile& p, const std::vector<Hop>& hops,
                    double message) {
  const OpenMpi* mpi = step_list_ways(c).mpi;
  Duration most;
  if (!mpi || message <= static_cast<double>(mpi->eager)) return most;
  for (const Hop& h : hops) most = std::max(most, section(c, p, h).rendezvous);
  return most;
}

std::int64_t pieces_of(const Pattern& pattern, std::int64_t bytes) {
  if (!pattern.pipelined) return 1;
  std::int64_t lane = (bytes + pattern.lanes - 1) / pattern.lanes;
  return (lane + kPieceBytes - 1) / kPieceBytes;
}

Price schedule_price(const Communicator& c, PatternId id, const Asked& asked) {
  const auto& [p, level, operation, size, type] = asked;
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  const StepListWays ways = step_list_ways(c);
  const Pattern& pattern = c.pattern(id);
  Price price;
  price.pattern = id;
  price.algorithm = name_of(pattern.algorithm);
  price.pieces = pieces_of(pattern, size.count);
  price.turns = turns_at(c, level);
  auto s = static_cast<double>(size.count);
  double bytes = pattern.pipelined ? s / pattern.lanes / static_cast<double>(price.pieces) : s;
  double time = 0;
  double rounds = 0;
  double largest = 0;
  Duration launch = ways.launch_inside ? launch_time(c, p) : Duration{};
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
  if (ways.go_ahead)
    for (Phase& phase : price.phases) phase.weight = std::min(1.0, largest * bytes / kMiB);
  price.alone =
      alone(price, pattern.by_round ? 0 : bottleneck(c, p, level, pattern.load, pattern.io));
  return price;
}

Price tree_price(const Communicator& c, const Asked& asked) {
  const auto& [p, level, operation, size, type] = asked;
  const StepListWays ways = step_list_ways(c);
  const Pattern& tree = c.pattern(Operation::Broadcast);
  const auto s = static_cast<double>(size.count);
  Price price;
  Phase phase;
  price.pattern = c.id(Operation::Broadcast);
  price.algorithm = "tree";
  price.chunk = size.count;
  if (ways.launch_inside) phase.latency = launch_time(c, p);
  phase.work = s * static_cast<double>(tree.rounds.size());
  // The rounds follow one another, each as slow as its slowest link: together they limit the rate;
  // the mean load is what others see.
  double time = 0;
  for (const auto& round : tree.rounds) {
    Duration latency;
    for (const Hop& h : round.hops) latency = std::max(latency, step_latency(c, p, h));
    // The go-ahead of the root's receivers; those of others came while they waited.
    if (ways.go_ahead && time == 0) phase.latency += latency;
    time += step_time(c, p, level, round.load, s, static_cast<double>(latency.ps), round.io);
  }
  phase.max_rate = phase.work / time;
  price.phases.push_back(phase);
  price.alone = alone(price, bottleneck(c, p, level, tree.load, tree.io));
  return price;
}

}  // namespace ddpsim::collective
