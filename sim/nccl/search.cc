// Speeds are tried from the fastest down; at each, as many channels as the node carries, each a path through all GPUs whose links still have that much to give.
// The best is the largest channels * speed. Fast channels are then split in two at half speed.
#include "sim/nccl/search.h"

#include <algorithm>
#include <span>
#include <tuple>

namespace ddpsim::nccl {
namespace {

constexpr double kIntraOld[]{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kInterOld[]{48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, .24, .12};
constexpr double kIntra90[]{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kInter90[]{48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12};
constexpr double kIntra100[]{90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr double kInter100[]{96, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12};
constexpr std::size_t kMostChannels = 32;
constexpr double kSlack = 1e-6;  // sums of speeds against a capacity

std::span<const double> speeds(int cc, bool one_node) {
  if (cc >= 100) return one_node ? std::span<const double>(kIntra100) : kInter100;
  if (cc >= 90) return one_node ? std::span<const double>(kIntra90) : kInter90;
  return one_node ? std::span<const double>(kIntraOld) : kInterOld;
}

struct Channel {
  std::vector<int> order;
  std::array<int, 2> nics{-1, -1};
};

// As many channels as a node carries at one speed: a search through all of them with a limit, the best found kept.
class Packer {
 public:
  Packer(const Node& node, bool ring, bool network) : node_(node), ring_(ring), network_(network) {}

  // `worth`: a result of this many channels or fewer is of no use; then nothing is searched and the result may be empty.
  std::vector<Channel> pack(double intra, double inter, double worth = 0) {
    intra_ = intra;
    inter_ = inter;
    left_ = node_.links;
    nic_left_.assign(static_cast<std::size_t>(node_.nics), node_.nic_bandwidth);
    best_.clear();
    channels_.clear();
    tries_ = 0;
    most_ = bound();
    if (static_cast<double>(most_) > worth) add_channel();
    return best_;
  }

 private:
  // No more than what leaves the GPUs, or the NICs.
  std::size_t bound() const {
    double total = 0;
    int n = node_.gpus;
    if (network_) {
      total = static_cast<int>((node_.nic_bandwidth + kSlack) / inter_) * node_.nics;
    } else {
      // A GPU gives at most the sum of its own first links.
      total = kMostChannels;
      for (int a = 0; a < n; ++a) {
        std::vector<int> first;
        for (int b = 0; b < n; ++b)
          if (b != a) first.push_back(node_.gpu_route[static_cast<std::size_t>(a * n + b)].front());
        std::sort(first.begin(), first.end());
        first.erase(std::unique(first.begin(), first.end()), first.end());
        double out = 0;
        for (int l : first) {
          auto whole = static_cast<int>((node_.links[static_cast<std::size_t>(l)] + kSlack) / intra_);
          out += whole;
        }
        if (ring_ || a == 0) total = std::min(total, out);
      }
    }
    return std::min(kMostChannels, static_cast<std::size_t>(total + kSlack));
  }

  bool take(const std::vector<int>& route, double speed) {
    for (std::size_t i = 0; i < route.size(); ++i) {
      double& left = left_[static_cast<std::size_t>(route[i])];
      if (left + kSlack < speed) {
        for (std::size_t k = 0; k < i; ++k) left_[static_cast<std::size_t>(route[k])] += speed;
        return false;
      }
      left -= speed;
    }
    return true;
  }
  void give(const std::vector<int>& route, double speed) {
    for (int l : route) left_[static_cast<std::size_t>(l)] += speed;
  }
  double left_on(const std::vector<int>& route) const {
    double least = 1e30;
    for (int l : route) least = std::min(least, left_[static_cast<std::size_t>(l)]);
    return least;
  }
  const std::vector<int>& between(int a, int b) const { return node_.gpu_route[static_cast<std::size_t>(a * node_.gpus + b)]; }
  PathType path(int a, int b) const { return node_.gpu_path[static_cast<std::size_t>(a * node_.gpus + b)]; }

  bool enough() const { return best_.size() >= most_ || tries_ > kMostTries; }

  // One more channel, then the next; keeps the longest list seen.
  void add_channel() {
    if (channels_.size() > best_.size()) best_ = channels_;
    if (enough() || channels_.size() == kMostChannels) return;
    int n = node_.gpus;
    std::size_t k = channels_.size();
    visited_.assign(static_cast<std::size_t>(n), 0);
    Channel c;
    if (!network_) {
      // Rings go through every GPU: where one begins does not matter.
      int starts = ring_ ? 1 : n;
      for (int i = 0; i < starts && !enough(); ++i) {
        int first = static_cast<int>((k + static_cast<std::size_t>(i)) % static_cast<std::size_t>(n));
        start(c, first);
      }
      return;
    }
    using Key = std::tuple<double, PathType, int, std::size_t, int>;
    std::vector<Key> starts;
    for (int nic = 0; nic < node_.nics; ++nic)
      for (int g = 0; g < n; ++g)
        starts.emplace_back(-nic_left_[static_cast<std::size_t>(nic)], node_.nic_path[static_cast<std::size_t>(g * node_.nics + nic)], nic,
                            (static_cast<std::size_t>(g) + k) % static_cast<std::size_t>(n), g);
    std::sort(starts.begin(), starts.end());
    for (const Key& key : starts) {
      if (enough()) return;
      int nic = std::get<2>(key);
      int gpu = std::get<4>(key);
      double& left = nic_left_[static_cast<std::size_t>(nic)];
      const auto& in = node_.in_route[static_cast<std::size_t>(gpu * node_.nics + nic)];
      if (left + kSlack < inter_ || !take(in, inter_)) continue;
      left -= inter_;
      c.nics = {nic, nic};
      start(c, gpu);
      left += inter_;
      give(in, inter_);
    }
  }

  void start(Channel& c, int first) {
    c.order.assign(1, first);
    visited_[static_cast<std::size_t>(first)] = 1;
    extend(c);
    visited_[static_cast<std::size_t>(first)] = 0;
  }

  void extend(Channel& c) {
    int n = node_.gpus;
    if (++tries_ > kMostTries) return;
    int last = c.order.back();
    if (static_cast<int>(c.order.size()) == n) {
      finish(c);
      return;
    }
    // A ring has to come back to its NIC: GPUs far from it first, the last one near it (ncclTopoSearchNextGpuSort). Then near GPUs first, then where most is left, then
    // in order of number, going round from the last.
    bool comes_back = network_ && ring_;
    bool ends = static_cast<int>(c.order.size()) + 1 == n;
    std::vector<std::tuple<int, PathType, double, int, int>> next;
    for (int d = 1; d < n; ++d) {
      int g = (last + d) % n;
      if (visited_[static_cast<std::size_t>(g)]) continue;
      int way = comes_back ? static_cast<int>(node_.nic_path[static_cast<std::size_t>(g * node_.nics + c.nics[1])]) : 0;
      next.emplace_back(ends ? way : -way, path(last, g), -left_on(between(last, g)), d, g);
    }
    std::sort(next.begin(), next.end());
    for (const auto& key : next) {
      int g = std::get<4>(key);
      const auto& route = between(last, g);
      if (!take(route, intra_)) continue;
      visited_[static_cast<std::size_t>(g)] = 1;
      c.order.push_back(g);
      extend(c);
      c.order.pop_back();
      visited_[static_cast<std::size_t>(g)] = 0;
      give(route, intra_);
      if (enough()) return;
    }
  }

  // A ring closes; towards the network a ring leaves by its last GPU, a tree by its first, through the NIC that it came by.
  void finish(Channel& c) {
    static const std::vector<int> kNothing;
    const std::vector<int>* route = &kNothing;
    double speed = intra_;
    if (network_) {
      int gpu = ring_ ? c.order.back() : c.order.front();
      route = &node_.out_route[static_cast<std::size_t>(gpu * node_.nics + c.nics[1])];
      speed = inter_;
    } else if (ring_ && node_.gpus > 1) {
      route = &between(c.order.back(), c.order.front());
    }
    if (!take(*route, speed)) return;
    channels_.push_back(c);
    std::vector<char> visited = visited_;
    add_channel();
    visited_ = std::move(visited);
    channels_.pop_back();
    give(*route, speed);
  }

  static constexpr int kMostTries = 20'000;
  const Node& node_;
  bool ring_;
  bool network_;
  double intra_ = 0;
  double inter_ = 0;
  std::vector<double> left_;
  std::vector<double> nic_left_;
  std::vector<char> visited_;
  std::vector<Channel> channels_;
  std::vector<Channel> best_;
  std::size_t most_ = 0;
  int tries_ = 0;
};

PathType farthest(const std::vector<PathType>& paths, int gpus) {
  PathType worst = PathType::Loc;
  for (int a = 0; a < gpus; ++a)
    for (int b = 0; b < gpus; ++b)
      if (a != b) worst = std::max(worst, paths[static_cast<std::size_t>(a * gpus + b)]);
  return worst;
}

void fill(ChannelGraph& g, const Node& node, const std::vector<Channel>& channels, double intra, double inter) {
  g.channels = static_cast<int>(channels.size());
  g.bw_intra = intra * 1e9;
  g.bw_inter = inter * 1e9;
  g.type_intra = node.gpus > 1 ? PathType::Loc : PathType::Nvl;
  g.type_inter = PathType::Pix;
  for (const Channel& c : channels) {
    g.order.push_back(c.order);
    for (std::size_t i = 0; i + 1 < c.order.size(); ++i)
      g.type_intra = std::max(g.type_intra, node.gpu_path[static_cast<std::size_t>(c.order[i] * node.gpus + c.order[i + 1])]);
    if (c.nics[0] < 0) continue;
    g.nics.push_back(c.nics);
    g.type_inter = std::max(g.type_inter, node.nic_path[static_cast<std::size_t>(c.order.front() * node.nics + c.nics[0])]);
  }
}

// src/graph/search.cc, end of ncclTopoCompute: fast channels are split.
void duplicate(ChannelGraph& g, int cc) {
  bool wide = g.bw_intra >= 25e9 && !(cc > 80 && g.bw_intra < 50e9 && g.channels > 4);
  if (!wide || g.channels == 0) return;
  auto before = static_cast<std::size_t>(g.channels);
  g.channels *= 2;
  g.bw_intra /= 2;
  g.bw_inter /= 2;
  for (std::size_t i = 0; i < before; ++i) {
    g.order.push_back(g.order[i]);
    if (i < g.nics.size()) g.nics.push_back(g.nics[i]);
  }
}

ChannelGraph best(const Node& node, int nodes, int cc, bool ring) {
  ChannelGraph g;
  Packer packer(node, ring, nodes > 1);
  double most = 0;
  auto tried = speeds(cc, nodes == 1);
  std::vector<Channel> found;
  double at = 0;
  for (double speed : tried) {
    // Half as fast, and less: what is found is kept.
    if (at > 0 && speed <= 0.49 * at) break;
    std::vector<Channel> channels = packer.pack(speed, speed, most / speed + kSlack);
    double total = speed * static_cast<double>(channels.size());
    if (total > most + kSlack) {
      most = total;
      found = std::move(channels);
      at = speed;
    }
  }
  if (found.empty()) return g;
  double intra = at;
  // Trees between nodes: the chain inside may be up to twice as fast as the network.
  if (!ring && nodes > 1) {
    auto it = std::find(tried.begin(), tried.end(), at);
    while (it != tried.begin() && intra < 2 * at) {
      --it;
      std::vector<Channel> channels = packer.pack(*it, at);
      if (channels.size() < found.size()) break;
      channels.resize(found.size());
      found = std::move(channels);
      intra = *it;
    }
  }
  fill(g, node, found, intra, at);
  g.pattern = ring ? 4 : node.gpus == 1 ? 3 : 1;  // of one GPU NCCL makes a plain tree (its cost model takes 15 % off)
  duplicate(g, cc);
  return g;
}

}  // namespace

double link_bandwidth(Wire wire, double raw, int cc) {
  switch (wire) {
    case Wire::Nvlink: {  // raw per link: 25 GB/s (SM60 20, SM100 50); NCCL's: SM60 18, SM70 and SM80 20, SM86 12 of 14.0625, SM90 20.6, SM100 40.1
      if (cc >= 100) return raw * 40.1 / 50;
      if (cc >= 90) return raw * 20.6 / 25;
      if (cc == 86) return raw * 12 / 14.0625;
      return cc >= 70 ? raw * 20 / 25 : raw * 18 / 20;
    }
    case Wire::Pcie: return raw * 12 / 15.75;  // Gen3 x16: 12
    case Wire::C2c:
    case Wire::Upi:
    case Wire::Nic: return raw;
  }
  return raw;
}

Graphs search(const Node& node, int nodes, int cc, Duration latency_inter, bool collnet) {
  Graphs out;
  ChannelGraph& ring = out.by_algorithm[0];
  ChannelGraph& tree = out.by_algorithm[1];
  if (node.gpus == 1 && nodes > 1) {
    // One GPU a node: only the NIC matters.
    ring = best(node, nodes, cc, true);
    tree = best(node, nodes, cc, false);
  } else if (node.gpus > 1) {
    ring = best(node, nodes, cc, true);
    if (nodes == 1) {
      // The same paths, open; two GPUs need each direction once.
      tree = ring;
      tree.pattern = 1;
      if (node.gpus == 2) tree.bw_intra = tree.bw_inter = 2 * ring.bw_intra;
    } else {
      tree = best(node, nodes, cc, false);
    }
  }
  if (node.nvswitch && cc >= 90 && node.gpus > 1) {
    ChannelGraph& nvls = out.by_algorithm[3];
    // Each GPU is the head of a channel; a link carries what its GPU gives to every head, and as a head.
    // Beyond the list's slowest (72 GPUs in one domain): what the links give.
    double least = node.nvlink_per_gpu / (node.gpus + 1);
    std::vector<double> tried(speeds(cc, nodes == 1).begin(), speeds(cc, nodes == 1).end());
    if (least < tried.back()) tried.push_back(least);
    for (double speed : tried) {
      if (speed * (node.gpus + 1) > node.nvlink_per_gpu + kSlack) continue;
      // Then the speed between nodes is raised, a step of the list at a time, while it is below twice the one inside; on one node nothing stands against it.
      double inter = speed;
      for (auto faster = speeds(cc, nodes == 1).rbegin(); faster != speeds(cc, nodes == 1).rend(); ++faster)
        if (*faster > inter && inter < 2 * speed) inter = *faster;
      if (nodes > 1) inter = std::min(inter, node.nic_bandwidth * node.nics / node.gpus);
      nvls.channels = node.gpus;
      nvls.bw_intra = speed * 1e9;
      nvls.bw_inter = inter * 1e9;
      nvls.type_intra = PathType::Nvl;
      nvls.type_inter = ring.type_inter;
      nvls.pattern = 5;
      break;
    }
  }
  if (collnet && nodes > 1 && ring.channels > 0) {
    out.by_algorithm[2] = tree;
    out.by_algorithm[2].pattern = 3;
    out.by_algorithm[4] = ring;
    out.by_algorithm[4].pattern = 6;
    out.by_algorithm[4].type_intra = farthest(node.gpu_path, node.gpus);
  }
  for (ChannelGraph& g : out.by_algorithm) g.latency_inter = latency_inter;
  return out;
}

}  // namespace ddpsim::nccl
