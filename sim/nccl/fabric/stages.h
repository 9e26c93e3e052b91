// NCCL's trees, NVLS, NVLSTree, CollNet and PAT as pipelines: what each piece of an operation
// passes, stage after stage. The closed form is made of their levels (price.cc), the messages
// of the stages themselves (messages.cc).
//
//   tree      chain to the node's head -> up the double binary tree -> down -> chain from the head;
//             one node: the chain, up and down
//   NVLS      copy into the switch's window -> the switch sums each head's part and gives it to all
//             -> copy out; several nodes (with CollNet): sums, the heads to the network's switches
//             and back, gives
//   NVLSTree  copy in -> the switch sums for the heads -> each head its part up and down the trees
//             -> the switch gives it to all -> copy out
//   CollNet   Chain: to the node's head -> to the network's switches and back -> from the head;
//             Direct: parts to all heads -> ... -> to all
//   PAT       Bruck's rounds, far first (all-gather; reduce-scatter: near first)
// Source: NCCL src/device/all_reduce.h, src/graph/trees.cc, src/transport/nvls.cc,
// src/include/collectives.h (PatAGAlgorithm).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/nccl/fabric/nccl.h"

namespace ddpsim::nccl {

struct Pipe;  // group.h

struct Stage {
  enum class Kind : std::uint8_t {
    CopyIn,  // by `from`'s thread blocks
    CopyOut,
    Hop,        // `from` to `to` inside a node
    Net,        // ... between nodes, by `nic`
    Reduce,     // NVLS: all of `from`'s node give their parts, `from` takes the sum
    Multicast,  // `from` gives, all of its node take
    Switch,     // both at once
    Sharp,      // `from`'s NIC to the network's switches, which sum, and back
  };
  Kind kind = Kind::Hop;
  int from = 0;  // ranks
  int to = 0;
  int nic = -1;
  int group = 0;           // of `from`'s threads (group_share)
  double share = 1;        // bytes per byte of the operation
  double blocks = 0;       // bytes that `from`'s thread blocks move per byte of the operation
  int level = 0;           // 1 + the largest of those that it waits for; from 0
  int crossings = 0;       // the most hops between nodes on a way to here, with this one
  bool same_pass = false;  // the thread block writes these bytes while it writes those of a stage
                           // before this one to another place: no sooner, and no work of their own
  std::uint32_t after_begin = 0;  // in Stages::after
  std::uint32_t after_end = 0;
};
// All stages of a piece. The channels of a tree take the same way by other GPUs, so that one of
// them is listed; all stages in order: channel after channel.
struct Stages {
  struct Channel {
    std::vector<int> ranks;  // who stands where the listed channel has rank r; empty = r
    int nic = -1;            // between nodes
    double share = 1;        // of the operation's bytes
  };
  std::vector<Stage> list;  // of one channel, and of its bytes; each behind those that it waits for
  std::vector<std::uint32_t> after;  // what each waits for, as places in `list`, ascending
  std::vector<Channel> channels;
  std::size_t size() const { return list.size() * channels.size(); }
  Stage at(std::size_t channel, std::size_t i) const;
  Stage at(std::size_t number) const { return at(number / list.size(), number % list.size()); }
  std::span<const std::uint32_t> waits_for(std::size_t i) const {
    return std::span(after).subspan(list[i].after_begin, list[i].after_end - list[i].after_begin);
  }
};
bool is_inside(Stage::Kind k);   // takes the latency of a hop inside a node
bool is_between(Stage::Kind k);  // ... between nodes

// NCCL runs a tree's channel on one thread block, half of whose threads send up and half down;
// alike channels are one group, half of them on each of the two trees.
int groups_of(const Group& g, Pipeline p);
// Of a rank's thread blocks.
double group_share(const Group& g, Pipeline p, int group);

// REQUIRES: the group has the pipeline. `op`: AllReduce; NVLS and PAT also AllGather and
// ReduceScatter.
Stages stages_of(const Group& g, Pipeline p, Operation op);

// Appends what a stage puts on links, per byte that passes it; a link may come twice. Reuses the
// storage of `route`.
void add_stage_load(const Group& g, const Stage& s, std::vector<topology::LinkId>& route,
                    std::vector<LinkLoad>& out);

// pipe.cc: the stages that are alike as one step each, and what each link and each rank's
// threads do in all.
Pipe make_pipe(const Group& g, Pipeline p, Operation op);
// The group's own; NVLS's gathers and reduce-scatters have one that is made into `own`.
const Pipe& pipe_of(const Group& g, Pipeline p, Operation op, Pipe& own);

}  // namespace ddpsim::nccl
