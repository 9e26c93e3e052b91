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

#include "sim/nccl/finder.h"
#include "sim/nccl/nth.h"

namespace ddpsim::nccl {
namespace {

// Links slower than the slowest speed that is tried: NCCL takes the GPUs in their order and the
// first NIC, and writes 0.1 GB/s down whatever they carry (src/graph/search.cc, end of
// ncclTopoCompute: "falling back to simple order"; the same from 2.18 to 2.28, not for CollNet
// and NVLS, which are then not used). A NIC that an end of the order has no way to is not taken.
constexpr BytesPerSecond kFallbackBandwidth = bytes_per_s(GBps{0.1});
void fall_back(ChannelGraph& g, const Node& node, bool network) {
  g.channels = 1;
  g.bw_intra = g.bw_inter = kFallbackBandwidth;
  g.type_intra = g.type_inter = PathType::Sys;
  g.order.assign(1, std::vector<int>(node.gpus));
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

ChannelGraph graph_of(const Channels& c, const Node& node, bool network) {
  ChannelGraph g;
  g.channels = c.count;
  g.pattern = c.shape == Shape::Ring       ? Pattern::Ring
              : c.shape == Shape::Balanced ? Pattern::BalancedTree
                                           : Pattern::PlainTree;
  if (c.count == 0) return g;
  g.bw_intra = bytes_per_s(c.intra);
  g.bw_inter = bytes_per_s(c.inter);
  g.type_intra = c.far_intra;
  g.type_inter = c.far_inter;
  g.same_channels = c.same;
  g.crossnic = c.cross;
  for (int k = 0; k < c.count; ++k) {
    auto first = c.order.begin() + k * node.gpus;
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
  std::size_t arity =
      m.version.has(Change::NvlsOfAtMost32Heads) ? std::min(32, node.gpus) : node.gpus;
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
  auto carried = [&](GBps speed) {
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
  GBps at;
  for (GBps speed : tried) {
    if (at > GBps{} && speed <= 0.49 * at) break;
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
  GBps inter = at;
  for (auto faster = tried.rbegin(); faster != tried.rend(); ++faster)
    if (*faster > inter && inter < 2 * at && carried(*faster) >= most) inter = *faster;
  g.channels = static_cast<int>(most);
  g.bw_intra = bytes_per_s(at);
  g.bw_inter = bytes_per_s(inter);
  g.type_intra = PathType::Nvl;
  g.pattern = Pattern::Nvls;
  for (std::size_t k = 0; k < most; ++k) g.order.push_back({heads[k][0]});
  return g;
}

Graphs find_all(const SearchQuestion& q) {
  const Node& node = q.node;
  const Machine& m = q.machine;
  int cc = m.compute_capability;
  Graphs out;
  ChannelGraph& ring = out[GraphId::Ring];
  ChannelGraph& tree = out[GraphId::Tree];
  bool network = q.several;
  Reach reach(node, network);
  Finder finder(node, m, reach, network);
  int found = 0;
  if (node.gpus > 1 || network) {
    int least = m.version.has(Change::TwoRingsOfTwoDomains) && two_domains(node) ? 2 : 1;
    ring = graph_of(finder.find(Shape::Ring, least, kMostChannels), node, network);
    if (ring.channels == 0) fall_back(ring, node, network);
    found = ring.channels;
    tree = graph_of(finder.find(Shape::Balanced, found, found), node, network);
    if (tree.channels == 0) fall_back(tree, node, network);
    // Rings and trees have equally many channels (src/init.cc).
    std::size_t both = std::min(ring.channels, tree.channels);
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

GBps link_bandwidth(Wire wire, GBps raw, const Machine& m) {
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
          return std::min(raw, GBps{16});
        case Cpu::Arm:
          return std::min(raw, GBps{6});
        case Cpu::Power:
          return std::min(raw, GBps{32});
        case Cpu::Intel:
        case Cpu::Mixed:
          return std::min(
              raw, GBps{cc >= 89 && m.version.has(Change::SapphireRapidsRate) ? 22.0 : 10.0});
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

}  // namespace ddpsim::nccl
