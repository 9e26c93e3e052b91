#include "sim/nccl/finder.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "sim/nccl/nth.h"

namespace ddpsim::nccl {
namespace {

// GB/s.
constexpr double kIntraOld[]{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kInterOld[]{48, 30, 28, 24, 20, 18,  15,  12,  10, 9,
                             7,  6,  5,  4,  3,  2.4, 1.2, .24, .12};
constexpr double kIntra90[]{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kInter90[]{48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12};
constexpr double kIntra100[]{90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
constexpr double kInter100[]{96, 86,   80, 48, 45.1, 42, 40,  30,  24,  22,
                             20, 17.5, 15, 12, 6,    3,  2.4, 1.2, .24, .12};

// The farthest of these types that `far` lets through.
PathType nearest_alike(const std::vector<PathType>& types, PathType far) {
  PathType out{};
  for (PathType t : types)
    if (t <= far) out = std::max(out, t);
  return out;
}
bool asks_the_same(const Channels& a, const Channels& b) {
  return a.shape == b.shape && a.cross == b.cross && a.same == b.same && a.intra == b.intra &&
         a.inter == b.inter && a.far_intra == b.far_intra && a.far_inter == b.far_inter &&
         a.least == b.least && a.most == b.most;
}

}  // namespace

// Blackwell's lists grew.
std::vector<GBps> speeds(const Machine& m, bool one_node) {
  auto all = [](auto& list) {
    std::vector<GBps> out;
    for (double speed : list) out.push_back({speed});
    return out;
  };
  auto without = [](std::vector<GBps> list, std::initializer_list<double> absent) {
    std::erase_if(list, [&](GBps s) {
      return std::find(absent.begin(), absent.end(), s.gb_per_s) != absent.end();
    });
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
    std::vector<GBps> list = all(kIntra100);
    if (!v.has(Change::EighteenOfBlackwell)) list = without(list, {18});
    return v.has(Change::MoreSpeedsOfBlackwell) ? list : without(list, {45});
  }
  if (!v.has(Change::WholePortsOfBlackwell)) {
    std::vector<GBps> list = all(kInter90);
    if (v.has(Change::ExactPortsOfBlackwell))
      list[1] = {45.1};
    else if (v.has(Change::EighteenOfBlackwell))
      list.front() = {47.9};
    return list;
  }
  std::vector<GBps> list = all(kInter100);
  if (!v.has(Change::EightySixOfBlackwell)) list = without(list, {86});
  return v.has(Change::MoreSpeedsOfBlackwell) ? list : without(list, {80});
}

Finder::Finder(const Node& node, const Machine& machine, const Reach& reach, bool network,
               bool in_full)
    : node_(node),
      machine_(machine),
      reach_(reach),
      network_(network),
      in_full_(in_full),
      speeds_(speeds(machine, !network)),
      walk_(node, machine, reach, network) {
  find_limits();
}

Channels Finder::find(Shape shape, int least, int most) {
  all_ = in_full_;
  find_once(shape, least, most);
  if (!in_doubt_) return best_;
  all_ = true;
  find_once(shape, least, most);
  return best_;
}

void Finder::find_once(Shape shape, int least, int most) {
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
  GBps total = reach_.total();
  if (asked_ != Shape::Ring && node_.gpus > 1) total *= 1.0 * node_.gpus / (node_.gpus - 1);
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
void Finder::find_limits() {
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

// Tries that are left; none of a look that was left out or cut short (was_cut_).
int Finder::look() {
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

void Finder::slower() {
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
bool Finder::next_limits() {
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
void Finder::duplicate() {
  if (best_.count == 0 || best_.intra < GBps{25}) return;
  if (machine_.compute_capability > 80 && best_.intra < GBps{50} && best_.count > 4) return;
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

void Finder::faster() {
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

}  // namespace ddpsim::nccl
