// A communicator as NCCL builds it: nodes, channels, and what each algorithm puts on the links.
// Nobody but this room sees it.
#pragma once

#include <array>
#include <vector>

#include "sim/nccl/fabric/hop.h"
#include "sim/nccl/fabric/nccl.h"

namespace ddpsim::nccl {

struct Searches;  // search.h

// Channels that take the same way, as one.
struct AlikeChannels {
  std::vector<std::vector<int>> order;  // ranks of each node, in order
  int nic = -1;                         // between hosts, local index; -1 = each device's own
  double share = 0;                     // of the operation's bytes
};

// What NCCL has besides rings is a pipeline of stages (stages.h). Here those that are alike,
// with what they wait for and share, are one.
struct PipeMover {
  enum class What : std::uint8_t {
    Link,
    Threads,
    Copies,
    Sockets
  } what = What::Link;  // Copies: into the switch's window. Sockets: what copies between them and
                        // memory, one way: a rank's proxy thread, or a connection's own threads
  topology::LinkId link = 0;  // What::Link: the first of those that are alike
  double share = 1;           // What::Threads: of the rank's thread blocks
};
struct PipeStep {
  bool inside = false;   // takes the latency of a hop inside a node
  bool between = false;  // ... between nodes
  bool line = false;     // a hop inside a node: LL and LL128 hand on line by line to the next one
  std::vector<std::uint32_t> after;  // steps before this one
  std::vector<std::pair<std::uint32_t, double>>
      load;  // movers, and bytes that they move for all stages that may go at once, per byte of the
             // operation
};
// What one link, or one rank's threads, do in all. Those that do alike are one.
struct PipeUse {
  std::uint32_t mover = 0;
  topology::LinkId link = 0;  // of a link: the first of them
  std::vector<std::pair<std::uint32_t, double>>
      steps;  // ascending, and bytes in each, per byte of the operation
  double total = 0;
};
struct Pipe {
  std::vector<LinkLoad> every;  // bytes on a link per byte of the operation; empty = the group has
                                // no such pipeline, or it has no links
  std::vector<PipeMover> movers;
  std::vector<PipeStep> steps;  // each behind those that it waits for
  std::vector<PipeUse> uses;
  int levels = 0;          // steps that stand one behind another
  std::size_t stages = 0;  // before alike ones became one
};

// A communicator as NCCL builds it. Loads are bytes on a link per byte of the operation (its size
// as nccl-tests states it), all channels together.
struct Group {
  const topology::Fabric* fabric = nullptr;
  std::vector<DeviceId> devices;
  System system;
  Settings settings;
  std::vector<std::vector<int>> nodes;  // ranks of each node, in order
  std::vector<int> node_of;             // of each rank
  SlowestHop intra;
  SlowestHop inter;
  SlowestHop
      window;  // from a GPU through its NVSwitch: NVLS's, whichever way messages take between GPUs
  // Ring orders over all nodes; channels that are alike are one, with their share of the bytes.
  std::vector<Wiring::Ring> rings;
  std::vector<LinkLoad>
      every_ring;              // all-reduce: each hop of each ring carries its share of 2(n-1)/n
  std::vector<LinkLoad> ring;  // the same, folded
  // Without GPUDirect: bytes that the busiest rank's proxy thread copies for each that leaves its
  // NIC: 2 where one rank of a node sends and receives all.
  double proxy_copies = 2;
  // Of a ring's bytes between nodes, what the busiest rank sends, or receives.
  double busiest_of_rings = 1;
  std::vector<AlikeChannels> trees;  // chains inside nodes, double binary trees between them
  By<Pipeline, Pipe> pipes;          // all-reduce; PAT: all-gather
  std::vector<bool> to_memory;       // links_to_memory() (peers.h)
  By<Operation, Table> tables;       // cost_table() under the settings' version
  Constants constants;
  int ranks() const { return static_cast<int>(devices.size()); }
};

// As build() in nccl.h. `known`: of search().
Group make_group(const topology::Fabric& fabric, std::vector<DeviceId> devices, Settings settings,
                 int compute_capability, const Graphs* found = nullptr,
                 const Searches* known = nullptr);

}  // namespace ddpsim::nccl
