// What a collective costs: phases of fixed latency and shared transfer. The closed form of every
// algorithm, from which both fidelities start.
//
//   price = launch + steps x latency(hop) + transfer(S, link loads) x c(x),   x = bytes per step
//     and channel
#pragma once

#include <string>
#include <vector>

#include "sim/collective/communicator.h"
#include "sim/model/profile.h"

namespace ddpsim::collective {

// `latency`, then `work` bytes over every hop of the pattern (link l carries work * load(l)).
struct Phase {
  Duration latency;
  double work = 0;
  double weight = 1;  // max-min weight: equal connections per byte of work; Gloo: share of its one
                      // connection (heaviest())
  double max_rate =
      0;           // bytes per picosecond, 0 = unlimited: software that cannot keep the wire busy
  int round = -1;  // whose links it loads, of the price's pattern; -1 = the pattern's mean
};

struct Price {
  PatternId pattern;      // of its communicator
  std::string algorithm;  // "ring/Simple", "ring", "tree", "halving_doubling"
  std::vector<Phase> phases;
  Duration alone;           // duration with the links to itself
  std::int64_t chunk = 0;   // bytes of one message
  Duration hop_latency;     // of one step: NCCL, mean along the ring; Gloo, slowest hop
  std::int64_t pieces = 1;  // of a pipeline
  int channels = 0;         // NCCL: blocks of its kernel; 0 = not known
  Duration reduce;  // time to sum one message, if on the path; backend tcp: of all ranks at once,
                    // where they share cores
  Duration reduce_alone;  // of one rank that has a core
  double sum_rate = 0;    // schedule_price: bytes per picosecond that a rank sums; 0 = at once
  Turns turns = Turns::ByPartner;  // Open MPI
};

// Gloo's collectives of one job share a connection by segment size, but the job has one connection
// as another job has: weights are relative to the heaviest of the job's collectives. 1 for other
// backends.
double heaviest(const Communicator& c, const std::vector<const Price*>& of_a_job);

// Rates of the fabric's links at one level of efficiency, bytes per picosecond.
double link_rate(const Communicator& c, const Profile& p, Level level, topology::LinkId link);

// A price is asked for a collective: S bytes (of the whole vector, as nccl-tests counts them).
struct Asked {
  const Profile& profile;
  Level level = Level::Mid;
  Operation operation = Operation::AllReduce;
  Bytes size;
  DType type =
      DType::Float32;  // of the elements; decides what a sum costs (backends tcp, gloo, mpi)
};
// The one door, to any operation that the communicator performs. REQUIRES: performs(c, operation);
// the profile has every transport of the fabric (see missing_transport).
Price price(const Communicator& c, const Asked& asked);
inline Price price(const Communicator& c, const Profile& p, Level level, Operation operation,
                   Bytes size, DType type = DType::Float32) {
  return price(c, {p, level, operation, size, type});
}
bool performs(const Communicator& c, Operation operation);
// S bytes summed over all ranks, result everywhere.
inline Price all_reduce(const Communicator& c, const Profile& p, Level level, Bytes size,
                        DType type = DType::Float32) {
  return price(c, p, level, Operation::AllReduce, size, type);
}
// S bytes from rank 0 to all.
inline Price broadcast(const Communicator& c, const Profile& p, Level level, Bytes size) {
  return price(c, p, level, Operation::Broadcast, size);
}

// Fixed cost of starting a collective: the largest of the transports that its hops use; none for
// one rank (NCCL and Gloo return at once).
Duration launch_time(const Communicator& c, const Profile& p);

// Time from the moment in which a collective may start to its place in the queue: backend tcp,
// where an idle thread has to wake; a busy one finds the next collective at once. None for the
// others, whose launch is part of the collective itself.
Duration queued_launch(const Communicator& c, const Profile& p);

// One step over a hop: the transport's software and the wire. `messages`: of all ranks at once,
// which take shared cores in turn; 0 = one from every rank.
Duration step_latency(const Communicator& c, const Profile& p, const Hop& hop, int messages = 0);

// A few bytes from every rank to every rank by the hosts' own processes, one word each: recursive
// doubling, first among the ranks of a host. A step is taken to cost what the transport's quickest
// message does (LL, where it has one). REQUIRES: ranks of a host follow one another.
Duration agreement_time(const Communicator& c, const Profile& p);
// The profile as collectives of the hosts' own processes see it on GPUs' cluster (MPI): no kernel
// is launched, a step costs what the transport's quickest message does.
Profile between_hosts(const Profile& p);

// Name of the first transport that the fabric uses and the profile lacks; empty = none.
std::string missing_transport(const topology::Fabric& f, const Profile& p);

// Any of the communicator's patterns by rounds, one after another: step lists without a closed form
// of their own. Backends tcp, gloo and mpi. docs/model.md 4.8.
Price schedule_price(const Communicator& c, PatternId pattern, const Asked& asked);

// Bytes of a piece of a pipelined pattern, before it is evened out; and how many pieces a lane has.
inline constexpr std::int64_t kPieceBytes = 128 * 1024;
std::int64_t pieces_of(const Pattern& pattern, std::int64_t bytes);

}  // namespace ddpsim::collective
