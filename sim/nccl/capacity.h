// What channels have left of a node's links and NICs: what each of them takes, and gives back when
// the search goes another way. Internal to pack.cc.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "sim/nccl/nth.h"
#include "sim/nccl/pack.h"

namespace ddpsim::nccl {

// Speeds in GB/s: `intra` of a channel inside the node, `inter` to its NICs. What takes returns
// whether there was room; if not, nothing is taken.
class Capacity {
 public:
  Capacity(const Node& node, const Machine& machine, const Wanted& wanted, double intra,
           double inter)
      : node_(node),
        machine_(machine),
        shape_(wanted.shape),
        network_(wanted.network),
        limits_(wanted.limits),
        intra_(intra),
        inter_(inter),
        left_(node.links),
        nic_left_(static_cast<std::size_t>(node.nics), node.nic_bandwidth),
        nic_out_left_(nic_left_) {}

  // From GPU to GPU.
  bool take_hop(int a, int b) { return take(hop(a, b)); }
  void give_hop(int a, int b) { give(hop(a, b)); }

  // From a NIC to the channel's first GPU. A NIC's ways in and out are apart only where rings
  // cross.
  bool take_in(int gpu, int nic) { return take_nic(nic_left_, nic, in(gpu, nic)); }
  void give_in(int gpu, int nic) { give_nic(nic_left_, nic, in(gpu, nic)); }

  // From the last GPU of a ring that crosses to the NIC that it leaves by.
  bool take_out(int gpu, int nic) { return take_nic(nic_out_left_, nic, out(gpu, nic)); }
  void give_out(int gpu, int nic) { give_nic(nic_out_left_, nic, out(gpu, nic)); }

  // Of a channel that has all of its GPUs: where it closes, or leaves by the NIC that it came by.
  bool take_end(const Channel& c) {
    if (network_ && ring() && node_.nic_path[node_.at(c.order.back(), c.nics[1])] > limits_.inter)
      return false;
    if (!network_ && ring() && path(c.order.back(), c.order.front()) > limits_.intra) return false;
    std::array<Way, 2> ways{};
    std::size_t count = ways_out(c, ways);
    std::size_t taken = 0;
    while (taken < count && take(ways[taken])) ++taken;
    if (taken == count) return true;
    while (taken > 0) give(ways[--taken]);
    return false;
  }
  void give_end(const Channel& c) {
    std::array<Way, 2> ways{};
    for (std::size_t count = ways_out(c, ways); count > 0;) give(ways[--count]);
  }

  double left_of_nic(int nic) const { return nth(nic_left_, nic); }
  // The least of the links between two GPUs.
  double left_between(int a, int b) const {
    double least = 1e30;
    for (int l : route(a, b)) least = std::min(least, nth(left_, l));
    return least;
  }

 private:
  // What a channel takes of links at once.
  struct Way {
    const std::vector<int>* links = nullptr;
    double speed = 0;
    bool bridged = false;  // a GPU's way through an Intel CPU's host bridge: PCIe links give a
                           // sixth less (INTEL_P2P_OVERHEAD)
    int back = -1;         // the link that carries requests the other way, an eighth of it
  };
  bool ring() const { return shape_ == Shape::Ring; }
  bool intel() const { return machine_.cpu == Cpu::Intel || machine_.cpu == Cpu::Mixed; }
  const std::vector<int>& route(int a, int b) const {
    return nth(node_.gpu_route, a * node_.gpus + b);
  }
  PathType path(int a, int b) const { return nth(node_.gpu_path, a * node_.gpus + b); }

  Way hop(int a, int b) const {
    return {&route(a, b), intra_, intel() && path(a, b) == PathType::Phb};
  }
  Way in(int gpu, int nic) const {
    std::size_t at = node_.at(gpu, nic);
    return {&node_.in_route[at], inter_, false,
            machine_.compute_capability < 80 ? node_.in_reverse[at] : -1};
  }
  Way out(int gpu, int nic, double part = 1) const {
    std::size_t at = node_.at(gpu, nic);
    return {&node_.out_route[at], inter_ * part, intel() && node_.nic_path[at] == PathType::Phb};
  }
  // A ring closes; towards the network a ring leaves by its last GPU, a tree by its first (a
  // balanced one half by its second), through the NIC that it came by.
  std::size_t ways_out(const Channel& c, std::array<Way, 2>& ways) const {
    if (network_ && shape_ == Shape::Balanced && node_.gpus > 1) {
      ways = {out(c.order[0], c.nics[1], 0.5), out(c.order[1], c.nics[1], 0.5)};
      return 2;
    }
    if (network_)
      ways[0] = out(ring() ? c.order.back() : c.order.front(), c.nics[1]);
    else if (ring() && node_.gpus > 1)
      ways[0] = hop(c.order.back(), c.order.front());
    else
      return 0;
    return 1;
  }

  double of_link(const Way& w, int l) const {
    return w.bridged && nth(node_.pcie, l) ? w.speed * 6 / 5 : w.speed;
  }
  bool take(const Way& w) {
    auto one = [&](int l, double speed) {
      double& left = nth(left_, l);
      if (left + kSlack < speed) return false;
      left -= speed;
      return true;
    };
    std::size_t taken = 0;
    while (taken < w.links->size() && one((*w.links)[taken], of_link(w, (*w.links)[taken])))
      ++taken;
    if (taken == w.links->size() && (w.back < 0 || one(w.back, w.speed / 8))) return true;
    for (std::size_t k = 0; k < taken; ++k) nth(left_, (*w.links)[k]) += of_link(w, (*w.links)[k]);
    return false;
  }
  void give(const Way& w) {
    for (int l : *w.links) nth(left_, l) += of_link(w, l);
    if (w.back >= 0) nth(left_, w.back) += w.speed / 8;
  }
  bool take_nic(std::vector<double>& left, int nic, const Way& way) {
    double& l = nth(left, nic);
    if (l + kSlack < inter_ || !take(way)) return false;
    l -= inter_;
    return true;
  }
  void give_nic(std::vector<double>& left, int nic, const Way& way) {
    nth(left, nic) += inter_;
    give(way);
  }

  const Node& node_;
  const Machine& machine_;
  Shape shape_;
  bool network_;
  Limits limits_;
  double intra_;
  double inter_;
  std::vector<double> left_;
  std::vector<double> nic_left_;
  std::vector<double> nic_out_left_;  // of rings that cross
};

}  // namespace ddpsim::nccl
