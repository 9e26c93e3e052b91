// Speeds are tried from the fastest down; at each, as many channels as the node carries, each a path through all GPUs whose links still have that much to give.
// The best is the largest channels * speed. Fast channels are then split in two at half speed. Trees between nodes then take as many channels as the rings have:
// the first that are found, going through speeds, path types to NICs, path types between GPUs, and (from SM90 on) balanced trees before plain ones.
#include "sim/nccl/search.h"

#include <algorithm>
#include <set>
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

enum class Shape : std::uint8_t {
  Ring,
  Balanced,  // a tree whose first child enters at its chain's second GPU: both take half of what leaves the node
  Plain,     // a tree that enters and leaves at its chain's first GPU
};

// What a channel may take.
struct Limits {
  PathType intra = PathType::Dis;
  PathType inter = PathType::Dis;
  std::size_t channels = kMostChannels;
  bool same = false;  // every channel goes through the GPUs in the first one's order
  int cross = 0;      // a ring's way out may be another NIC than its way in; 2: of each two channels one goes in where the other goes out
};

// As many channels as a node carries at one speed: a search through all of them with a limit, the best found kept.
class Packer {
 public:
  Packer(const Node& node, const Machine& machine, Shape shape, bool network, Limits limits)
      : node_(node), machine_(machine), shape_(shape), ring_(shape == Shape::Ring), network_(network), limits_(limits) {}

  // `worth`: a result of this many channels or fewer is of no use; then nothing is searched and the result may be empty.
  std::vector<Channel> pack(double intra, double inter, double worth = 0) {
    intra_ = intra;
    inter_ = inter;
    left_ = node_.links;
    nic_left_.assign(static_cast<std::size_t>(node_.nics), node_.nic_bandwidth);
    nic_out_left_ = nic_left_;
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
    return std::min(limits_.channels, static_cast<std::size_t>(total + kSlack));
  }

  // What a channel takes of links at once.
  struct Way {
    const std::vector<int>* links = nullptr;
    double speed = 0;
    bool bridged = false;  // a GPU's way through an Intel CPU's host bridge: PCIe links give a sixth less (INTEL_P2P_OVERHEAD)
    int back = -1;         // the link that carries requests the other way, an eighth of it
  };
  double of_link(const Way& w, int l) const { return w.bridged && node_.pcie[static_cast<std::size_t>(l)] ? w.speed * 6 / 5 : w.speed; }
  bool take(const Way& w) {
    auto one = [&](int l, double speed) {
      double& left = left_[static_cast<std::size_t>(l)];
      if (left + kSlack < speed) return false;
      left -= speed;
      return true;
    };
    std::size_t taken = 0;
    while (taken < w.links->size() && one((*w.links)[taken], of_link(w, (*w.links)[taken]))) ++taken;
    if (taken == w.links->size() && (w.back < 0 || one(w.back, w.speed / 8))) return true;
    for (std::size_t k = 0; k < taken; ++k) left_[static_cast<std::size_t>((*w.links)[k])] += of_link(w, (*w.links)[k]);
    return false;
  }
  void give(const Way& w) {
    for (int l : *w.links) left_[static_cast<std::size_t>(l)] += of_link(w, l);
    if (w.back >= 0) left_[static_cast<std::size_t>(w.back)] += w.speed / 8;
  }
  bool intel() const { return machine_.cpu == Cpu::Intel || machine_.cpu == Cpu::Mixed; }
  Way hop(int a, int b) const { return {&between(a, b), intra_, intel() && path(a, b) == PathType::Phb}; }
  Way in(int gpu, int nic) const {
    std::size_t at = node_.at(gpu, nic);
    return {&node_.in_route[at], inter_, false, machine_.compute_capability < 80 ? node_.in_reverse[at] : -1};
  }
  Way out(int gpu, int nic, double part = 1) const {
    std::size_t at = node_.at(gpu, nic);
    return {&node_.out_route[at], inter_ * part, intel() && node_.nic_path[at] == PathType::Phb};
  }
  double left_on(const std::vector<int>& route) const {
    double least = 1e30;
    for (int l : route) least = std::min(least, left_[static_cast<std::size_t>(l)]);
    return least;
  }
  const std::vector<int>& between(int a, int b) const { return node_.gpu_route[static_cast<std::size_t>(a * node_.gpus + b)]; }
  PathType path(int a, int b) const { return node_.gpu_path[static_cast<std::size_t>(a * node_.gpus + b)]; }

