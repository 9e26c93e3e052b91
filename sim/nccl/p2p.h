// NCCL's point-to-point operations (ncclSend and ncclRecv in a group, one kernel): into how many
// parts a message is cut, by which protocol, and which thread block moves which part when. NCCL has
// no cost model for them and chooses nothing. Source: NCCL 2.28.9, src/enqueue.cc (addP2pToPlan,
// scheduleP2pTasksToPlan, addWorkBatchToPlan), src/graph/paths.cc (ncclTopoComputeP2pChannels),
// src/init.cc (computeBuffSizes, the schedule of peers), src/include/channel.h. Older versions: its
// rule, but the LL threshold (below).
#pragma once

#include <vector>

#include "sim/nccl/choose.h"

namespace ddpsim::nccl {

// Of a communicator.
struct P2p {
  int blocks = 1;          // thread blocks (p2p channels), a power of two
  int per_peer = 1;        // of them, that one message may use at most; a power of two
  std::int64_t chunk = 0;  // bytes that a connection hands over at once (Simple)
};
// `nvlinks`: between the two GPUs of a node that have fewest, 0 = some pair has none; -1 = no node
// has two GPUs. `all_nvlink`: every pair of a node reaches one another over NVLinks, through
// another GPU or not. One NIC a GPU.
P2p p2p_of(const System& s, const Settings& set, int nvlinks, bool all_nvlink);
// NVLinks that a link of this raw rate, one direction, is made of.
int nvlinks_of(GBps raw, int compute_capability);

struct P2pMessage {
  Protocol protocol = Protocol::Simple;
  int parts = 1;           // each by a thread block of its own
  std::int64_t part = 0;   // bytes of the largest
  std::int64_t chunk = 0;  // bytes of data handed over at once
};
// `network`: between nodes, where p2p connections have no LL buffers
// (NCCL_ALLOC_P2P_NET_LL_BUFFERS=0). LL: up to 16 KiB (NCCL_P2P_LL_THRESHOLD;
// Change::LlThresholdForEachBlock). REQUIRES: bytes > 0.
P2pMessage p2p_message(const System& s, const P2p& p, Version v, bool network, std::int64_t bytes);

// Messages that a thread block moves side by side, each by its share of the warps.
struct P2pBatch {
  int inside = 0;  // to GPUs of the node
  int between = 0;
  int all() const { return inside + between; }
};
// Of a rank that sends to and receives from every other: the batches of each thread block, one
// after another. At most 8 messages a batch, whose rounds of the schedule are in one group of
// eight. `node_sizes`: ranks of each node; the rank is the first node's first.
std::vector<std::vector<P2pBatch>> p2p_batches(const P2p& p, const std::vector<int>& node_sizes,
                                               int parts_inside, int parts_between);
// Chunks of one message under way where `messages` share a thread block (src/transport/net.cc: 16
// buffers a thread block, 8 a connection).
int p2p_depth(bool network, int messages);

}  // namespace ddpsim::nccl
