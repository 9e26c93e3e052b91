// What channels have left of a node's links and NICs: what each of them takes, and gives back when
// the search goes another way. Internal to the search. Source: NCCL src/graph/search.cc
// (followPath, ncclTopoFollowPath).
#pragma once

#include <vector>

#include "sim/nccl/nth.h"
#include "sim/nccl/search.h"

namespace ddpsim::nccl {

inline constexpr GBps kSlack{1e-4};  // sums of speeds against a capacity

// Functions that take return whether there was room; if not, they take nothing.
class Capacity {
 public:
  Capacity(const Node& node, const Machine& machine)
      : node_(node),
        machine_(machine),
        left_(node.links),
        nic_in_(node.nics, node.nic_bandwidth),
        nic_out_(nic_in_) {}

  bool take_hop(int a, int b, GBps speed) { return take(hop(a, b, speed)); }
  void give_hop(int a, int b, GBps speed) { give(hop(a, b, speed)); }
  bool take_in(int gpu, int nic, GBps speed) { return take(in(gpu, nic, speed)); }
  void give_in(int gpu, int nic, GBps speed) { give(in(gpu, nic, speed)); }
  bool take_out(int gpu, int nic, GBps speed) { return take(out(gpu, nic, speed)); }
  void give_out(int gpu, int nic, GBps speed) { give(out(gpu, nic, speed)); }

 private:
  // What a channel takes of links at once.
  struct Way {
    const std::vector<int>* links = nullptr;
    GBps speed;
    bool bridged = false;  // a GPU's way through an Intel CPU's host bridge: PCIe links give a
                           // sixth less (INTEL_P2P_OVERHEAD)
    int back = -1;         // the link that carries requests the other way, an eighth of it
    GBps* nic = nullptr;
  };
  bool intel() const { return machine_.cpu == Cpu::Intel || machine_.cpu == Cpu::Mixed; }

  Way hop(int a, int b, GBps speed) const {
    int at = a * node_.gpus + b;
    return {&nth(node_.gpu_route, at), speed, intel() && nth(node_.gpu_path, at) == PathType::Phb};
  }
  Way in(int gpu, int nic, GBps speed) {
    std::size_t at = node_.at(gpu, nic);
    return {&node_.in_route[at], speed, false,
            machine_.compute_capability < 80 ? node_.in_reverse[at] : -1, &nth(nic_in_, nic)};
  }
  Way out(int gpu, int nic, GBps speed) {
    std::size_t at = node_.at(gpu, nic);
    return {&node_.out_route[at], speed, intel() && node_.nic_path[at] == PathType::Phb, -1,
            &nth(nic_out_, nic)};
  }

  GBps of_link(const Way& w, int l) const {
    return w.bridged && nth(node_.pcie, l) ? w.speed * 6 / 5 : w.speed;
  }
  bool take(const Way& w) {
    auto one = [](GBps& left, GBps speed) {
      if (left + kSlack < speed) return false;
      left -= speed;
      return true;
    };
    if (w.nic && !one(*w.nic, w.speed)) return false;
    std::size_t taken = 0;
    while (taken < w.links->size() &&
           one(nth(left_, (*w.links)[taken]), of_link(w, (*w.links)[taken])))
      ++taken;
    if (taken == w.links->size() && (w.back < 0 || one(nth(left_, w.back), w.speed / 8)))
      return true;
    for (std::size_t k = 0; k < taken; ++k) nth(left_, (*w.links)[k]) += of_link(w, (*w.links)[k]);
    if (w.nic) *w.nic += w.speed;
    return false;
  }
  void give(const Way& w) {
    for (int l : *w.links) nth(left_, l) += of_link(w, l);
    if (w.back >= 0) nth(left_, w.back) += w.speed / 8;
    if (w.nic) *w.nic += w.speed;
  }

  const Node& node_;
  const Machine& machine_;
  std::vector<GBps> left_;
  std::vector<GBps> nic_in_;
  std::vector<GBps> nic_out_;
};

}  // namespace ddpsim::nccl
