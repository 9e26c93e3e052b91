// HostRoutes: the ways inside one kind of host, between its GPUs and from them to its NICs. Made
// once, used by every host that is alike.
//
// A way has the fewest links; of those the widest; of those the first by the order of vertices.
// Only NVLink goes through a GPU, and through one at most (from GPU to GPU); nothing goes through a
// NIC. The way back is the way there reversed. Source of the rule: NCCL 2.28.9, src/graph/paths.cc
// (ncclTopoSetPaths); of PXN: addInterStep and ncclTopoComputePaths there.
#pragma once

#include <span>
#include <vector>

#include "sim/model/inside.h"
#include "sim/topology/path_type.h"

namespace ddpsim::topology {

// Links are numbered 2 * i from `from` to `to` of the graph's link i, 2 * i + 1 back.
struct LocalPath {
  std::vector<std::uint32_t> links;
  PathType type = PathType::Dis;
  std::int64_t bits_per_s = 0;  // of the narrowest link
  std::uint32_t decides = 0;    // the link whose transport prices a message: a PCIe one if there is
                                // one, else C2C, else CPU to CPU, else NVLink
};

class HostRoutes {
 public:
  // failed[i]: link i is not to be used; empty = none.
  explicit HostRoutes(const HostGraph& graph, const std::vector<bool>& failed = {});
  const LocalPath& between(int gpu_a, int gpu_b) const {
    return between_[index(gpu_a, gpu_b, gpus_)];
  }
  // Through the host's memory: from a to b's nearest CPU, and from there to b, by no NVLink.
  const LocalPath& by_cpu(int gpu_a, int gpu_b) const {
    return by_cpu_[index(gpu_a, gpu_b, gpus_)];
  }
  // To its nearest CPU; no links: none is drawn.
  const LocalPath& to_cpu(int gpu) const { return to_cpu_[gpu]; }
  const LocalPath& to_nic(int gpu, int nic) const { return to_nic_[index(gpu, nic, nics_)]; }
  const LocalPath& from_nic(int nic, int gpu) const { return from_nic_[index(gpu, nic, nics_)]; }
  // The link from a GPU to the NVSwitch, both directions; UINT32_MAX = none.
  std::uint32_t to_nvswitch(int gpu) const { return to_nvswitch_[gpu]; }
  std::uint32_t from_nvswitch(int gpu) const { return to_nvswitch(gpu) ^ 1u; }
  // Whether any way from a GPU to a NIC is drawn; if not, there are no NIC paths and they cost
  // nothing.
  bool draws_nics() const { return draws_nics_; }
  // Nearest NIC: path type (a way by another GPU counts as the way without it), links, then the NIC
  // that serves fewest GPUs so far, then order. REQUIRES draws_nics().
  int nic_of(int gpu) const { return nic_of_[gpu]; }
  // Whether some two GPUs have no way to one another.
  bool split() const { return split_; }
  // Joined by NVLinks, through any number of GPUs and NVSwitches.
  bool nvlink_domain(int a, int b) const { return domain_[a] == domain_[b]; }

 private:
  static std::size_t index(int row, int column, int columns) {
    return static_cast<std::size_t>(row) * columns + column;
  }
  // `serves`: of each NIC, the GPUs that have it already. REQUIRES: the ways to NICs are found.
  void choose_nic(int gpu, std::vector<int>& serves);
  void find_nvswitches(const HostGraph& host, const std::vector<bool>& failed);
  // REQUIRES: the ways between GPUs and to NICs are found.
  void find_ways_by_other_gpus();
  int gpus_ = 0;
  int nics_ = 0;
  bool draws_nics_ = false;
  bool split_ = false;
  std::vector<LocalPath> between_;
  std::vector<LocalPath> by_cpu_;
  std::vector<LocalPath> to_cpu_;
  std::vector<LocalPath> to_nic_;
  std::vector<LocalPath> from_nic_;
  std::vector<std::uint32_t> to_nvswitch_;
  std::vector<int> nic_of_;
  std::vector<int> domain_;
};

}  // namespace ddpsim::topology
