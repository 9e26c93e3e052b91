#include "sim/collective/parts.h"

#include <algorithm>

#include "sim/collective/price_terms.h"
#include "sim/units/convert.h"

namespace ddpsim::collective {
namespace {

Profile without_sums(const Profile& p) {
  Profile out = p;
  out.reduction_bytes_per_s = 0;
  return out;
}

// Messages without latency. Which transport is the slowest, by which the correction by message size
// goes, is then no longer to be seen: all have that one's.
Profile without_latency(const Communicator& c, const Profile& p) {
  Profile out = p;
  const std::vector<Knot> knots = slowest_knots(c, p);
  for (auto& [name, t] : out.transports) {
    t.latency = t.rendezvous = t.message_core = {};
    t.knots = knots;
  }
  return out;
}
Communicator without_wires(const Communicator& c) {
  Communicator out = c;
  auto drop = [](std::vector<Hop>& hops) {
    for (Hop& h : hops) h.wire_latency = {};
  };
  drop(out.ring_hops);
  for (Pattern& pattern : out.patterns) {
    for (Pattern::Round& r : pattern.rounds) drop(r.hops);
    drop(pattern.cycle.hops);
  }
  return out;
}

// Bytes that the busiest position sends, per byte of the collective.
double sent_share(const Rounds& rounds, int ranks) {
  std::vector<double> sent(ranks);
  auto add = [&](const std::vector<Transfer>& all, double times) {
    for (const Transfer& t : all) sent[t.from] += t.share * times;
  };
  if (rounds.pipelined)
    add(rounds.streamed, 1.0 / rounds.lanes);
  else
    for (const Round& r : rounds.rounds) add(r.transfers, r.times);
  return *std::max_element(sent.begin(), sent.end());
}

}  // namespace

Parts parts_of(const Communicator& c, const Profile& p, const PriceOf& of) {
  Parts out;
  out.launch = c.ranks() > 1 ? launch_time(c, p) : Duration{};
  // Backend tcp's passes before the collective is queued, outside of its price.
  const Duration outside = queued_launch(c, p);
  out.total = of(c, p).alone + outside;
  if (c.ranks() < 2) {
    out.launch = out.total;
    return out;
  }
  const Profile quick = without_sums(p);
  const Duration unsummed = of(c, quick).alone + outside;
  const Duration moved = of(without_wires(c), without_latency(c, quick)).alone + outside;
  out.sums = out.total - unsummed;
  out.latency = unsummed - moved;
  out.transfer = moved - out.launch;
  return out;
}

double bus_factor(Operation o, int ranks) {
  const double n = ranks;
  switch (o) {
    case Operation::AllReduce:
      return 2 * (n - 1) / n;
    case Operation::AllGather:
    case Operation::ReduceScatter:
    case Operation::AllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

Work work_of(const Communicator& c, const Price& price, Duration total, Bytes size) {
  Work out;
  if (c.ranks() < 2) return out;
  const Pattern& pattern = c.pattern(price.pattern);
  const Rounds rounds = make_rounds(pattern.algorithm, pattern.operation, c.layout);
  // Gloo's broadcast is played level by level of its tree, not round by round (its pattern).
  if (pattern.rounds.empty())
    for (const Round& r : rounds.rounds) out.steps += static_cast<std::int64_t>(r.times);
  for (const Pattern::Round& r : pattern.rounds) out.steps += static_cast<std::int64_t>(r.times);
  if (rounds.pipelined) out.steps += price.pieces - 1;
  out.sent = sent_share(rounds, c.ranks()) * static_cast<double>(size.count);
  out.message = std::min(price.chunk, size.count);
  const auto* gloo = std::get_if<Gloo>(&c.library);
  const bool gloo_ring =
      gloo && price.pattern == gloo->all_reduce && pattern.algorithm == Algorithm::Ring;
  if (gloo_ring) out.steps = 2 * (c.ranks() - 1) * gloo_segments(size.count, c.ranks()).per_rank;
  if (total.ps > 0)
    out.bus_bytes_per_s = size * bus_factor(pattern.operation, c.ranks()) / seconds(total);
  return out;
}

void add_send_recv(Communicator& c) {
  if (c.ranks() < 2) return;
  std::visit(
      [&](auto& l) {
        if constexpr (requires { l.send_recv; }) {
          if (l.send_recv) return;
          l.send_recv = c.add(make_pattern(c, Algorithm::Direct, Operation::SendRecv));
          c.distinct.clear();  // of the patterns before
        }
      },
      c.library);
}

}  // namespace ddpsim::collective
