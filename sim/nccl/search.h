// What NCCL's channel search finds on a node: how many channels at which speed, for rings, trees
// and NVLS. An emulation of the search's outcome on nodes whose hosts are alike, not of its order
// of trying. Source: NCCL src/graph/search.cc (speeds, duplication, trees' speed-up inside a node),
// src/graph/topo.h; docs/model.md section 7.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sim/nccl/tuning.h"

namespace ddpsim::nccl {

// One node as NCCL's topology knows it. Bandwidths in NCCL's own numbers (link_bandwidth()), one
// direction.
struct Node {
  int gpus = 1;                             // that the communicator uses
  std::vector<GBps> links;                  // capacity of each link of the node, one direction
  std::vector<char> pcie;                   // of each link: a PCIe one
  std::vector<std::vector<int>> gpu_route;  // [from * gpus + to]: links that a message crosses
  std::vector<PathType> gpu_path;           // [from * gpus + to]
  int nics = 0;
  GBps nic_bandwidth;
  std::vector<std::vector<int>> out_route;  // [gpu * nics + nic]: links from the GPU to the NIC
  std::vector<std::vector<int>> in_route;   // [gpu * nics + nic]: from the NIC to the GPU
  std::vector<PathType> nic_path;           // [gpu * nics + nic]: from the GPU to the NIC
  std::vector<PathType>
      nic_back_path;  // [gpu * nics + nic]: from the NIC to the GPU, which is not by another GPU
  std::vector<int> in_reverse;  // [gpu * nics + nic]: the way back of the last link from the NIC to
                                // the GPU; -1 = none
  bool nvswitch = false;
  GBps nvlink_per_gpu;  // with NVSwitch
  std::size_t at(int gpu, int nic) const {
    return gpu * nics + nic;
  }  // in the lists of [gpu * nics + nic]
  bool operator==(const Node&) const = default;
};

// What NCCL's numbers of a node's links, and its search, depend on.
struct Machine {
  int compute_capability = 90;
  Cpu cpu = Cpu::Intel;
  Version version;
  int cross_nic = 2;  // NCCL_CROSS_NIC: rings leave by the NIC that they came by (0), by any (1),
                      // or by any where that is faster, two rings exchanging their NICs (2)
  bool rccl = false;  // RCCL's numbers (rccl.h)
  bool operator==(const Machine&) const = default;
};
// NCCL's number for a link of this raw rate. Sources: topo.h (LOC_BW, SM*_NVLINK_BW,
// *_QPI_BW, AMD_BW, ARM_BW, PCI), NIC: speed / 8. Between CPUs NCCL has one number for each make,
// never more than the raw rate here; of Intel's the one for Skylake, from 2.26 on with GPUs since
// SM89 the one for Sapphire Rapids.
enum class Wire : std::uint8_t { Nvlink, C2c, Pcie, Upi, Nic };
GBps link_bandwidth(Wire wire, GBps raw, const Machine& m);

// What a search is asked. Of several nodes any number has one answer.
struct SearchQuestion {
  Node node;
  bool several = false;
  Machine machine;
  bool collnet = false;
  bool operator==(const SearchQuestion&) const = default;
};
// Answers that are asked for again: a search takes longer than most of what is asked of it.
struct Searches {
  std::function<std::optional<Graphs>(const SearchQuestion&)> find;
  std::function<void(const SearchQuestion&, const Graphs&)> keep;
};
// The newest few; for one thread.
class NewestSearches {
 public:
  std::optional<Graphs> find(const SearchQuestion& q) const;
  void keep(const SearchQuestion& q, const Graphs& found);
  Searches view() {  // of what stays where it is
    return {[this](const SearchQuestion& q) { return find(q); },
            [this](const SearchQuestion& q, const Graphs& found) { keep(q, found); }};
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::deque<std::pair<SearchQuestion, Graphs>> known_;
};
// Graphs of `nodes` such nodes. Rings always have a channel, and trees where there are two ranks:
// one of 0.1 GB/s where nothing is found, as in NCCL. Channels 0: the algorithm has none.
// `latency_inter`: of the network plugin. `known`: asked first, and told.
Graphs search(const Node& node, int nodes, const Machine& m, Duration latency_inter, bool collnet,
              const Searches* known = nullptr);

}  // namespace ddpsim::nccl
