// A communicator as NCCL builds it: nodes, channels, and what each algorithm puts on the links.
#pragma once

#include <array>
#include <vector>

#include "sim/nccl/choose.h"
#include "sim/topology/fabric.h"

namespace ddpsim::collective {

// Bytes that cross a link per byte that the pattern moves over each of its hops.
struct LinkLoad {
  topology::LinkId link = 0;
  double per_byte = 0;
};

// The slowest hop of one kind.
struct NcclHop {
  bool exists = false;
  std::uint8_t transport = 0;
  Duration wire;
  Bytes eager;         // smallest of its links that has one
  double rate = 0;     // raw, bytes/s, of its slowest link
  double staging = 0;  // bytes/s one way; 0 = not staged
};

// Channels that take the same way, as one.
struct NcclChannels {
  std::vector<std::vector<int>> order;  // ranks of each node, in order
  int nic = -1;                         // between hosts, local index; -1 = each device's own
  double share = 0;                     // of the operation's bytes
};

// What NCCL has besides rings is a pipeline of stages (nccl_stages.h). Here those that are alike,
// with what they wait for and share, are one.
struct NcclMover {
  enum class What : std::uint8_t {
    Link,
    Threads,
    Copies
  } what = What::Link;        // Copies: into the switch's window
  topology::LinkId link = 0;  // What::Link: the first of those that are alike
  double share = 1;           // What::Threads: of the rank's thread blocks
};
struct NcclStep {
  bool inside = false;   // takes the latency of a hop inside a node
  bool between = false;  // ... between nodes
  bool line = false;     // a hop inside a node: LL and LL128 hand on line by line to the next one
  std::vector<std::uint32_t> after;  // steps before this one
  std::vector<std::pair<std::uint32_t, double>>
      load;  // movers, and bytes that they move for all stages that may go at once, per byte of the
             // operation
};
// What one link, or one rank's threads, do in all. Those that do alike are one.
struct NcclUse {
  std::uint32_t mover = 0;
  topology::LinkId link = 0;  // of a link: the first of them
  std::vector<std::pair<std::uint32_t, double>>
      steps;  // ascending, and bytes in each, per byte of the operation
  double total = 0;
};
struct NcclPipe {
  std::vector<LinkLoad> every;  // bytes on a link per byte of the operation; empty = the group has
                                // no such pipeline, or it has no links
  std::vector<NcclMover> movers;
  std::vector<NcclStep> steps;  // each behind those that it waits for
  std::vector<NcclUse> uses;
  int levels = 0;          // steps that stand one behind another
  std::size_t stages = 0;  // before alike ones became one
};
enum class NcclPipeline : std::uint8_t { Tree, Nvls, NvlsTree, CollnetDirect, CollnetChain, Pat };
inline constexpr std::size_t kNcclPipelines = 6;

// A communicator as NCCL builds it. Loads are bytes on a link per byte of the operation (its size
// as nccl-tests states it), all channels together.
struct NcclGroup {
  const topology::Fabric* fabric = nullptr;
  std::vector<int> devices;
  nccl::System system;
  nccl::Settings settings;
  std::vector<std::vector<int>> nodes;  // ranks of each node, in order
  std::vector<int> node_of;             // of each rank
  NcclHop intra;
  NcclHop inter;
  NcclHop
      window;  // from a GPU through its NVSwitch: NVLS's, whichever way messages take between GPUs
  // Ring orders over all nodes; channels that are alike are one, with their share of the bytes.
  struct Ring {
    std::vector<int> order;
    double share = 1;
    int nic = -1;  // between hosts, local index; -1 = each device's own
  };
  std::vector<Ring> rings;
  std::vector<LinkLoad>
      every_ring;              // all-reduce: each hop of each ring carries its share of 2(n-1)/n
  std::vector<LinkLoad> ring;  // the same, folded
  std::vector<NcclChannels> trees;  // chains inside nodes, double binary trees between them
  std::array<NcclPipe, kNcclPipelines> pipes;  // all-reduce; PAT: all-gather
  int ranks() const { return static_cast<int>(devices.size()); }
  const NcclPipe& pipe(NcclPipeline p) const { return pipes[static_cast<std::size_t>(p)]; }
};

}  // namespace ddpsim::collective
