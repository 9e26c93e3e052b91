// A channel's NIC and first GPU, its next GPUs one by one, its way out, then the next channel.
// Recursion: one level for each GPU of each channel, as many as there are tries at most.
#include "sim/nccl/walk.h"

#include <algorithm>
#include <limits>
#include <tuple>

// NOLINTBEGIN(misc-no-recursion)
namespace ddpsim::nccl {
namespace {

// As NCCL compares rates, in whole GB/s.
int truncated(GBps rate) {
  return static_cast<int>(rate.gb_per_s);
}

}  // namespace

Walk::Walk(const Node& node, const Machine& machine, const Reach& reach, bool network)
    : node_(node),
      machine_(machine),
      reach_(reach),
      network_(network),
      capacity_(node, machine),
      nic_left_(node.nics, node.nic_bandwidth),
      visited_(node.gpus, 0),
      nearest_(visited_.size() * (node.nics + 1)),
      least_hops_(least_hops()) {}

int Walk::look(const Channels& wanted, Channels& best, int tries, bool all) {
  all_ = all;
  cut_ = found_ = false;
  now_ = wanted;
  now_.count = 0;
  now_.order.assign(now_.most * visited_.size(), 0);
  now_.nics.assign(now_.most, {-1, -1});
  best_ = &best;
  tries_ = tries;
  begin();
  return tries_;
}

// More in all; then, of the same kind, fewer hops.
bool Walk::better(const Channels& now, const Channels& than) const {
  if (now.count < now.least) return false;
  GBps mine = now.count * now.intra;
  GBps bar = than.count * than.intra;
  if (!machine_.version.has(Change::CrossingRingsNeedNoMargin))
    bar *= 1 - ((than.cross != 0 ? 1 : 0) - (now.cross != 0 ? 1 : 0)) * 0.15;
  if (mine > bar + kSlack) return true;
  if (mine < bar - kSlack) return false;
  return now.shape == than.shape && now.cross == than.cross && now.hops < than.hops;
}

// Each channel comes by a NIC, and leaves each of its GPUs but the last (a ring on one node: all)
// by a link; what these carry of such channels.
int Walk::most_channels(const Channels& wanted) const {
  auto times = [](GBps capacity, GBps speed) {
    return static_cast<int>(std::min<double>(kMostChannels, (capacity + 2 * kSlack) / speed));
  };
  int most = wanted.most;
  if (network_) {
    int each = times(node_.nic_bandwidth, wanted.inter);
    most = std::min(most, each * static_cast<int>(reach_.nics(-1, wanted.far_inter).size()));
  }
  if (node_.gpus < 2) return most;
  std::vector<int> of_gpu;
  std::vector<int> links;
  for (int a = 0; a < node_.gpus; ++a) {
    links.clear();
    for (int b = 0; b < node_.gpus; ++b) {
      if (a == b || path(a, b) > wanted.far_intra) continue;
      const std::vector<int>& route = nth(node_.gpu_route, a * node_.gpus + b);
      if (route.empty()) return most;
      if (std::find(links.begin(), links.end(), route.front()) == links.end())
        links.push_back(route.front());
    }
    int carried = 0;
    for (int l : links) carried += times(nth(node_.links, l), wanted.intra);
    of_gpu.push_back(carried);
  }
  int leaving = wanted.shape == Shape::Ring && !network_ ? node_.gpus : node_.gpus - 1;
  auto room_for = [&](int channels) {
    int hops = 0;
    for (int carried : of_gpu) hops += std::min(carried, channels);
    return hops >= leaving * channels;
  };
  while (most > 0 && !room_for(most)) --most;
  return most;
}

// Of a chain of all GPUs, and the way between its ends if that is inside the node.
Walk::Hops Walk::least_hops() const {
  Hops out;
  int inside = std::numeric_limits<int>::max();
  for (int a = 0; a < node_.gpus; ++a)
    for (int b = 0; b < node_.gpus; ++b)
      if (a != b) inside = std::min(inside, reach_.between(a, b).hops);
  if (node_.gpus > 1) {
    out.chain = inside * (node_.gpus - 1);
    out.closing = network_ ? 0 : inside;
  }
  if (!network_ || node_.nics == 0) return out;
  int coming = std::numeric_limits<int>::max();
  int leaving = coming;
  for (int g = 0; g < node_.gpus; ++g)
    for (int nic = 0; nic < node_.nics; ++nic) {
      coming = std::min(coming, reach_.from_nic(g, nic).hops);
      leaving = std::min(leaving, reach_.to_nic(g, nic).hops);
    }
  out.chain += coming + leaving;
  return out;
}

bool Walk::hopeless(const Channels& wanted, const Channels& best) const {
  Channels could;
  could.shape = wanted.shape;
  could.cross = wanted.cross;
  could.intra = wanted.intra;
  could.least = wanted.least;
  int each = least_hops_.chain + (wanted.shape == Shape::Ring ? least_hops_.closing : 0);
  for (could.count = most_channels(wanted); could.count > 0; --could.count) {
    could.hops = could.count * each;
    if (better(could, best)) return false;
  }
  return true;
}

// Rings that cross go in pairs: each leaves where the other comes.
bool Walk::in_pairs() const {
  if (now_.count % 2 == 0) return false;
  if (machine_.version.has(Change::CrossingRingsExchangeNics)) return ring() && now_.cross == 2;
  return now_.cross != 0 && machine_.version.has(Change::CrossingRingsGoInPairs);
}

void Walk::begin() {
  if (network_) return begin_at_nics();
  if (now_.count == 0)
    begin_at(-1, 0, Order::Numbers);
  else
    begin_at(-1, order_at(now_.count - 1, 0), Order::Replay);
  if (!now_.same || now_.count == 0)
    for (int g = 0; g < node_.gpus; ++g) begin_at(-1, g, Order::Free);
}

void Walk::begin_at_nics() {
  const std::vector<int>& nics = reach_.nics(-1, now_.far_inter);
  const GBps whole{1.0 * truncated(now_.inter)};
  for (std::size_t i = 0; i < nics.size(); ++i) {
    int nic = nics[(now_.count + i) % nics.size()];
    GBps& left = nth(nic_left_, nic);
    if (left < whole) continue;
    if (in_pairs() && nic != nth(now_.nics, now_.count - 1)[1]) continue;
    nth(now_.nics, now_.count)[0] = nic;
    left -= whole;
    if (now_.count > 0 &&
        (now_.same || !machine_.version.has(Change::DifferentChannelsAreNotReplayed)))
      begin_at(nic, order_at(now_.count - 1, 0), Order::Replay);
    if (now_.count == 0 || !now_.same) begin_near(nic);
    left += whole;
  }
}

void Walk::begin_near(int nic) {
  if (now_.count == 0 && !node_.nvswitch) {
    // A reference, which may not take long.
    constexpr int kTriesOfNumbers = 1 << 10;
    int kept = tries_;
    tries_ = kTriesOfNumbers;
    begin_at(nic, 0, Order::Numbers);
    if (tries_ != kPerfect) tries_ = cut_ ? 0 : kept;
  }
  if (machine_.version.has(Change::ChannelsBeginAtTheNicsOwnGpu)) {
    int own = reach_.own_gpu(nic);
    if (!machine_.version.has(Change::DifferentChannelsAreNotReplayed)) own = -1;
    if (own >= 0) begin_at(nic, own, Order::Free);
    for (int g : reach_.gpus_near(nic))
      if (g != own) begin_at(nic, g, Order::Free);
    return;
  }
  // The fastest, and of these those of fewest hops, going round.
  GBps rate;
  int hops = 0;
  for (int g = 0; g < node_.gpus; ++g) {
    const Reached& r = reach_.from_nic(g, nic);
    if (r.rate > rate || (r.rate == rate && r.hops < hops)) rate = r.rate, hops = r.hops;
  }
  if (rate.gb_per_s < truncated(now_.inter)) return;
  for (int i = 0; i < node_.gpus; ++i) {
    int g = (now_.count + i) % node_.gpus;
    const Reached& r = reach_.from_nic(g, nic);
    if (r.rate == rate && r.hops == hops) begin_at(nic, g, Order::Free);
  }
}

void Walk::begin_at(int nic, int gpu, Order order) {
  Step s{0, -1, -1, order};
  if (network_)
    s.leave = ring() ? node_.gpus - 1 : 0;
  else if (ring())
    s.close = node_.gpus - 1;
  if (nic >= 0) {
    std::size_t at = node_.at(gpu, nic);
    if (node_.nic_back_path[at] > now_.far_inter ||
        (!ring() && node_.nic_path[at] > now_.far_inter) ||
        !capacity_.take_in(gpu, nic, now_.inter))
      return;
    now_.hops += reach_.from_nic(gpu, nic).hops;
  }
  std::uint64_t bit = std::uint64_t{1} << now_.count;
  nth(visited_, gpu) ^= bit;
  visit(gpu, s);
  nth(visited_, gpu) ^= bit;
  if (nic < 0) return;
  capacity_.give_in(gpu, nic, now_.inter);
  now_.hops -= reach_.from_nic(gpu, nic).hops;
}

void Walk::visit(int gpu, const Step& s) {
  if (tries_ <= 0) return;
  --tries_;
  if (s.at == node_.gpus) return complete();
  order_at(now_.count, s.at) = gpu;
  if (s.at == s.leave)
    leave(gpu, s);
  else if (s.at < node_.gpus - 1)
    go_on(gpu, s);
  else if (s.at == s.close)
    close(gpu, s);
  else
    visit(gpu, {node_.gpus, -1, -1, s.order});
}

void Walk::complete() {
  ++now_.count;
  if (better(now_, *best_)) {
    *best_ = now_;
    found_ = true;
    if (now_.count == now_.most) {
      tries_ = kPerfect;
    } else if (!all_ && hopeless(now_, *best_)) {
      cut_ = true;
      tries_ = 0;
    }
  }
  if (now_.count < now_.most) begin();
  --now_.count;
}

bool Walk::may_leave(int nic, int start, int at) const {
  if (now_.shape == Shape::Plain && nic != start) return false;
  bool exchange = machine_.version.has(Change::CrossingRingsExchangeNics);
  if (exchange && ring() && now_.cross == 2) {
    if (now_.count % 2 == 1 && nic != nth(now_.nics, now_.count - 1)[0]) return false;
  } else {
    if (now_.cross == 0 && nic != start) return false;
    if (!exchange && in_pairs() && nic != nth(now_.nics, now_.count - 1)[0]) return false;
  }
  return now_.shape != Shape::Balanced || at == 0 || nic == nth(now_.nics, now_.count)[1];
}

void Walk::leave(int gpu, const Step& s) {
  int start = nth(now_.nics, now_.count)[0];
  for (int nic : reach_.nics(gpu, now_.far_inter))
    if (may_leave(nic, start, s.at)) leave_by(gpu, nic, s);
}

// A balanced tree's first two GPUs give half each.
void Walk::leave_by(int gpu, int nic, const Step& s) {
  bool balanced = now_.shape == Shape::Balanced;
  GBps speed = balanced ? now_.inter / 2 : now_.inter;
  std::size_t at = node_.at(gpu, nic);
  if (node_.nic_path[at] > now_.far_inter ||
      (!ring() && node_.nic_back_path[at] > now_.far_inter) || !capacity_.take_out(gpu, nic, speed))
    return;
  now_.hops += reach_.to_nic(gpu, nic).hops;
  nth(now_.nics, now_.count)[1] = nic;
  visit(gpu, {s.at, balanced && s.at == 0 ? 1 : -1, s.close, s.order});
  capacity_.give_out(gpu, nic, speed);
  now_.hops -= reach_.to_nic(gpu, nic).hops;
}

void Walk::go_on(int gpu, const Step& s) {
  if (s.order == Order::Numbers) return go_to(gpu, s.at + 1, s);
  if (s.order == Order::Replay) return go_to(gpu, order_at(now_.count - 1, s.at + 1), s);
  std::size_t first = next_.size();
  add_next_gpus(gpu, s);
  for (std::size_t i = first, end = next_.size(); i < end && tries_ > 0; ++i)
    go_to(gpu, next_[i], s);
  next_.resize(first);
}

void Walk::go_to(int from, int to, const Step& s) {
  if (path(from, to) > now_.far_intra || !capacity_.take_hop(from, to, now_.intra)) return;
  now_.hops += reach_.between(from, to).hops;
  std::uint64_t bit = std::uint64_t{1} << now_.count;
  nth(visited_, to) ^= bit;
  visit(to, {s.at + 1, s.leave, s.close, s.order});
  nth(visited_, to) ^= bit;
  capacity_.give_hop(from, to, now_.intra);
  now_.hops -= reach_.between(from, to).hops;
}

void Walk::close(int gpu, const Step& s) {
  int first = order_at(now_.count, 0);
  if (first != gpu) {
    if (path(gpu, first) > now_.far_intra || !capacity_.take_hop(gpu, first, now_.intra)) return;
    now_.hops += reach_.between(gpu, first).hops;
  }
  visit(first, {s.at + 1, s.leave, -1, s.order});
  if (first == gpu) return;
  capacity_.give_hop(gpu, first, now_.intra);
  now_.hops -= reach_.between(gpu, first).hops;
}

// The other GPUs as a channel from `gpu` tries them: by what `nic` gives each of them (-1: no
// matter), then fast ways inside, short ones, and in order of number, going round.
const std::vector<int>& Walk::nearest_first(int gpu, int nic) {
  std::vector<int>& out = nth(nearest_, gpu * (node_.nics + 1) + nic + 1);
  if (!out.empty()) return out;
  using Key = std::tuple<int, int, int, int, int, int>;
  std::vector<Key> keys;
  for (int i = 1; i < node_.gpus; ++i) {
    int g = (gpu + i) % node_.gpus;
    const Reached& inside = reach_.between(gpu, g);
    Reached from = nic >= 0 ? reach_.from_nic(g, nic) : Reached{};
    keys.emplace_back(-truncated(from.rate), from.hops, -truncated(inside.rate), inside.hops, i, g);
  }
  std::sort(keys.begin(), keys.end());
  for (const Key& k : keys) out.push_back(std::get<5>(k));
  return out;
}

// Where the channel has to come back to its NIC, first the GPU that is best for that, if it leaves
// by the next one, else, where all are alike inside the node, last. Puts them behind next_.
void Walk::add_next_gpus(int gpu, const Step& s) {
  std::size_t first = next_.size();
  if (node_.nvswitch && machine_.version.has(Change::OnSwitchesNeighboursOnly))
    return add_neighbours(gpu, first);
  bool to_nic = s.leave != -1;
  for (int g : nearest_first(gpu, to_nic ? nth(now_.nics, now_.count)[0] : -1))
    if (!taken(g)) next_.push_back(g);
  auto begin = next_.begin() + first;
  if (to_nic && s.leave != s.at + 1 && std::all_of(begin, next_.end(), [&](int g) {
        const Reached& a = reach_.between(gpu, *begin);
        const Reached& b = reach_.between(gpu, g);
        return truncated(a.rate) == truncated(b.rate) && a.hops == b.hops;
      }))
    std::reverse(begin, next_.end());
  if (node_.nvswitch) add_neighbours(gpu, first);
}

// On a switch neighbours come first, and since 2.21 alone. The last that is put in front leads.
void Walk::add_neighbours(int gpu, std::size_t first) {
  int before = (gpu + node_.gpus - 1) % node_.gpus;
  int after = (gpu + 1) % node_.gpus;
  auto put_first = [&](int g) {
    if (g == gpu || taken(g)) return;
    auto begin = next_.begin() + first;
    auto it = std::find(begin, next_.end(), g);
    if (it == next_.end())
      next_.insert(begin, g);
    else
      std::rotate(begin, it, it + 1);
  };
  if (now_.shape == Shape::Balanced) put_first(before);
  put_first(after);
  if (ring() && before != after) put_first(before);
}

}  // namespace ddpsim::nccl
// NOLINTEND(misc-no-recursion)
