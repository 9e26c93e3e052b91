// Speeds are tried from the fastest down; at each, as many channels as the node carries, each a
// path through all GPUs whose links still have that much to give. The best is the largest channels
// * speed. Fast channels are then split in two at half speed. Trees between nodes then take as many
// channels as the rings have: the first that are found, going through speeds, path types to NICs,
// path types between GPUs, and (from SM90 on) balanced trees before plain ones. Where links are
// slower than the slowest speed nothing is found, and NCCL falls back to one channel in the order
// of the GPUs (fall_back).
#include "sim/nccl/search.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>

#include "sim/nccl/nth.h"
#include "sim/nccl/walk.h"

namespace ddpsim::nccl {
namespace {

constexpr double kIntraOld[]{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kInterOld[]{48, 30, 28, 24, 20, 18,  15,  12,  10, 9,
                             7,  6,  5,  4,  3,  2.4, 1.2, .24, .12};
constexpr double kIntra90[]{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kInter90[]{48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12};
constexpr double kIntra100[]{90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
constexpr double kInter100[]{96, 86,   80, 48, 45.1, 42, 40,  30,  24,  22,
                             20, 17.5, 15, 12, 6,    3,  2.4, 1.2, .24, .12};

// Blackwell's lists grew.
std::vector<double> speeds(const Machine& m, bool one_node) {
  auto all = [](auto& list) { return std::vector<double>(std::begin(list), std::end(list)); };
  auto without = [](std::vector<double> list, std::initializer_list<double> absent) {
    std::erase_if(
        list, [&](double s) { return std::find(absent.begin(), absent.end(), s) != absent.end(); });
    return list;
  };
  Version v = m.version;
  if (m.compute_capability < 90) return one_node ? all(kIntraOld) : all(kInterOld);
  if (m.compute_capability < 100 || !v.has(Change::BlackwellRows)) {
    if (!one_node) return all(kInter90);
    return without(all(kIntra90), v.has(Change::ElevenOfHopper)
                                      ? std::initializer_list<double>{}
                                      : std::initializer_list<double>{11});
  }
  if (one_node) {
    std::vector<double> list = all(kIntra100);
    if (!v.has(Change::EighteenOfBlackwell)) list = without(list, {18});
    return v.has(Change::MoreSpeedsOfBlackwell) ? list : without(list, {45});
  }
  if (!v.has(Change::WholePortsOfBlackwell)) {
    std::vector<double> list = all(kInter90);
    if (v.has(Change::ExactPortsOfBlackwell))
      list[1] = 45.1;
    else if (v.has(Change::EighteenOfBlackwell))
      list.front() = 47.9;
    return list;
  }
  std::vector<double> list = all(kInter100);
  if (!v.has(Change::EightySixOfBlackwell)) list = without(list, {86});
  return v.has(Change::MoreSpeedsOfBlackwell) ? list : without(list, {80});
}

// Links slower than the slowest speed that is tried: NCCL takes the GPUs in their order and the
// first NIC, and writes 0.1 GB/s down whatever they carry (src/graph/search.cc, end of
// ncclTopoCompute: "falling back to simple order"; the same from 2.18 to 2.28, not for CollNet
// and NVLS, which are then not used). A NIC that an end of the order has no way to is not taken.
constexpr double kFallbackBandwidth = 0.1e9;
void fall_back(ChannelGraph& g, const Node& node, bool network) {
  g.channels = 1;
  g.bw_intra = g.bw_inter = kFallbackBandwidth;
  g.type_intra = g.type_inter = PathType::Sys;
  g.order.assign(1, std::vector<int>(static_cast<std::size_t>(node.gpus)));
  std::iota(g.order.front().begin(), g.order.front().end(), 0);
  g.nics.clear();
  g.crossnic = 0;
  auto reached = [&](int gpu, int nic) {
    return std::max(node.nic_path[node.at(gpu, nic)], node.nic_back_path[node.at(gpu, nic)]) <
           PathType::Dis;
  };
  for (int nic = 0; nic < node.nics && network && g.nics.empty(); ++nic)
    if (reached(0, nic) && reached(node.gpus - 1, nic)) g.nics.push_back({nic, nic});
}

// The first channels alone.
void keep(ChannelGraph& g, std::size_t channels) {
  g.channels = static_cast<int>(channels);
  if (g.order.size() > channels) g.order.resize(channels);
  if (g.nics.size() > channels) g.nics.resize(channels);
}

// Two groups of GPUs, joined by NVLink in each and not between them (ncclTopoSplitNvLink).
bool two_domains(const Node& node) {
  auto joined = [&](int a, int b) {
    return nth(node.gpu_path, a * node.gpus + b) <= PathType::Nvb;
  };
  int first = 0;
  for (int g = 0; g < node.gpus; ++g) first += joined(0, g) ? 1 : 0;
  if (first < 2 || node.gpus - first < 2) return false;
  int other = 0;
  while (joined(0, other)) ++other;
  for (int g = 0; g < node.gpus; ++g)
    if (joined(0, g) == joined(other, g)) return false;
  return true;
}

// One graph: speeds from the fastest down; for each of them the same order of GPUs for every
// channel and different ones, simpler trees, ways between GPUs and to NICs from the nearest on,
// rings that cross. The first that is found stays unless a later one carries more in all. Then fast
// channels are split, and what is found is tried with more speed.
//
// What NCCL finds, in less time: a look that can find nothing better is left out, and one that was
// made before is not made again (it finds nothing, and uses as many tries). Whether NCCL runs out
// of tries is then known within bounds only. While it may have, nothing but hopeless looks may
// follow, which change nothing; where another one would, all is done again as NCCL does it.
class Finder {
 public:
  Finder(const Node& node, const Machine& machine, const Reach& reach, bool network, bool in_full)
      : node_(node),
        machine_(machine),
        reach_(reach),
        network_(network),
        in_full_(in_full),
        speeds_(speeds(machine, !network)),
        walk_(node, machine, reach, network) {
    find_limits();
  }

  Channels find(Shape shape, int least, int most) {
    all_ = in_full_;
    find_once(shape, least, most);
    if (!in_doubt_) return best_;
    all_ = true;
    find_once(shape, least, most);
    return best_;
  }

 private:
  static constexpr int kTries = 1 << 14;
  static constexpr int kTriesOfTheSame = 1 << 8;
  static constexpr std::int64_t kTriesInAll = 1 << 19;

  // A look that left `best_` as it was, and the tries that it left.
  struct Vain {
    Channels wanted;
    int tries = 0;
  };

  void find_once(Shape shape, int least, int most) {
    may_be_over_ = in_doubt_ = false;
    vain_.clear();
    asked_ = node_.gpus == 1 && shape == Shape::Balanced ? Shape::Plain : shape;
    best_ = Channels{};
    best_.shape = asked_;
    best_.least = least;
    best_.most = most;
    best_.far_intra = near_intra_;
    best_.far_inter = near_inter_;
    if (network_ && node_.nics > 1 && asked_ != Shape::Plain && machine_.cross_nic == 1)
      best_.cross = 1;
    now_ = best_;
    double total = reach_.total();
    if (asked_ != Shape::Ring && node_.gpus > 1)
      total *= static_cast<double>(node_.gpus) / (node_.gpus - 1);
    at_ = 0;
    while (at_ + 1 < speeds_.size() && (speeds_[at_] > reach_.fastest(network_) + kSlack ||
                                        speeds_[at_] * best_.least > total + kSlack))
      ++at_;
    now_.intra = now_.inter = speeds_[at_];
    slower();
    duplicate();
    vain_.clear();
    if (!in_doubt_) faster();
  }

  // The nearest and the farthest way between GPUs, and to NICs: since 2.25 nothing else is tried.
  // What leaves by another GPU is as far as that; the way back may be farther, and then trees of
  // 2.25 to 2.28, which need both, are not found.
  void find_limits() {
    bool own = machine_.version.has(Change::PathTypesOfTheNode);
    near_intra_ = node_.gpus == 1 ? PathType::Loc : PathType::Nvl;
    near_inter_ = PathType::Pix;
    far_intra_ = far_inter_ = PathType::Sys;
    if (!own) return;
    near_intra_ = PathType::Loc;
    auto limits = [](const std::vector<PathType>& types, PathType& near, PathType& far) {
      near = PathType::Sys;
      far = PathType::Loc;
      for (PathType t : types) {
        near = std::min(near, t);
        far = std::max(far, t);
      }
    };
    if (node_.gpus > 1) {
      std::vector<PathType> between;
      for (int a = 0; a < node_.gpus; ++a)
        for (int b = 0; b < node_.gpus; ++b)
          if (a != b) between.push_back(nth(node_.gpu_path, a * node_.gpus + b));
      limits(between, near_intra_, far_intra_);
    }
    if (network_) {
      limits(node_.nic_path, near_inter_, far_inter_);
      far_intra_ = far_inter_;
      if (machine_.compute_capability < 90 && machine_.version.has(Change::TreesComeBackFar))
        far_inter_ = PathType::Sys;
    }
  }

  // Tries that are left; of what was left out: none (was_cut_).
  int look() {
    int tries = now_.same ? kTriesOfTheSame : kTries;
    left_ -= tries;
    most_left_ -= tries;
    was_cut_ = false;
    // Of a very large node channels are long: no deeper than this.
    constexpr int kMostGpus = 72;
    if (node_.gpus > kMostGpus) tries = std::min(tries, 1 << 12);
    if (all_) return walk_.look(now_, best_, tries);
    if (walk_.hopeless(now_, best_)) {
      was_cut_ = true;
      return 0;
    }
    if (may_be_over_) {
      in_doubt_ = true;
      return Walk::kPerfect;
    }
    Channels wanted = now_;
    wanted.far_intra = nearest_alike(node_.gpu_path, now_.far_intra);
    wanted.far_inter = std::max(nearest_alike(node_.nic_path, now_.far_inter),
                                nearest_alike(node_.nic_back_path, now_.far_inter));
    for (const Vain& v : vain_)
      if (asks_the_same(v.wanted, wanted)) return v.tries;
    int left = walk_.look(now_, best_, tries, false);
    was_cut_ = walk_.was_cut();
    if (walk_.found())
      vain_.clear();
    else if (!was_cut_)
      vain_.push_back({std::move(wanted), left});
    return left;
  }

  // The farthest of these types that `far` lets through.
  static PathType nearest_alike(const std::vector<PathType>& types, PathType far) {
    PathType out{};
    for (PathType t : types)
      if (t <= far) out = std::max(out, t);
    return out;
  }
  static bool asks_the_same(const Channels& a, const Channels& b) {
    return a.shape == b.shape && a.cross == b.cross && a.same == b.same && a.intra == b.intra &&
           a.inter == b.inter && a.far_intra == b.far_intra && a.far_inter == b.far_inter &&
           a.least == b.least && a.most == b.most;
  }

  bool all_is_taken() const { return best_.count * best_.inter >= reach_.total() - kSlack; }

  void slower() {
    left_ = most_left_ = kTriesInAll;
    while (true) {
      int tries = look();
      if (tries == Walk::kPerfect || all_is_taken()) return;
      bool far_amd = machine_.cpu == Cpu::Amd && now_.far_intra == PathType::Sys;
      if (now_.same && !far_amd) {
        now_.same = false;
        continue;
      }
      now_.same = true;
      left_ += tries;
      most_left_ += was_cut_ ? kTries : tries;
      if (most_left_ < 0 && best_.count > 0) return;
      may_be_over_ = may_be_over_ || (left_ < 0 && best_.count > 0);
      if (!next_limits()) return;
    }
  }

  // What to try next; false: nothing.
  bool next_limits() {
    if (machine_.compute_capability >= 90 && now_.shape == Shape::Balanced) {
      now_.shape = Shape::Plain;
      return true;
    }
    now_.shape = best_.shape;
    auto next = [](PathType t) { return static_cast<PathType>(static_cast<int>(t) + 1); };
    bool found = best_.count > 0;
    PathType far = network_ ? now_.far_inter : far_intra_;
    if (now_.far_intra < far && (!found || now_.far_intra < best_.far_intra)) {
      now_.far_intra = next(now_.far_intra);
      return true;
    }
    now_.far_intra = near_intra_;
    if (network_ && now_.far_inter < far_inter_ &&
        (!found || now_.far_inter < best_.far_inter || now_.far_inter < PathType::Pxn)) {
      now_.far_inter = next(now_.far_inter);
      return true;
    }
    now_.far_inter = near_inter_;
    bool exchange = machine_.version.has(Change::CrossingRingsExchangeNics);
    bool may_cross = network_ && node_.nics > 1 && machine_.cross_nic == 2 &&
                     asked_ != Shape::Plain &&
                     (!exchange || best_.shape == Shape::Ring || best_.shape == Shape::Balanced);
    if (may_cross && now_.cross == 0) {
      now_.cross = exchange ? 2 : 1;
      return true;
    }
    now_.cross = network_ && node_.nics > 1 && asked_ != Shape::Plain && machine_.cross_nic == 1;
    if (at_ + 1 >= speeds_.size() || (found && speeds_[at_ + 1] / best_.inter <= .49)) return false;
    now_.intra = now_.inter = speeds_[++at_];
    return true;
  }

  // Fast channels are split in two.
  void duplicate() {
    if (best_.count == 0 || best_.intra < 25) return;
    if (machine_.compute_capability > 80 && best_.intra < 50 && best_.count > 4) return;
    int count = std::min(2 * best_.count, best_.most);
    for (int k = best_.count; k < count; ++k) {
      for (int g = 0; g < node_.gpus; ++g)
        nth(best_.order, k * node_.gpus + g) = nth(best_.order, (k - best_.count) * node_.gpus + g);
      nth(best_.nics, k) = nth(best_.nics, k - best_.count);
    }
    int parts = (count + best_.count - 1) / best_.count;
    best_.intra /= parts;
    best_.inter /= parts;
    best_.count = count;
  }

  void faster() {
    at_ = 0;
    while (at_ + 1 < speeds_.size() && speeds_[at_] > best_.inter + kSlack) ++at_;
    now_ = best_;
    now_.intra = now_.inter = speeds_[at_];
    now_.least = best_.count;
    may_be_over_ = false;
    int tries = Walk::kPerfect;
    while (tries != 0 && at_ > 0) {
      if (best_.shape == Shape::Ring)
        now_.intra = now_.inter = speeds_[--at_];
      else if (now_.intra == best_.intra && now_.intra < 2 * now_.inter)
        now_.intra = speeds_[--at_];
      else
        return;
      tries = look();
      if (was_cut_) {
        may_be_over_ = true;
        tries = kTries;
      }
    }
  }

  const Node& node_;
  const Machine& machine_;
  const Reach& reach_;
  bool network_;
  bool in_full_;
  std::vector<double> speeds_;
  Walk walk_;
  PathType near_intra_ = PathType::Loc;
  PathType near_inter_ = PathType::Loc;
  PathType far_intra_ = PathType::Loc;
  PathType far_inter_ = PathType::Loc;
  Shape asked_ = Shape::Ring;
  std::size_t at_ = 0;          // speed
  std::int64_t left_ = 0;       // tries; at least
  std::int64_t most_left_ = 0;  // at most
  bool all_ = false;            // as NCCL does it, step by step
  bool was_cut_ = false;
  bool may_be_over_ = false;  // NCCL may have ended before
  bool in_doubt_ = false;
  std::vector<Vain> vain_;
  Channels now_;
  Channels best_;
};

ChannelGraph graph_of(const Channels& c, const Node& node, bool network) {
  ChannelGraph g;
  g.channels = c.count;
  g.pattern = c.shape == Shape::Ring       ? Pattern::Ring
              : c.shape == Shape::Balanced ? Pattern::BalancedTree
                                           : Pattern::PlainTree;
  if (c.count == 0) return g;
  g.bw_intra = c.intra * 1e9;
  g.bw_inter = c.inter * 1e9;
  g.type_intra = c.far_intra;
  g.type_inter = c.far_inter;
  g.same_channels = c.same;
  g.crossnic = c.cross;
  for (int k = 0; k < c.count; ++k) {
    auto first = c.order.begin() + static_cast<std::ptrdiff_t>(k) * node.gpus;
    g.order.emplace_back(first, first + node.gpus);
    if (network) g.nics.push_back(nth(c.nics, k));
  }
  return g;
}

// NVLS: a channel for each GPU that is a head: on one node all, or at most 32; of several
// nodes the GPUs nearest to the NICs. A GPU's link carries what it gives to every head, and a
// head's once more.
ChannelGraph nvls(const Node& node, bool several, const Machine& m) {
  ChannelGraph g;
  auto tried = speeds(m, !several);
  auto arity = static_cast<std::size_t>(
      m.version.has(Change::NvlsOfAtMost32Heads) ? std::min(32, node.gpus) : node.gpus);
  // Each with its NIC, -1 = none.
  std::vector<std::array<int, 2>> heads;
  for (int nic = 0; nic < node.nics && several; ++nic) {
    PathType nearest = PathType::Dis;
    for (int gpu = 0; gpu < node.gpus; ++gpu)
      nearest = std::min(nearest, node.nic_back_path[node.at(gpu, nic)]);
    // Of the nearest GPUs the first that no NIC has.
    for (int gpu = 0; gpu < node.gpus; ++gpu) {
      if (node.nic_back_path[node.at(gpu, nic)] != nearest ||
          std::any_of(heads.begin(), heads.end(), [&](auto& head) { return head[0] == gpu; }))
        continue;
      heads.push_back({gpu, nic});
      break;
    }
  }
  if (!several)
    for (int gpu = 0; gpu < node.gpus; ++gpu) heads.push_back({gpu, -1});
  if (heads.size() > arity) heads.resize(arity);
  // How many of them their NICs and the ways to these carry, in and out.
  auto carried = [&](double speed) {
    if (!several) return heads.size();
    Capacity left(node, m);
    std::size_t count = 0;
    for (auto [gpu, nic] : heads) {
      if (!left.take_in(gpu, nic, speed) || !left.take_out(gpu, nic, speed)) break;
      ++count;
    }
    return count;
  };
  std::size_t most = 0;
  double at = 0;
  for (double speed : tried) {
    if (at > 0 && speed <= 0.49 * at) break;
    auto fit = static_cast<std::size_t>(std::max(0.0, (node.nvlink_per_gpu + kSlack) / speed - 1));
    std::size_t count = std::min(carried(speed), fit);
    if (!several && count < heads.size()) continue;
    if (count > most ||
        static_cast<double>(count) * speed > static_cast<double>(most) * at + kSlack) {
      most = count;
      at = speed;
    }
    if (most == arity) break;
  }
  // Beyond the list's slowest: what the links give.
  if (most == 0 && !several) {
    most = heads.size();
    at = node.nvlink_per_gpu / static_cast<double>(heads.size() + 1);
  }
  if (most == 0) return g;
  // Then the speed between nodes is raised, a step of the list at a time, while it is below twice
  // the one inside; on one node nothing stands against it.
  double inter = at;
  for (auto faster = tried.rbegin(); faster != tried.rend(); ++faster)
    if (*faster > inter && inter < 2 * at && carried(*faster) >= most) inter = *faster;
  g.channels = static_cast<int>(most);
  g.bw_intra = at * 1e9;
  g.bw_inter = inter * 1e9;
  g.type_intra = PathType::Nvl;
  g.pattern = Pattern::Nvls;
  for (std::size_t k = 0; k < most; ++k) g.order.push_back({heads[k][0]});
  return g;
}

Graphs find_all(const SearchQuestion& q, bool in_full = false) {
  const Node& node = q.node;
  const Machine& m = q.machine;
  int cc = m.compute_capability;
  Graphs out;
  ChannelGraph& ring = out[GraphId::Ring];
  ChannelGraph& tree = out[GraphId::Tree];
  bool network = q.several;
  Reach reach(node);
  Finder finder(node, m, reach, network, in_full);
  int found = 0;
  if (node.gpus > 1 || network) {
    int least = m.version.has(Change::TwoRingsOfTwoDomains) && two_domains(node) ? 2 : 1;
    ring = graph_of(finder.find(Shape::Ring, least, kMostChannels), node, network);
    if (ring.channels == 0) fall_back(ring, node, network);
    found = ring.channels;
    tree = graph_of(finder.find(Shape::Balanced, found, found), node, network);
    if (tree.channels == 0) fall_back(tree, node, network);
    // Rings and trees have equally many channels (src/init.cc).
    auto both = static_cast<std::size_t>(std::min(ring.channels, tree.channels));
    keep(ring, both);
    keep(tree, both);
  }
  bool fell_back = ring.bw_intra <= kFallbackBandwidth;
  if (node.nvswitch && cc >= 90 && node.gpus > 1) {
    out[GraphId::Nvls] = nvls(node, network, m);
    out[GraphId::Nvls].type_inter = ring.type_inter;
  }
  if (q.collnet && q.several && !fell_back) {
    out[GraphId::CollnetChain] = graph_of(finder.find(Shape::Plain, found, found), node, network);
    out[GraphId::CollnetDirect] = ring;
    out[GraphId::CollnetDirect].pattern = Pattern::CollnetDirect;
    for (PathType t : node.gpu_path)
      out[GraphId::CollnetDirect].type_intra = std::max(out[GraphId::CollnetDirect].type_intra, t);
  }
  return out;
}

}  // namespace

double link_bandwidth(Wire wire, double raw, const Machine& m) {
  int cc = m.compute_capability;
  switch (wire) {
    case Wire::Nvlink: {  // raw per link: 25 GB/s (SM60 20, SM100 50); NCCL's: SM60 18, SM70 and
                          // SM80 20, SM86 12 of 14.0625, SM90 20.6, SM100 40.1
      if (m.rccl) return raw * 48 / 64;
      if (cc >= 100) return raw * 40.1 / 50;
      if (cc >= 90) return raw * (m.version.has(Change::HopperNvlinkRate) ? 20.6 : 20.0) / 25;
      if (cc == 86) return raw * 12 / 14.0625;
      return cc >= 70 ? raw * 20 / 25 : raw * 18 / 20;
    }
    case Wire::Pcie:
      return raw * 12 / 15.75;  // Gen3 x16: 12
    case Wire::Upi:
      switch (m.cpu) {
        case Cpu::Amd:
          return std::min(raw, 16.0);
        case Cpu::Arm:
          return std::min(raw, 6.0);
        case Cpu::Power:
          return std::min(raw, 32.0);
        case Cpu::Intel:
        case Cpu::Mixed:
          return std::min(raw, cc >= 89 && m.version.has(Change::SapphireRapidsRate) ? 22.0 : 10.0);
      }
      return raw;
    case Wire::C2c:
    case Wire::Nic:
      return raw;
  }
  return raw;
}

std::optional<Graphs> NewestSearches::find(const SearchQuestion& q) const {
  for (const auto& [asked, found] : known_)
    if (asked == q) return found;
  return std::nullopt;
}

void NewestSearches::keep(const SearchQuestion& q, const Graphs& found) {
  known_.emplace_front(q, found);
  if (known_.size() > kMost) known_.pop_back();
}

Graphs search(const Node& node, int nodes, const Machine& m, Duration latency_inter, bool collnet,
              const Searches* known) {
  const SearchQuestion q{node, nodes > 1, m, collnet};
  std::optional<Graphs> out = known ? known->find(q) : std::nullopt;
  if (!out) {
    out = find_all(q);
    if (known) known->keep(q, *out);
  }
  for (ChannelGraph& g : *out) g.latency_inter = latency_inter;
  return *out;
}

Graphs search_in_full(const SearchQuestion& q) {
  return find_all(q, true);
}

}  // namespace ddpsim::nccl
