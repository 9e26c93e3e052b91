// A depth-first search with a limit: a channel's NIC and first GPU, its next GPUs one by one, its
// way out, then the next channel; the longest list is kept.
#include "sim/nccl/pack.h"

#include <algorithm>
#include <tuple>

#include "sim/nccl/nth.h"

namespace ddpsim::nccl {
namespace {

constexpr double kSlack = 1e-6;  // sums of speeds against a capacity

class Packer {
 public:
  Packer(const Node& node, const Machine& machine, const Wanted& wanted, double intra, double inter)
      : node_(node),
        machine_(machine),
        shape_(wanted.shape),
        ring_(wanted.shape == Shape::Ring),
        network_(wanted.network),
        limits_(wanted.limits),
        intra_(intra),
        inter_(inter),
        left_(node.links),
        nic_left_(static_cast<std::size_t>(node.nics), node.nic_bandwidth),
        nic_out_left_(nic_left_),
        most_(bound()) {}

  std::vector<Channel> pack(double worth) {
    if (static_cast<double>(most_) > worth) search();
    return std::move(best_);
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
          if (b != a) first.push_back(nth(node_.gpu_route, a * n + b).front());
        std::sort(first.begin(), first.end());
        first.erase(std::unique(first.begin(), first.end()), first.end());
        double out = 0;
        for (int l : first) {
          auto whole = static_cast<int>((nth(node_.links, l) + kSlack) / intra_);
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
    bool bridged = false;  // a GPU's way through an Intel CPU's host bridge: PCIe links give a
                           // sixth less (INTEL_P2P_OVERHEAD)
    int back = -1;         // the link that carries requests the other way, an eighth of it
  };
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
  bool intel() const { return machine_.cpu == Cpu::Intel || machine_.cpu == Cpu::Mixed; }
  Way hop(int a, int b) const {
    return {&between(a, b), intra_, intel() && path(a, b) == PathType::Phb};
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
  double left_on(const std::vector<int>& route) const {
    double least = 1e30;
    for (int l : route) least = std::min(least, nth(left_, l));
    return least;
  }
  const std::vector<int>& between(int a, int b) const {
    return nth(node_.gpu_route, a * node_.gpus + b);
  }
  PathType path(int a, int b) const { return nth(node_.gpu_path, a * node_.gpus + b); }

  // A tree goes out and in by its NIC: both ways have to be near enough.
  bool near(int gpu, int nic) const {
    std::size_t at = node_.at(gpu, nic);
    return node_.nic_back_path[at] <= limits_.inter &&
           (ring_ || node_.nic_path[at] <= limits_.inter);
  }
  bool enough() const { return best_.size() >= most_ || tries_ > most_tries(); }
  int most_tries() const { return limits_.same ? kMostTriesSame : kMostTries; }

  // A choice that the search has made or is to make. Levels are kept here instead of on the stack:
  // one for each GPU of each channel.
  enum class What : std::uint8_t {
    Begin,  // of a channel: its first GPU, and the NIC that it comes by
    Next,   // its next GPU
    Leave,  // a whole channel: the NIC that it leaves by
  };
  struct Level {
    What what = What::Begin;
    bool taken = false;                       // the option before `next`
    std::size_t next = 0;                     // into `options`
    std::vector<std::array<int, 2>> options;  // GPU and NIC, -1 = none
  };

  void search() {
    begin_channel();
    while (!levels_.empty()) {
      Level& level = levels_.back();
      bool stop = level.taken && !give_back(level);
      if (stop || !take_next(level)) {
        if (level.what == What::Begin) open_.pop_back();
        levels_.pop_back();
      } else if (level.what == What::Leave) {
        channels_.push_back(open_.back());
        begin_channel();
      } else {
        go_on();
      }
    }
  }

  // One more channel; keeps the longest list seen.
  void begin_channel() {
    if (channels_.size() > best_.size()) best_ = channels_;
    if (enough() || channels_.size() == limits_.channels) return;
    int n = node_.gpus;
    std::size_t k = channels_.size();
    visited_.assign(static_cast<std::size_t>(n), 0);
    open_.emplace_back();
    Level level;
    if (!network_) {
      // Rings go through every GPU: where one begins does not matter.
      auto gpus = static_cast<std::size_t>(n);
      for (std::size_t i = 0; i < (ring_ ? 1 : gpus); ++i)
        level.options.push_back({static_cast<int>((k + i) % gpus), -1});
      levels_.push_back(std::move(level));
      return;
    }
    using Key = std::tuple<double, PathType, int, std::size_t, int>;
    std::vector<Key> starts;
    for (int nic = 0; nic < node_.nics; ++nic)
      for (int g = 0; g < n; ++g)
        starts.emplace_back(-nth(nic_left_, nic), node_.nic_back_path[node_.at(g, nic)], nic,
                            (static_cast<std::size_t>(g + n) - k % static_cast<std::size_t>(n)) %
                                static_cast<std::size_t>(n),
                            g);
    std::sort(starts.begin(), starts.end());
    for (const Key& key : starts) {
      int nic = std::get<2>(key);
      int gpu = std::get<4>(key);
      if (!near(gpu, nic) || (limits_.same && k > 0 && gpu != channels_.front().order.front()))
        continue;
      if (limits_.cross == 2 && k % 2 == 1 && nic != channels_.back().nics[1]) continue;
      level.options.push_back({gpu, nic});
    }
    levels_.push_back(std::move(level));
  }

  // The open channel's next GPU, or, where all are on it, its way out.
  void go_on() {
    if (++tries_ > most_tries()) return;
    const Channel& c = open_.back();
    Level level;
    if (static_cast<int>(c.order.size()) == node_.gpus) {
      level.what = What::Leave;
      if (limits_.cross == 0)
        level.options.push_back({-1, c.nics[1]});
      else
        level.options = crossings(c);
    } else {
      level.what = What::Next;
      level.options = next_gpus(c);
    }
    levels_.push_back(std::move(level));
  }

  std::vector<std::array<int, 2>> next_gpus(const Channel& c) const {
    int n = node_.gpus;
    int last = c.order.back();
    // A ring has to come back to its NIC: GPUs far from it first, the last one near it
    // (ncclTopoSearchNextGpuSort). Then near GPUs first, then where most is left, then in order of
    // number, going round from the last. A balanced tree's second GPU is to be near the NIC too. On
    // an NVSwitch a channel goes to a neighbour only, a plain tree to the next one.
    bool second = shape_ == Shape::Balanced && c.order.size() == 1;
    bool comes_back = network_ && ((ring_ && limits_.cross == 0) || second);
    bool ends = second || static_cast<int>(c.order.size()) + 1 == n;
    std::vector<std::tuple<int, PathType, double, int, int>> next;
    for (int d = 1; d < n; d += node_.nvswitch && shape_ == Shape::Plain ? n
                                : node_.nvswitch                         ? std::max(1, n - 2)
                                                                         : 1) {
      int g = (last + d) % n;
      if (nth(visited_, g) || path(last, g) > limits_.intra) continue;
      if (second && !near(g, c.nics[1])) continue;
      if (limits_.same && !channels_.empty() && g != channels_.front().order[c.order.size()])
        continue;
      int way = comes_back ? static_cast<int>(node_.nic_path[node_.at(g, c.nics[1])]) : 0;
      next.emplace_back(ends ? way : -way, path(last, g), -left_on(between(last, g)), d, g);
    }
    std::sort(next.begin(), next.end());
    std::vector<std::array<int, 2>> out;
    for (const auto& key : next) out.push_back({std::get<4>(key), -1});
    return out;
  }

  // Of a ring that may leave by another NIC: near ones.
  std::vector<std::array<int, 2>> crossings(const Channel& c) const {
    std::vector<std::pair<PathType, int>> ways;
    for (int nic = 0; nic < node_.nics; ++nic)
      if (PathType path = node_.nic_path[node_.at(c.order.back(), nic)]; path <= limits_.inter)
        ways.emplace_back(path, nic);
    std::sort(ways.begin(), ways.end());
    std::vector<std::array<int, 2>> out;
    for (auto [type, nic] : ways)
      if (limits_.cross != 2 || channels_.size() % 2 == 0 || nic == channels_.back().nics[0])
        out.push_back({-1, nic});
    return out;
  }

  // A ring closes; towards the network a ring leaves by its last GPU, a tree by its first (a
  // balanced one half by its second), through the NIC that it came by.
  std::size_t ways_out(const Channel& c, std::array<Way, 2>& ways) const {
    if (network_ && shape_ == Shape::Balanced && node_.gpus > 1) {
      ways = {out(c.order[0], c.nics[1], 0.5), out(c.order[1], c.nics[1], 0.5)};
      return 2;
    }
    if (network_)
      ways[0] = out(ring_ ? c.order.back() : c.order.front(), c.nics[1]);
    else if (ring_ && node_.gpus > 1)
      ways[0] = hop(c.order.back(), c.order.front());
    else
      return 0;
    return 1;
  }

  bool leave(const Channel& c) {
    if (network_ && ring_ && node_.nic_path[node_.at(c.order.back(), c.nics[1])] > limits_.inter)
      return false;
    if (!network_ && ring_ && path(c.order.back(), c.order.front()) > limits_.intra) return false;
    std::array<Way, 2> ways{};
    std::size_t count = ways_out(c, ways);
    std::size_t taken = 0;
    while (taken < count && take(ways[taken])) ++taken;
    if (taken == count) return true;
    while (taken > 0) give(ways[--taken]);
    return false;
  }

  bool take_nic(std::vector<double>& left, int nic, const Way& way) {
    double& l = nth(left, nic);
    if (l + kSlack < inter_ || !take(way)) return false;
    l -= inter_;
    return true;
  }

  // The next option that there is room for; false: there is none, or enough was found.
  bool take_next(Level& level) {
    Channel& c = open_.back();
    while (level.next < level.options.size()) {
      if ((level.what == What::Begin || (level.what == What::Leave && limits_.cross != 0)) &&
          enough())
        return false;
      auto [gpu, nic] = level.options[level.next++];
      switch (level.what) {
        case What::Begin:
          if (nic >= 0 && !take_nic(nic_left_, nic, in(gpu, nic))) continue;
          if (nic >= 0) c.nics = {nic, nic};
          c.order.assign(1, gpu);
          break;
        case What::Next:
          if (!take(hop(c.order.back(), gpu))) continue;
          c.order.push_back(gpu);
          break;
        case What::Leave:
          if (limits_.cross == 0 ? !leave(c)
                                 : !take_nic(nic_out_left_, nic, out(c.order.back(), nic)))
            continue;
          c.nics[1] = nic;
          break;
      }
      if (gpu >= 0) nth(visited_, gpu) = 1;
      level.taken = true;
      return true;
    }
    return false;
  }

  // What the option took; false: no other one is to be tried.
  bool give_back(Level& level) {
    Channel& c = open_.back();
    auto [gpu, nic] = level.options[level.next - 1];
    level.taken = false;
    if (gpu >= 0) nth(visited_, gpu) = 0;
    switch (level.what) {
      case What::Begin:
        if (nic >= 0) nth(nic_left_, nic) += inter_, give(in(gpu, nic));
        return true;
      case What::Next:
        c.order.pop_back();
        give(hop(c.order.back(), gpu));
        return !enough();
      case What::Leave:
        break;
    }
    channels_.pop_back();
    std::fill(visited_.begin(), visited_.end(), 1);
    if (limits_.cross != 0) {
      nth(nic_out_left_, nic) += inter_;
      give(out(c.order.back(), nic));
      c.nics[1] = c.nics[0];
      return true;
    }
    std::array<Way, 2> ways{};
    for (std::size_t count = ways_out(c, ways); count > 0;) give(ways[--count]);
    return true;
  }

  static constexpr int kMostTries = 20'000;
  static constexpr int kMostTriesSame = 256;
  const Node& node_;
  const Machine& machine_;
  Shape shape_;
  bool ring_;
  bool network_;
  Limits limits_;
  double intra_;
  double inter_;
  std::vector<double> left_;
  std::vector<double> nic_left_;
  std::vector<double> nic_out_left_;  // of rings that cross
  std::vector<char> visited_;
  std::vector<Level> levels_;
  std::vector<Channel> open_;      // begun: one more than `channels_`, or as many
  std::vector<Channel> channels_;  // whole
  std::vector<Channel> best_;
  std::size_t most_;
  int tries_ = 0;
};

}  // namespace

std::vector<Channel> pack(const Node& node, const Machine& m, const Wanted& wanted, double intra,
                          double inter, double worth) {
  return Packer(node, m, wanted, intra, inter).pack(worth);
}

}  // namespace ddpsim::nccl