  // A tree goes out and in by its NIC: both ways have to be near enough.
  bool near(int gpu, int nic) const {
    std::size_t at = node_.at(gpu, nic);
    return node_.nic_back_path[at] <= limits_.inter && (ring_ || node_.nic_path[at] <= limits_.inter);
  }
  bool enough() const { return best_.size() >= most_ || tries_ > most_tries(); }
  int most_tries() const { return limits_.same ? kMostTriesSame : kMostTries; }

  // One more channel, then the next; keeps the longest list seen.
  void add_channel() {
    if (channels_.size() > best_.size()) best_ = channels_;
    if (enough() || channels_.size() == limits_.channels) return;
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
        starts.emplace_back(-nic_left_[static_cast<std::size_t>(nic)], node_.nic_back_path[node_.at(g, nic)], nic,
                            (static_cast<std::size_t>(g + n) - k % static_cast<std::size_t>(n)) % static_cast<std::size_t>(n), g);
    std::sort(starts.begin(), starts.end());
    for (const Key& key : starts) {
      if (enough()) return;
      int nic = std::get<2>(key);
      int gpu = std::get<4>(key);
      if (!near(gpu, nic) || (limits_.same && k > 0 && gpu != channels_.front().order.front())) continue;
      if (limits_.cross == 2 && k % 2 == 1 && nic != channels_.back().nics[1]) continue;
      double& left = nic_left_[static_cast<std::size_t>(nic)];
      if (left + kSlack < inter_ || !take(in(gpu, nic))) continue;
      left -= inter_;
      c.nics = {nic, nic};
      start(c, gpu);
      left += inter_;
      give(in(gpu, nic));
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
    if (++tries_ > most_tries()) return;
    int last = c.order.back();
    if (static_cast<int>(c.order.size()) == n) {
      finish(c);
      return;
    }
    // A ring has to come back to its NIC: GPUs far from it first, the last one near it (ncclTopoSearchNextGpuSort). Then near GPUs first, then where most is left, then
    // in order of number, going round from the last.
    // A balanced tree's second GPU is to be near the NIC too. On an NVSwitch a channel goes to a neighbour only, a plain tree to the next one.
    bool second = shape_ == Shape::Balanced && c.order.size() == 1;
    bool comes_back = network_ && ((ring_ && limits_.cross == 0) || second);
    bool ends = second || static_cast<int>(c.order.size()) + 1 == n;
    std::vector<std::tuple<int, PathType, double, int, int>> next;
    for (int d = 1; d < n; d += node_.nvswitch && shape_ == Shape::Plain ? n : node_.nvswitch ? std::max(1, n - 2) : 1) {
      int g = (last + d) % n;
      if (visited_[static_cast<std::size_t>(g)] || path(last, g) > limits_.intra) continue;
      if (second && !near(g, c.nics[1])) continue;
      if (limits_.same && !channels_.empty() && g != channels_.front().order[c.order.size()]) continue;
      int way = comes_back ? static_cast<int>(node_.nic_path[node_.at(g, c.nics[1])]) : 0;
      next.emplace_back(ends ? way : -way, path(last, g), -left_on(between(last, g)), d, g);
    }
    std::sort(next.begin(), next.end());
    for (const auto& key : next) {
      int g = std::get<4>(key);
      if (!take(hop(last, g))) continue;
      visited_[static_cast<std::size_t>(g)] = 1;
      c.order.push_back(g);
      extend(c);
      c.order.pop_back();
      visited_[static_cast<std::size_t>(g)] = 0;
      give(hop(last, g));
      if (enough()) return;
    }
  }

  // With this channel, one more.
  void keep(const Channel& c) {
    channels_.push_back(c);
    std::vector<char> visited = visited_;
    add_channel();
    visited_ = std::move(visited);
    channels_.pop_back();
  }

  // A ring closes; towards the network a ring leaves by its last GPU, a tree by its first (a balanced one half by its second), through the NIC that it came by.
  void finish(Channel& c) {
    if (limits_.cross != 0) return cross(c);
    std::array<Way, 2> ways{};
    std::size_t count = 0;
    if (network_ && ring_ && node_.nic_path[node_.at(c.order.back(), c.nics[1])] > limits_.inter) return;
    if (!network_ && ring_ && path(c.order.back(), c.order.front()) > limits_.intra) return;
    if (network_ && shape_ == Shape::Balanced && node_.gpus > 1) {
      for (std::size_t i : {0, 1}) ways[count++] = out(c.order[i], c.nics[1], 0.5);
    } else if (network_) {
      ways[count++] = out(ring_ ? c.order.back() : c.order.front(), c.nics[1]);
    } else if (ring_ && node_.gpus > 1) {
      ways[count++] = hop(c.order.back(), c.order.front());
    }
    std::size_t taken = 0;
    while (taken < count && take(ways[taken])) ++taken;
    if (taken == count) keep(c);
    while (taken > 0) give(ways[--taken]);
  }

  // The ring leaves by a near NIC that has room.
  void cross(Channel& c) {
    std::vector<std::pair<PathType, int>> ways;
    for (int nic = 0; nic < node_.nics; ++nic)
      if (PathType path = node_.nic_path[node_.at(c.order.back(), nic)]; path <= limits_.inter) ways.emplace_back(path, nic);
    std::sort(ways.begin(), ways.end());
    int came_by = c.nics[1];
    for (auto [type, nic] : ways) {
      if (enough()) break;
      if (limits_.cross == 2 && channels_.size() % 2 == 1 && nic != channels_.back().nics[0]) continue;
      double& left = nic_out_left_[static_cast<std::size_t>(nic)];
      if (left + kSlack < inter_ || !take(out(c.order.back(), nic))) continue;
      left -= inter_;
      c.nics[1] = nic;
      keep(c);
      left += inter_;
      give(out(c.order.back(), nic));
    }
    c.nics[1] = came_by;
  }

  static constexpr int kMostTries = 20'000;
  static constexpr int kMostTriesSame = 256;
  const Node& node_;
  const Machine& machine_;
  Shape shape_;
  bool ring_;
  bool network_;
  Limits limits_;
  double intra_ = 0;
  double inter_ = 0;
  std::vector<double> left_;
  std::vector<double> nic_left_;
  std::vector<double> nic_out_left_;  // of rings that cross
  std::vector<char> visited_;
  std::vector<Channel> channels_;
  std::vector<Channel> best_;
  std::size_t most_ = 0;
  int tries_ = 0;
};

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
    g.type_inter = std::max(g.type_inter, node.nic_back_path[node.at(c.order.front(), c.nics[0])]);
    // Where no ways to NICs are drawn, what lies between a NIC and another GPU is not known.
    if (c.order.size() < 2 || node.out_route.front().empty()) continue;
    if (g.pattern == kRingPattern) g.type_inter = std::max(g.type_inter, node.nic_path[node.at(c.order.back(), c.nics[1])]);
    if (g.pattern == kBalancedTree) g.type_inter = std::max({g.type_inter, node.nic_path[node.at(c.order[1], c.nics[1])], node.nic_back_path[node.at(c.order[1], c.nics[1])]});
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

// Path types between two GPUs, and between GPUs and NICs.
std::set<PathType> types_inside(const Node& node) {
  std::set<PathType> out;
  for (int a = 0; a < node.gpus; ++a)
    for (int b = 0; b < node.gpus; ++b)
      if (a != b) out.insert(node.gpu_path[static_cast<std::size_t>(a * node.gpus + b)]);
  if (out.empty()) out.insert(PathType::Loc);
  return out;
}
std::set<PathType> types_to_nics(const Node& node) {
  std::set<PathType> out(node.nic_path.begin(), node.nic_path.end());
  out.insert(node.nic_back_path.begin(), node.nic_back_path.end());
  return out;
}

// Two groups of GPUs, joined by NVLink in each and not between them (ncclTopoSplitNvLink): from 2.26 on their rings are at least two.
bool two_domains(const Node& node) {
  auto joined = [&](int a, int b) { return node.gpu_path[static_cast<std::size_t>(a * node.gpus + b)] <= PathType::Nvb; };
  int first = 0;
  for (int g = 0; g < node.gpus; ++g) first += joined(0, g) ? 1 : 0;
  if (first < 2 || node.gpus - first < 2) return false;
  int other = 0;
  while (joined(0, other)) ++other;
  for (int g = 0; g < node.gpus; ++g)
    if (joined(0, g) == joined(other, g)) return false;
  return true;
}

ChannelGraph rings(const Node& node, int nodes, const Machine& m) {
  ChannelGraph g;
  g.pattern = kRingPattern;
  bool network = nodes > 1;
  int minor = m.version.minor;
  std::vector<int> crossings{0};
  if (network && node.nics > 1 && m.cross_nic == 1) crossings = {1};
  if (network && node.nics > 1 && m.cross_nic == 2) crossings = {0, minor < 23 ? 1 : 2};  // before 2.23 any ring leaves by any NIC
  std::set<PathType> inter = network ? types_to_nics(node) : std::set<PathType>{PathType::Dis};
  std::set<PathType> intra = types_inside(node);
  std::size_t least = minor >= 26 && two_domains(node) ? 2 : 1;
  double most = 0;
  std::vector<Channel> found;
  double at = 0;
  // Within which it was found: nearer ways first, and where something is found none between GPUs is farther, none to NICs farther than another GPU's.
  PathType far_inter = PathType::Loc;
  PathType far_intra = PathType::Loc;
  for (double speed : speeds(m.compute_capability, nodes == 1)) {
    // Half as fast, and less: what is found is kept.
    if (at > 0 && speed <= 0.49 * at) break;
    for (int cross : crossings) {
      // In 2.19 a ring that crosses had to be 15 % faster than one that does not.
      double needed = most * (cross != 0 && g.crossnic == 0 && minor < 20 ? 1.15 : 1);
      for (PathType to_nic : inter)
        for (PathType between : intra) {
          bool too_far = !found.empty() && (to_nic > std::max(far_inter, PathType::Pxn) || between > far_intra);
          if (too_far || (between > to_nic && between != *intra.begin())) continue;
          std::vector<Channel> channels = Packer(node, m, Shape::Ring, network, {between, to_nic, kMostChannels, false, cross}).pack(speed, speed, needed / speed + kSlack);
          double total = speed * static_cast<double>(channels.size());
          if (channels.size() < least || total <= needed + kSlack) continue;
          most = needed = total;
          found = std::move(channels);
          at = speed;
          far_inter = to_nic;
          far_intra = between;
          g.crossnic = cross;
        }
    }
  }
  if (found.empty()) return g;
  fill(g, node, found, at, at);
  duplicate(g, m.compute_capability);
  return g;
}

// NVLS: a channel for each GPU that is a head: on one node all, at most 32 from 2.25 on; of several nodes the GPUs nearest to the NICs. A GPU's link carries what it gives to
// every head, and a head's once more.
ChannelGraph nvls(const Node& node, int nodes, const Machine& m) {
  ChannelGraph g;
  auto tried = speeds(m.compute_capability, nodes == 1);
  auto arity = static_cast<std::size_t>(m.version.minor >= 25 ? std::min(32, node.gpus) : node.gpus);
  std::vector<int> heads;
  for (int nic = 0; nic < node.nics && nodes > 1; ++nic) {
    PathType nearest = PathType::Dis;
    for (int gpu = 0; gpu < node.gpus; ++gpu) nearest = std::min(nearest, node.nic_back_path[node.at(gpu, nic)]);
    // Of the nearest GPUs the first that no NIC has.
    for (int gpu = 0; gpu < node.gpus; ++gpu) {
      if (node.nic_back_path[node.at(gpu, nic)] != nearest || std::find(heads.begin(), heads.end(), gpu) != heads.end()) continue;
      heads.push_back(gpu);
      break;
    }
  }
  if (nodes == 1)
    for (int gpu = 0; gpu < node.gpus; ++gpu) heads.push_back(gpu);
  if (heads.size() > arity) heads.resize(arity);
  std::size_t most = 0;
  double at = 0;
  for (double speed : tried) {
    if (at > 0 && speed <= 0.49 * at) break;
    if (nodes > 1 && speed > node.nic_bandwidth + kSlack) continue;
    auto fit = static_cast<std::size_t>(std::max(0.0, (node.nvlink_per_gpu + kSlack) / speed - 1));
    std::size_t count = std::min(heads.size(), fit);
    if (nodes == 1 && count < heads.size()) continue;
    if (count > most || static_cast<double>(count) * speed > static_cast<double>(most) * at + kSlack) {
      most = count;
      at = speed;
    }
    if (most == arity) break;
  }
  // Beyond the list's slowest: what the links give.
  if (most == 0 && nodes == 1) {
    most = heads.size();
    at = node.nvlink_per_gpu / static_cast<double>(heads.size() + 1);
  }
  if (most == 0) return g;
  // Then the speed between nodes is raised, a step of the list at a time, while it is below twice the one inside; on one node nothing stands against it.
  double inter = at;
  for (auto faster = tried.rbegin(); faster != tried.rend(); ++faster)
    if (*faster > inter && inter < 2 * at && (nodes == 1 || *faster <= node.nic_bandwidth + kSlack)) inter = *faster;
  g.channels = static_cast<int>(most);
  g.bw_intra = at * 1e9;
  g.bw_inter = inter * 1e9;
  g.type_intra = PathType::Nvl;
  g.pattern = kNvlsPattern;
  for (std::size_t k = 0; k < most; ++k) g.order.push_back({heads[k]});
  return g;
}

// Trees between nodes, of as many channels. `chain`: CollNet's, which is a plain one.
ChannelGraph trees(const Node& node, const Machine& m, std::size_t channels, bool chain) {
  int cc = m.compute_capability;
  ChannelGraph g;
  auto tried = speeds(cc, false);
  std::set<PathType> intra = types_inside(node);
  std::set<PathType> inter = types_to_nics(node);
  std::vector<Shape> shapes{Shape::Balanced};
  if (node.gpus == 1 || chain) shapes = {Shape::Plain};
  else if (cc >= 90) shapes.push_back(Shape::Plain);
  auto find = [&](std::size_t at) {
    for (PathType to_nic : inter)
      for (PathType between : intra) {
        if (between > to_nic && between != *intra.begin()) break;
        for (Shape shape : shapes)
          for (bool same : {true, false}) {
            Packer packer(node, m, shape, true, {between, to_nic, channels, same});
            std::vector<Channel> found = packer.pack(tried[at], tried[at]);
            if (found.size() < channels) continue;
            g.pattern = shape == Shape::Balanced ? kBalancedTree : kPlainTree;
            // The chain inside may be up to twice as fast as the network.
            double speed = tried[at];
            for (std::size_t faster = at; faster > 0 && speed < 2 * tried[at]; --faster) {
              std::vector<Channel> more = packer.pack(tried[faster - 1], tried[at]);
              if (more.size() < channels) break;
              found = std::move(more);
              speed = tried[faster - 1];
            }
            fill(g, node, found, speed, tried[at]);
            return;
          }
      }
  };
  // NCCL gives up where not as many are found; this search is not as thorough, and takes half of them.
  for (; channels > 0 && g.channels == 0; channels /= 2)
    for (std::size_t at = 0; at < tried.size() && g.channels == 0; ++at) find(at);
  return g;
}

}  // namespace

