// A group of ranks on a Fabric, as collectives see it: ring orders, what each link carries, what
// each hop costs.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "sim/collective/open_mpi.h"
#include "sim/collective/round.h"
#include "sim/collective/turns.h"
#include "sim/model/plan.h"
#include "sim/nccl/fabric/nccl.h"
#include "sim/nccl/fabric/p2p_price.h"
#include "sim/topology/hop_routes.h"
#include "sim/topology/link_loads.h"

namespace ddpsim::collective {

using topology::find_hop_links;
using topology::find_hop_route;
using topology::LinkLoad;
using topology::LinkLoads;
using topology::ranks_by_host;

struct Hop {
  int from = 0;  // rank
  int to = 0;
  std::uint8_t transport = 0;  // index into Fabric::transports
  Duration wire_latency;
};

// What an algorithm puts on the links: a price names one of its communicator's patterns.
struct Pattern {
  Algorithm algorithm = Algorithm::Ring;
  Operation operation = Operation::AllReduce;
  std::vector<LinkLoad>
      load;  // bytes on the link per byte of a phase's work (mean over rounds); ascending by link
  // round.h's rounds with the links that they use. Empty for NCCL's and Gloo's rings and the tcp
  // ring, whose closed forms need the ring's hops only.
  struct Round {
    std::vector<LinkLoad>
        load;  // per byte of the collective (of a pipeline: of a piece); ascending by link
    std::vector<Hop> hops;  // of each transport, the one with the slowest wire
    double times = 1;
    double message =
        0;  // the largest, as a share of the collective's bytes (of a pipeline: of a piece)
    int messages = 0;   // of all ranks, at once
    double moved = 0;   // by all ranks, as such a share
    double summed = 0;  // bytes that the busiest rank sums, as such a share; 0 = nothing
    double summed_by_all = 0;
    RoundTurns exchange;  // Open MPI
    double io = 0;        // by sockets: half of what the busiest rank sends and receives
  };
  std::vector<Round> rounds;
  // A price has a phase for each round, with its links, instead of one phase with the mean: all but
  // rings, pipelines and the broadcast's tree.
  bool by_round = false;
  double moved = 0;        // bytes that all ranks move per byte of a phase's work, by the mean
  bool pipelined = false;  // `rounds` are the fill; `cycle`, `load` and `lanes` as in round.h
                           // (load: what is streamed)
  int lanes = 1;
  Round cycle;
  int streamed = 0;  // messages of a piece in all lanes
  // By sockets: what the busiest rank's thread sends and receives, halved, per byte of a phase's
  // work (mean over rounds); a ring's ranks send what they receive.
  double io = 1;
};

struct Communicator {
  const topology::Fabric* fabric = nullptr;
  std::vector<int> devices;  // of each rank
  // Cyclic orders of ranks, each carrying an equal share. NCCL: one per NIC of a host where it
  // spans hosts, so that every NIC is used; ranks of a host are neighbours. Gloo: one, rank r sends
  // to rank r - 1. Tcp: one, to rank r + 1.
  std::vector<std::vector<int>> rings;
  std::vector<Hop> ring_hops;  // of the first ring, in its order
  std::vector<Pattern>
      patterns;   // kAllReduce, kBroadcast; tcp: the others below; whoever needs more adds them
  Layout layout;  // of the step lists: ranks in order, grouped by layout_of()
  std::vector<std::uint8_t> transports;  // that any hop uses, ascending
  std::vector<double> ring_shares;       // of each ring; empty = equal
  std::vector<int> ring_nics;  // by which each ring passes from host to host, local index; -1, or
                               // empty = each device's own
  // NCCL as it decides on these GPUs (make_nccl_communicator): algorithm, protocol and channels by
  // size. None: NCCL's ring, priced by the profile's own latencies.
  nccl::OwnedGroup nccl;
  // NCCL's all-to-all (add_all_to_all): where its patterns are, of messages by Simple and by LL; 0
  // = it has none. `messages` without their group: a copy of the communicator has one of its own.
  int all_to_all = 0;
  int send_recv = 0;  // add_send_recv (parts.h): where its pattern is; 0 = it has none
  nccl::P2pOperation messages;
  Backend backend = Backend::Nccl;
  bool sockets = false;  // Gloo between GPUs (sockets.h)
  OpenMpi mpi;           // of backend mpi
  int server = -1;       // device beside whose NIC a parameter server is (servers.h); -1 = none
  // The first of all links that are alike, with what each pattern puts on them (load_demands.h);
  // empty = not known.
  std::vector<topology::LinkId> distinct;
  // Of a job's Program::groups, in their order (make_joint).
  std::vector<Communicator> groups;
  // Of groups that were joined: each of them by itself; empty = this one stands for all.
  std::vector<Communicator> joined;
  int ranks() const { return static_cast<int>(devices.size()); }
};
// Of a collective: Op::group.
inline const Communicator& of_group(const Communicator& job, int group) {
  return group == 0 ? job : job.groups[static_cast<std::size_t>(group - 1)];
}
// Equal groups that communicate at the same time, as their first one with what all of them put on
// the links. REQUIRES: not empty; alike in patterns.
Communicator make_joint(std::vector<Communicator> groups);
// The all-reduce of the communicator's algorithm: load is the mean over rings.
inline constexpr int kAllReduce = 0;
// The binomial tree from rank 0 (tcp: round by round; Gloo: each rank to all its children at once;
// NCCL broadcasts along its ring: kAllReduce).
inline constexpr int kBroadcast = 1;
// Backend tcp's other operations: one pass of the ring each; the binomial tree to a root.
inline constexpr int kReduceScatter = 2;
inline constexpr int kAllGather = 3;
inline constexpr int kReduce = 4;
// Backend mpi: every all-reduce by its own number, and every broadcast (kMpiBroadcasts) after them;
// kAllReduce and kBroadcast are Rabenseifner's and the binomial tree again.
inline constexpr int kMpiPatterns = 2;
inline constexpr std::array kMpiBroadcasts{Algorithm::BinomialTree, Algorithm::BasicLinear,
                                           Algorithm::Chain,        Algorithm::BinaryTree,
                                           Algorithm::Knomial,      Algorithm::ScatterAllGather};
int mpi_pattern(MpiAllReduce a);
int mpi_broadcast_pattern(Algorithm a);
// NCCL's other all-reduces, where `nccl` is set, in the order of nccl::Pipeline: bytes on a link
// per byte of the operation.
inline constexpr int kNcclPatterns = 2;
constexpr int nccl_pattern(nccl::Pipeline p) {
  return kNcclPatterns + static_cast<int>(p);
}

// REQUIRES: devices distinct and mutually reachable; performs(algorithm, AllReduce). Cost grows
// with ranks and route lengths. `algorithm`: of the all-reduce; other than Ring: backends tcp and
// gloo only. `sockets`: Gloo's messages pass between the hosts' processes (sockets.h).
Communicator make_communicator(const topology::Fabric& fabric, std::vector<int> devices,
                               Backend backend, Algorithm algorithm = Algorithm::Ring,
                               bool sockets = false);

// Ranks in order; grouped by host if hosts have several devices, else by rack or leaf; one group
// where the fabric has none of these.
Layout layout_of(const topology::Fabric& fabric, const std::vector<int>& devices);

// The links under an algorithm's rounds. REQUIRES: performs(algorithm, operation, ranks), ranks >=
// 2, layout set.
Pattern make_pattern(const Communicator& c, Algorithm algorithm, Operation operation);

// Rank pairs (from, to) of round `round` of the binomial tree rooted at rank 0: vrank < 2^round
// sends to vrank + 2^round.
std::vector<std::pair<int, int>> tree_round(int ranks, int round);
// Whom rank v sends to in that tree, in the order of the rounds.
std::vector<int> tree_children(int ranks, int v);

}  // namespace ddpsim::collective
