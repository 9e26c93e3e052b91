// A group of ranks on a Fabric, as collectives see it: ring orders, what each link carries, what
// each hop costs, and whose collectives it performs.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "sim/collective/backend/gloo.h"
#include "sim/collective/backend/mpi.h"
#include "sim/collective/backend/nccl.h"
#include "sim/collective/backend/server.h"
#include "sim/collective/backend/tcp.h"
#include "sim/collective/pattern.h"
#include "sim/topology/hop_routes.h"

namespace ddpsim::collective {

using topology::LinkLoads;
using topology::ranks_by_host;

struct Communicator {
  const topology::Fabric* fabric = nullptr;
  std::vector<DeviceId> devices;  // of each rank
  Layout layout;                  // of the step lists: ranks in order, grouped by layout_of()
  std::vector<Ring> rings;
  std::vector<Hop> ring_hops;            // of the first ring, in its order; NCCL's own: none
  std::vector<std::uint8_t> transports;  // that any hop uses, ascending
  std::vector<Pattern> patterns;
  // Whose collectives these are. A backend names its patterns, prices its operations and plays
  // their messages.
  using Library = std::variant<NcclRing, Nccl, Gloo, Tcp, Mpi, Server>;
  Library library;
  // The first of all links that are alike, with what each pattern puts on them (load_demands.h);
  // empty = not known.
  std::vector<topology::LinkId> distinct;
  // Of a job's Program::groups, in their order (make_joint).
  std::vector<Communicator> groups;
  // Of groups that were joined: each of them by itself; empty = this one stands for all.
  std::vector<Communicator> joined;

  int channels() const { return static_cast<int>(rings.size()); }
  int ranks() const { return static_cast<int>(devices.size()); }
  Backend backend() const;
  // The pattern of an operation; of several algorithms the one that Mpi::pattern and Nccl::pattern
  // name. None: for one rank, and where the backend does not perform it.
  PatternId id(Operation o) const;
  // Without links where there is none.
  const Pattern& pattern(PatternId id) const;
  const Pattern& pattern(Operation o) const { return pattern(id(o)); }
  PatternId add(Pattern pattern);
};
// Of a collective: Op::group.
inline const Communicator& of_group(const Communicator& job, std::size_t group) {
  return group == 0 ? job : job.groups[group - 1];
}
// Equal groups that communicate at the same time, as their first one with what all of them put on
// the links. REQUIRES: not empty; alike in patterns.
Communicator make_joint(std::vector<Communicator> groups);

// NCCL: make_nccl_ring. REQUIRES: devices distinct and mutually reachable; performs(algorithm,
// AllReduce). Cost grows with ranks and route lengths. `algorithm`: of the all-reduce; other than
// Ring: backends tcp and gloo only. `sockets`: Gloo's messages pass between the hosts' processes
// (sockets.h).
Communicator make_communicator(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                               Backend backend, Algorithm algorithm = Algorithm::Ring,
                               bool sockets = false);

// Gloo between GPUs.
bool by_sockets(const Communicator& c);
// How its backend plays step lists; NCCL's plays none.
StepListWays step_list_ways(const Communicator& c);
// The way from one rank to another, as the backend's messages take it. `nic`: local index of that
// of both hosts; -1 = each device's own.
void find_way(const Communicator& c, int from, int to, int nic, topology::Route& route);

// Ranks in order; grouped by host if hosts have several devices, else by rack or leaf; one group
// where the fabric has none of these.
Layout layout_of(const topology::Fabric& fabric, const std::vector<DeviceId>& devices);

// The links under an algorithm's rounds. REQUIRES: performs(algorithm, operation, ranks), ranks >=
// 2, layout set.
Pattern make_pattern(const Communicator& c, Algorithm algorithm, Operation operation);

// Rank pairs (from, to) of round `round` of the binomial tree rooted at rank 0: vrank < 2^round
// sends to vrank + 2^round.
std::vector<std::pair<int, int>> tree_round(int ranks, int round);
// Whom rank v sends to in that tree, in the order of the rounds.
std::vector<int> tree_children(int ranks, int v);

}  // namespace ddpsim::collective