double link_bandwidth(Wire wire, double raw, const Machine& m) {
  int cc = m.compute_capability;
  switch (wire) {
    case Wire::Nvlink: {  // raw per link: 25 GB/s (SM60 20, SM100 50); NCCL's: SM60 18, SM70 and SM80 20, SM86 12 of 14.0625, SM90 20.6, SM100 40.1
      if (cc >= 100) return raw * 40.1 / 50;
      if (cc >= 90) return raw * (m.version.minor < 20 ? 20.0 : 20.6) / 25;
      if (cc == 86) return raw * 12 / 14.0625;
      return cc >= 70 ? raw * 20 / 25 : raw * 18 / 20;
    }
    case Wire::Pcie: return raw * 12 / 15.75;  // Gen3 x16: 12
    case Wire::Upi:
      switch (m.cpu) {
        case Cpu::Amd: return std::min(raw, 16.0);
        case Cpu::Arm: return std::min(raw, 6.0);
        case Cpu::Power: return std::min(raw, 32.0);
        case Cpu::Intel:
        case Cpu::Mixed: return std::min(raw, m.version.minor >= 26 && cc >= 89 ? 22.0 : 10.0);
      }
      return raw;
    case Wire::C2c:
    case Wire::Nic: return raw;
  }
  return raw;
}

