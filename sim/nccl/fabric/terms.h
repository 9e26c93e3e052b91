// Terms that the prices of NCCL's operations (price.cc) and its pipelines' messages
// (messages.cc) share. Internal to this room.
#pragma once

#include "sim/nccl/fabric/group.h"
#include "sim/nccl/fabric/stages.h"

namespace ddpsim::nccl {

// The profile's section of a hop's transport.
const TransportSection& section(const Group& g, const Profile& p, const SlowestHop& hop);
// The slowest link that a hop crosses carries so much, alone.
BytesPerUs hop_rate(const Group& g, const Profile& p, Level level, const SlowestHop& hop);
// One step over a hop, as docs/model.md 7.3 has it. `message`: bytes of data at once.
Microseconds step_time(const Group& g, const Profile& p, const SlowestHop& hop, Algorithm a,
                       Protocol protocol, std::int64_t message);
// A price's times and bus bandwidth; what limits its transfer is set before.
// `bus_bytes`: of the operation, as nccl-tests counts them.
void set_times(OperationTime& price, Microseconds base, Microseconds steps, Microseconds fill,
               Microseconds transfer, double bus_bytes);
// Bytes on the wire per byte of data, and what the protocol leaves unused: LL's flags, LL128's
// flags and its copies through shared memory (NCCL: 0.92).
constexpr double wire_factor(Protocol p) {
  return p == Protocol::Ll ? 2 : p == Protocol::Ll128 ? 1 / 0.92 : 1;
}
// One thread block moves so much at most: NCCL's limit of a tree's channel on one node
// (perChMaxTree).
GBps block_rate(const Group& g);
// One thread block copies so much at most into or out of a buffer. NCCL's limits are of a channel
// of its search, and the communicator runs it as two thread blocks (src/graph/connect.cc).
GBps copy_rate(const Group& g);
// NCCL's limit (perChMaxRingLL128, perChMaxTreeLL128) is of a channel of its search, which
// the communicator runs as several (src/graph/connect.cc).
GBps ll128_block_rate(const Group& g, Algorithm a);
// The slowest link: its time for each byte of the operation. `inside`, `between`: bytes that a link
// carries per byte of its load, in a node and between nodes.
struct Bottleneck {
  Microseconds time;
  topology::LinkId link = 0;
};
// Whether NICs and proxies move what passes a link, not thread blocks: a cable between hosts, and
// the PCIe of hosts whose GPUs reach one another by something else.
bool of_network(const Group& g, topology::LinkId link);
Bottleneck bottleneck(const Group& g, const Profile& p, Level level,
                      const std::vector<LinkLoad>& loads, double inside = 1, double between = 1,
                      bool copied = true);

// A link carries so much. `copied`: as far as proxies' threads copy it.
BytesPerUs carried_by(const Group& g, const Profile& p, Level level, topology::LinkId link,
                      bool copied = true);

// Of one connection; 0 = the proxy thread of a rank serves all its sockets.
int socket_threads(const Group& g);
// Whether sockets may carry what passes between nodes: their rate is the profile's, which has none
// where they do not (socket_rate).
bool has_sockets(const Group& g);
// Of what a stage carries on its way through sockets, per byte of the operation, in units of what
// socket_rate() says of all channels' connections: the bytes, where a rank has one thread for
// all; else each connection has as much of the threads as of the bytes.
double socket_load(const Group& g, Pipeline p, const Stage& s);
// The threads of a rank's sockets send, and receive, so much over so many connections at once;
// 0 = nothing limits them.
BytesPerUs socket_rate(const Group& g, const Profile& p, Level level, int connections);

struct PipeTerms {
  Pipeline pipeline = Pipeline::Tree;
  Operation operation = Operation::AllReduce;
  double piece = 0;              // bytes of the operation that pass together, all channels
  Microseconds inside_latency;   // of a stage inside a node
  Microseconds between_latency;  // ... between nodes
  double inside = 1;             // bytes that a link carries per byte of its load, in a node
  double between = 1;            // ... between nodes
  BytesPerUs blocks;   // that the thread blocks of a rank move, all channels; 0 = no limit
  BytesPerUs copies;   // ... copy into the switch's window
  BytesPerUs sockets;  // ... that the threads of its sockets send, and receive; 0 = no limit
  bool lines = false;  // hops inside a node hand on line by line (LL, LL128)
  Microseconds pace;   // per byte, that the next piece sets out after the one before, at least
  int window = 0;      // pieces that a connection's buffer holds; 0 = no limit
};
// REQUIRES: the choice is available and not a ring.
PipeTerms pipe_terms(const Group& g, const Profile& p, Level level, Operation op,
                     const Choice& choice, Bytes size);

struct PipeTime {
  Microseconds total;    // without base
  Microseconds inside;   // latencies of one piece's longest way, of hops inside nodes
  Microseconds between;  // ... between nodes
};
// All pieces of `size` bytes through all steps. `each`: what each mover takes for a byte.
PipeTime pipe_time(const Pipe& pipe, const PipeTerms& t, const std::vector<Microseconds>& each,
                   double size);

}  // namespace ddpsim::nccl
