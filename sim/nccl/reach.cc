#include "sim/nccl/reach.h"

#include <algorithm>

namespace ddpsim::nccl {
namespace {

constexpr int kMostOwnNics = 64;  // MAXCHANNELS
constexpr GBps kLocal{5000};      // LOC_BW

// 0 2 1 3 for four: GPUs that are neighbours take NICs that are not.
int mirrored(int value, int count) {
  int out = 0;
  for (int bit = 1, other = count >> 1; bit < count; bit <<= 1, other >>= 1)
    if (value & bit) out |= other;
  return out;
}

// The fastest ways, and of these the nearest.
template <class Rate, class Type>
std::vector<int> nearest(int count, Rate rate, Type type) {
  GBps best;
  PathType least = PathType::Dis;
  std::vector<int> out;
  for (int i = 0; i < count; ++i) {
    if (rate(i) > best || (rate(i) == best && type(i) < least)) {
      best = rate(i);
      least = type(i);
      out.clear();
    }
    if (rate(i) == best && type(i) == least) out.push_back(i);
  }
  return out;
}

}  // namespace

Reach::Reach(const Node& node, bool network) : node_(node) {
  auto along = [&](const std::vector<int>& links, GBps at_most, int more) {
    Reached r{at_most, static_cast<int>(links.size()) + more};
    for (int l : links) r.rate = std::min(r.rate, nth(node_.links, l));
    return r;
  };
  std::size_t n = node.gpus;
  for (std::size_t i = 0; i < n * n; ++i) between_.push_back(along(node.gpu_route[i], kLocal, 0));
  find_total();
  if (!network || node.nics == 0) return;
  // A NIC is one link more.
  for (std::size_t i = 0; i < n * node.nics; ++i) {
    out_.push_back(along(node.out_route[i], node.nic_bandwidth, 1));
    in_.push_back(along(node.in_route[i], node.nic_bandwidth, 1));
  }
  for (int g = 0; g < node.gpus; ++g)
    near_gpu_.push_back(nearest(
        node.nics, [&](int nic) { return to_nic(g, nic).rate; },
        [&](int nic) { return node_.nic_path[node_.at(g, nic)]; }));
  for (int nic = 0; nic < node.nics; ++nic)
    near_nic_.push_back(nearest(
        node.gpus, [&](int g) { return from_nic(g, nic).rate; },
        [&](int g) { return node_.nic_back_path[node_.at(g, nic)]; }));
  for (int nic = 0; nic < node.nics; ++nic) {
    int own = -1;
    for (int channel = 0; channel < kMostOwnNics && own < 0; ++channel)
      for (int g : gpus_near(nic))
        if (own < 0 && own_nic(g, channel) == nic) own = g;
    own_gpu_.push_back(own);
  }
  tried_.resize(n + 1);
  for (int g = -1; g < node.gpus; ++g)
    for (PathType far : kAll<PathType>) tried_[g + 1][far] = order_of_nics(g, far);
}

int Reach::own_nic(int gpu, int channel) const {
  const std::vector<int>& nics = nth(near_gpu_, gpu);
  if (nics.empty()) return -1;
  auto count = static_cast<int>(nics.size());
  auto sharing = static_cast<int>(gpus_near(nics.front()).size());
  int each = sharing > 0 ? (count + sharing - 1) / sharing : 1;
  bool power = (count & (count - 1)) == 0;
  int at = (power ? mirrored(gpu, count) : gpu) + channel % each;
  return nth(nics, at % count);
}

std::vector<int> Reach::order_of_nics(int gpu, PathType far) const {
  std::vector<int> out;
  auto add = [&](int nic) {
    if (std::find(out.begin(), out.end(), nic) == out.end()) out.push_back(nic);
  };
  auto each_gpu = [&](auto what) {
    for (int g = 0; g < node_.gpus; ++g)
      if (gpu == -1 || gpu == g) what(g);
  };
  each_gpu([&](int g) {
    int first = own_nic(g, 0);
    if (first < 0) return;
    add(first);
    for (int channel = 1; channel < kMostOwnNics; ++channel) {
      int nic = own_nic(g, channel);
      if (nic == first) break;
      add(nic);
    }
  });
  for (PathType type : kAll<PathType>) {
    if (type > far) break;
    each_gpu([&](int g) {
      for (int nic = 0; nic < node_.nics; ++nic)
        if (node_.nic_path[node_.at(g, nic)] == type) add(nic);
    });
  }
  return out;
}

GBps Reach::fastest(bool network) const {
  GBps out;
  for (int a = 0; a < node_.gpus; ++a) {
    if (network)
      for (int nic = 0; nic < node_.nics; ++nic) out = std::max(out, to_nic(a, nic).rate);
    else
      for (int b = 0; b < node_.gpus; ++b)
        if (a != b) out = std::max(out, between(a, b).rate);
  }
  return out;
}

void Reach::find_total() {
  for (int a = 0; a < node_.gpus; ++a) {
    std::vector<int> first;
    auto begin_of = [&](const std::vector<int>& route) {
      if (!route.empty()) first.push_back(route.front());
    };
    for (int b = 0; b < node_.gpus; ++b) begin_of(nth(node_.gpu_route, a * node_.gpus + b));
    for (int nic = 0; nic < node_.nics; ++nic) begin_of(node_.out_route[node_.at(a, nic)]);
    std::sort(first.begin(), first.end());
    first.erase(std::unique(first.begin(), first.end()), first.end());
    GBps nvlinks;
    GBps pcie;
    for (int l : first)
      if (nth(node_.pcie, l))
        pcie = nth(node_.links, l);
      else
        nvlinks += nth(node_.links, l);
    total_ = std::max({total_, nvlinks, pcie});
  }
  // Where nothing is drawn between GPUs and NICs, what the NICs give.
  if (total_ <= GBps{}) total_ = node_.gpus > 1 || node_.nics == 0 ? kLocal : node_.nic_bandwidth;
}

}  // namespace ddpsim::nccl