Graphs search(const Node& node, int nodes, const Machine& m, Duration latency_inter, bool collnet) {
  int cc = m.compute_capability;
  Graphs out;
  ChannelGraph& ring = out.by_algorithm[0];
  ChannelGraph& tree = out.by_algorithm[1];
  if (node.gpus > 1 || nodes > 1) ring = rings(node, nodes, m);
  if (nodes > 1) {
    tree = trees(node, m, static_cast<std::size_t>(ring.channels), false);
  } else if (node.gpus > 1) {
    // The same paths, open; two GPUs need each direction once.
    tree = ring;
    tree.pattern = kBalancedTree;
    if (node.gpus == 2) tree.bw_intra = tree.bw_inter = 2 * ring.bw_intra;
  }
  if (node.nvswitch && cc >= 90 && node.gpus > 1) {
    out.by_algorithm[3] = nvls(node, nodes, m);
    out.by_algorithm[3].type_inter = ring.type_inter;
  }
  if (collnet && nodes > 1 && ring.channels > 0) {
    out.by_algorithm[2] = tree.pattern == kPlainTree ? tree : trees(node, m, static_cast<std::size_t>(ring.channels), true);
    out.by_algorithm[4] = ring;
    out.by_algorithm[4].pattern = kCollnetDirect;
    out.by_algorithm[4].type_intra = *types_inside(node).rbegin();
  }
  for (ChannelGraph& g : out.by_algorithm) g.latency_inter = latency_inter;
  return out;
}

}  // namespace ddpsim::nccl
