// The same collectives, message by message: every message of every step is a task. The oracle of
// price.h's closed forms.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sim/collective/price.h"
#include "sim/engine/task_graph.h"
#include "sim/nccl/fabric/messages.h"

namespace ddpsim::collective {

// Gives the flow of a message between two ranks (the links of find_hop_route, one unit = one byte).
struct FlowOfHop {
  std::function<engine::FlowId(int from, int to, int nic)> of;
  engine::FlowId operator()(int from, int to, int nic = -1) const { return of(from, to, nic); }
};

// Work on a core that ranks share: it is due after `due`, and done when `done` ends.
struct CoreTasks {
  engine::TaskId due;
  engine::TaskId done;
};
using TakeCore = std::function<CoreTasks(Duration alone)>;
// Who adds them; empty = every rank has a core of its own.
struct SharedCores {
  TakeCore sum;      // of a received chunk
  TakeCore message;  // TransportSection::message_core
};
// Gloo: all collectives of a rank share one connection to each neighbour, which carries one message
// after the other. The message waits its turn after `due`; it is there when `done` ends. Empty = a
// connection for each collective.
using TakeTurn = std::function<CoreTasks(int from, int to, double bytes)>;

// What Linux hands down at once: as many frames as 64 KiB hold (TCP segmentation offload), of 8,948
// bytes of data (MTU 9000, as calib/testbed.cc has it).
inline constexpr std::int64_t kSegmentBytes = 7 * 8948;
inline constexpr Duration kDelayedAcknowledgement{40'000'000'000};  // Linux: TCP_DELACK_MIN
struct Connections;                                                 // connections.h
// Backend tcp, several streams: connections between two ranks that collectives use in turn, a
// stream.
inline constexpr int kSlotsOfStream = 4;
// Backend tcp: what segments need of who simulates them (segments.h). Without `queue` messages
// share links by rates.
struct SegmentPath {
  // The job's connections, and which of those between two ranks this collective uses: collectives
  // of one slot follow one another. nullptr: connections that carry this collective alone.
  Connections* connections = nullptr;
  int slot = 0;
  // A segment in a link's queue, first come, first served, whichever connection's. `first`: the
  // link is its sender's own, where a saved burst passes at the peak rate; a later one lets pass
  // what it has tokens for. 0 bytes: an acknowledgement.
  std::function<CoreTasks(topology::LinkId link, double bytes, bool first)> queue;
  // Old connections (segments.h), by a number of their own: the receiver reads the next message
  // from `begin` on; the acknowledgement of a segment of message `message` (0, 1, ...) that arrives
  // with `there`.
  std::function<std::size_t()> add_reader;
  std::function<void(std::size_t reader, engine::TaskId begin)> reads;
  std::function<engine::TaskId(std::size_t reader, std::size_t message, engine::TaskId there)>
      acknowledge;
  // How often these connections have carried this collective before.
  double plays_before = 1e9;
  // With what else is in flight: other collectives of the job, or other jobs.
  bool shares_links = false;
};

// A collective, and what its messages need of who simulates it.
struct MessagePlay {
  engine::TaskGraph& graph;
  const Profile& profile;
  Level level = Level::Mid;
  const Price& price;
  Operation operation = Operation::AllReduce;
  Bytes size;
  int root = 0;  // of a rooted one; a rank
  const FlowOfHop& flow;
  std::span<const engine::TaskId> arrive;  // by rank: the task after which it takes part
  nccl::Flows* stages = nullptr;           // Nccl, unless it chose its rings
  SharedCores cores;                       // backends tcp and gloo (sums)
  TakeTurn turn;                           // backend gloo
  // Backend tcp; its queues: where messages meet on a link, thus of a ring only where its hops
  // share one, or it is not alone.
  SegmentPath path;
};
// Adds the tasks of one collective. Returns, per rank, the task after which its part is done.
// REQUIRES: performs(c, operation); no server, and not all to all.
std::vector<engine::TaskId> add_messages(const Communicator& c, const MessagePlay& play);

// The step lists of one of the communicator's patterns, for both executors; pieces of a pipeline as
// price.h has them. `root`: of a rooted one.
Schedule schedule_of(const Communicator& c, PatternId pattern, std::int64_t elements,
                     std::int64_t element_size, int root = 0);

// Any step list: price.pattern says which. Backends tcp, gloo and mpi.
std::vector<engine::TaskId> add_step_list(const Communicator& c, const MessagePlay& play);

}  // namespace ddpsim::collective
