// A depth-first search with a limit: a channel's NIC and first GPU, its next GPUs one by one, its
// way out, then the next channel; the longest list is kept.
#include "sim/nccl/pack.h"

#include <algorithm>

#include "sim/nccl/try_order.h"

namespace ddpsim::nccl {
namespace {

// No more than what leaves the GPUs, or the NICs.
std::size_t most_channels(const Node& node, const Wanted& wanted, double intra, double inter) {
  double total = 0;
  int n = node.gpus;
  if (wanted.network) {
    total = static_cast<int>((node.nic_bandwidth + kSlack) / inter) * node.nics;
  } else {
    // A GPU gives at most the sum of its own first links.
    total = kMostChannels;
    for (int a = 0; a < n; ++a) {
      std::vector<int> first;
      for (int b = 0; b < n; ++b)
        if (b != a) first.push_back(nth(node.gpu_route, a * n + b).front());
      std::sort(first.begin(), first.end());
      first.erase(std::unique(first.begin(), first.end()), first.end());
      double out = 0;
      for (int l : first) {
        auto whole = static_cast<int>((nth(node.links, l) + kSlack) / intra);
        out += whole;
      }
      if (wanted.shape == Shape::Ring || a == 0) total = std::min(total, out);
    }
  }
  return std::min(wanted.limits.channels, static_cast<std::size_t>(total + kSlack));
}

class Packer {
 public:
  Packer(const Node& node, const Machine& machine, const Wanted& wanted, double intra, double inter)
      : gpus_(static_cast<std::size_t>(node.gpus)),
        limits_(wanted.limits),
        capacity_(node, machine, wanted, intra, inter),
        order_(node, wanted),
        most_(most_channels(node, wanted, intra, inter)) {}

  std::vector<Channel> pack(double worth) {
    if (static_cast<double>(most_) > worth) search();
    return std::move(best_);
  }

 private:
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
    bool taken = false;    // the option before `next`
    std::size_t next = 0;  // into `options`
    std::vector<Option> options;
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
    visited_.assign(gpus_, 0);
    open_.emplace_back();
    Level level;
    level.options = order_.starts(channels_, capacity_);
    levels_.push_back(std::move(level));
  }

  // The open channel's next GPU, or, where all are on it, its way out.
  void go_on() {
    if (++tries_ > most_tries()) return;
    const Channel& c = open_.back();
    Level level;
    if (c.order.size() == gpus_) {
      level.what = What::Leave;
      if (limits_.cross == 0)
        level.options.push_back({-1, c.nics[1]});
      else
        level.options = order_.crossings(c, channels_);
    } else {
      level.what = What::Next;
      level.options = order_.next_gpus(c, channels_, visited_, capacity_);
    }
    levels_.push_back(std::move(level));
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
          if (nic >= 0 && !capacity_.take_in(gpu, nic)) continue;
          if (nic >= 0) c.nics = {nic, nic};
          c.order.assign(1, gpu);
          break;
        case What::Next:
          if (!capacity_.take_hop(c.order.back(), gpu)) continue;
          c.order.push_back(gpu);
          break;
        case What::Leave:
          if (limits_.cross == 0 ? !capacity_.take_end(c)
                                 : !capacity_.take_out(c.order.back(), nic))
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
        if (nic >= 0) capacity_.give_in(gpu, nic);
        return true;
      case What::Next:
        c.order.pop_back();
        capacity_.give_hop(c.order.back(), gpu);
        return !enough();
      case What::Leave:
        break;
    }
    channels_.pop_back();
    std::fill(visited_.begin(), visited_.end(), 1);
    if (limits_.cross != 0) {
      capacity_.give_out(c.order.back(), nic);
      c.nics[1] = c.nics[0];
    } else {
      capacity_.give_end(c);
    }
    return true;
  }

  static constexpr int kMostTries = 20'000;
  static constexpr int kMostTriesSame = 256;
  std::size_t gpus_;
  Limits limits_;
  Capacity capacity_;
  TryOrder order_;
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
