// Terms that closed forms share. Internal to this room.
#pragma once

#include "sim/collective/price.h"

namespace ddpsim::collective {

// Picoseconds per byte of the pattern's slowest link: max edges / rate; by sockets, or of the
// busiest rank's thread (`io`: Pattern::io).
double bottleneck(const Communicator& c, const Profile& p, Level level,
                  const std::vector<LinkLoad>& load, double io = 1);

// One step alone: the gap before it and its transfer on the slowest link. A token bucket refills in
// the gap, and what it saved goes at the peak rate.
double step_time(const Communicator& c, const Profile& p, Level level,
                 const std::vector<LinkLoad>& load, double bytes, double gap, double io = 1);

// The steps' latencies lie between transfers: another collective uses those gaps. So they limit the
// rate instead of coming first; alone, work / max_rate = steps * (latency of a step + its
// transfer).
double rate_with_latency(const Communicator& c, const Profile& p, Level level,
                         const std::vector<LinkLoad>& load, double work, double steps,
                         Duration latency);

const TransportSection& section(const Communicator& c, const Profile& p, const Hop& hop);

// All hops' latencies, twice around the ring less the two cheapest neighbours: the slowest 2(n-1)
// consecutive hops; of one pass the slowest n-1.
Duration path_latency(const Communicator& c, const Profile& p, int passes = 2);

// Of the transport of the ring's slowest hop.
const std::vector<Knot>& slowest_knots(const Communicator& c, const Profile& p);

// Backend mpi: what a message of so many bytes over one of these hops waits for its receiver; none
// within the eager limit.
Duration rendezvous(const Communicator& c, const Profile& p, const std::vector<Hop>& hops,
                    double message);

// Backend mpi: which exchanges take turns; the level's extremes are all of them, and none (of a
// thread that polls: those that must).
Turns turns_at(const Communicator& c, Level level);
// What a message of so many bytes takes over a transport as a multiple, if its exchange takes
// turns: what the announcements do not bring goes one way after the other.
double in_turns(const Communicator& c, std::uint8_t transport, double message);

// The rounds of the broadcast's tree follow one another, each as slow as its slowest link: together
// they limit the rate; the mean load is what others see. Backends tcp and gloo.
Price tree_price(const Communicator& c, const Asked& asked);

// Duration of a price's phases with the links to themselves; `per_byte`: bottleneck().
Duration alone(const Price& price, double per_byte);

// Whether sums take time: of a profile that says so, and of Gloo's workers between GPUs.
bool sums(const Communicator& c, const Profile& p);
// Bytes per picosecond. REQUIRES: sums(c, p).
double sum_rate(const Communicator& c, const Profile& p, DType type);
// The sum of one chunk: by a rank that has a core, and by all ranks at once where they share cores.
void price_sum(const Communicator& c, const Profile& p, DType type, double chunk, Price& price);
// Sums at once: `busiest` bytes by the rank that has most, `all` by all ranks, which may share
// cores.
Duration sum_time(const Communicator& c, const Profile& p, DType type, double busiest, double all);

// One rank: no time but the launch.
Price nothing(const Communicator& c, const Profile& p);

}  // namespace ddpsim::collective
