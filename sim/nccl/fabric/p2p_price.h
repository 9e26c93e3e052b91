// All-to-all and send/recv as NCCL performs them: ncclSend and ncclRecv in a group, one kernel.
// Inside a node over NVLink or PCIe; between nodes by the NIC of the local GPU that has the
// receiver's place in its host, where NVLinks lead to it (PXN), else by the sender's own. NCCL has
// no estimate of these.
//
//   all_to_all  size S = a rank's buffer; every pair exchanges S/n; bus bandwidth: (n-1)/n S / time
//   send_recv   every rank sends S to the next and receives S from the one before; bus bandwidth: S
//               / time
//
// docs/model.md 7.5. A rank's own block is not copied (in place).
#pragma once

#include <vector>

#include "sim/nccl/fabric/hop.h"
#include "sim/nccl/fabric/nccl.h"
#include "sim/nccl/p2p.h"

namespace ddpsim::nccl {

struct P2pOperation {
  const Group* group = nullptr;
  Operation operation = Operation::AllToAll;
  P2p p2p;
  // Bytes on a link per byte of the operation, ascending by link: of messages inside nodes, and
  // between.
  std::vector<LinkLoad> inside;
  std::vector<LinkLoad> between;
  // Of each transport, the longest wire.
  std::vector<SlowestHop> inside_hops;
  std::vector<SlowestHop> between_hops;
  std::vector<std::vector<P2pBatch>> batches(const P2pMessage& in, const P2pMessage& out) const;
};

// Whose routes of all pairs are added up.
inline constexpr int kMostP2pRanks = 4096;
// REQUIRES: operation AllToAll or SendRecv; 2 to kMostP2pRanks ranks; g outlives the result.
P2pOperation make_p2p(const Group& g, Operation operation);
// Adds the way of a message between two ranks. REQUIRES: from != to.
void find_p2p_route(const Group& g, int from, int to, topology::Route& route);
// Bytes of one message.
std::int64_t p2p_message_bytes(const P2pOperation& o, Bytes size);

struct P2pMessages {
  P2pMessage inside;   // parts 0: no pair of ranks is on one node
  P2pMessage between;  // parts 0: all are
};
// REQUIRES: size > 0.
P2pMessages p2p_messages(const P2pOperation& o, Bytes size);

struct P2pTime {
  OperationTime price;
  P2pMessage inside;  // both as p2p_messages
  P2pMessage between;
};
// Bytes on a link per byte of the operation, ascending by link: of messages inside nodes by this
// protocol, which doubles them where it is LL.
std::vector<LinkLoad> p2p_loads(const P2pOperation& o, Protocol inside);
// REQUIRES: p has every transport of the fabric; size > 0.
// The threads of a rank's sockets send, and receive, so much; 0 = no limit.
BytesPerUs p2p_socket_rate(const P2pOperation& o, const Profile& p, Level level,
                           const P2pMessage& between);
P2pTime p2p_time(const P2pOperation& o, const Profile& p, Level level, Bytes size);

}  // namespace ddpsim::nccl
