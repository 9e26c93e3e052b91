// Speeds are tried from the fastest down; at each, as many channels as the node carries, each a
// path through all GPUs whose links still have that much to give. The best is the largest channels
// * speed. Fast channels are then split in two at half speed. Trees between nodes then take as many
// channels as the rings have: the first that are found, going through speeds, path types to NICs,
// path types between GPUs, and (from SM90 on) balanced trees before plain ones. Where links are
// slower than the slowest speed nothing is found, and NCCL falls back to one channel in the order
// of the GPUs (fall_back).
#include "sim/nccl/search.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "sim/nccl/nth.h"
#include "sim/nccl/pack.h"

namespace ddpsim::nccl {
namespace {

constexpr double kIntraOld[]{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kInterOld[]{48, 30, 28, 24, 20, 18,  15,  12,  10, 9,
                             7,  6,  5,  4,  3,  2.4, 1.2, .24, .12};
constexpr double kIntra90[]{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kInter90[]{48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12};
constexpr double kIntra100[]{90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr double kInter100[]{96,   48, 45.1, 42, 40, 30,  24,  22,  20,
                             17.5, 15, 12,   6,  3,  2.4, 1.2, .24, .12};

std::span<const double> speeds(int cc, bool one_node) {
  if (cc >= 100) return one_node ? std::span<const double>(kIntra100) : kInter100;
  if (cc >= 90) return one_node ? std::span<const double>(kIntra90) : kInter90;
  return one_node ? std::span<const double>(kIntraOld) : kInterOld;
}

void fill(ChannelGraph& g, const Node& node, const std::vector<Channel>& channels, double intra,
          double inter) {
  g.channels = static_cast<int>(channels.size());
  g.bw_intra = intra * 1e9;
  g.bw_inter = inter * 1e9;
  g.type_intra = node.gpus > 1 ? PathType::Loc : PathType::Nvl;
  g.type_inter = PathType::Pix;
  for (const Channel& c : channels) {
    g.order.push_back(c.order);
    for (std::size_t i = 0; i + 1 < c.order.size(); ++i)
      g.type_intra =
          std::max(g.type_intra, nth(node.gpu_path, c.order[i] * node.gpus + c.order[i + 1]));
    if (c.nics[0] < 0) continue;
    g.nics.push_back(c.nics);
    g.type_inter = std::max(g.type_inter, node.nic_back_path[node.at(c.order.front(), c.nics[0])]);
    // Where no ways to NICs are drawn, what lies between a NIC and another GPU is not known.
    if (c.order.size() < 2 || node.out_route.front().empty()) continue;
    if (g.pattern == Pattern::Ring)
      g.type_inter = std::max(g.type_inter, node.nic_path[node.at(c.order.back(), c.nics[1])]);
    if (g.pattern == Pattern::BalancedTree)
      g.type_inter = std::max({g.type_inter, node.nic_path[node.at(c.order[1], c.nics[1])],
                               node.nic_back_path[node.at(c.order[1], c.nics[1])]});
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
      if (a != b) out.insert(nth(node.gpu_path, a * node.gpus + b));
  if (out.empty()) out.insert(PathType::Loc);
  return out;
}
std::set<PathType> types_to_nics(const Node& node) {
  std::set<PathType> out(node.nic_path.begin(), node.nic_path.end());
  out.insert(node.nic_back_path.begin(), node.nic_back_path.end());
  return out;
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

ChannelGraph rings(const Node& node, int nodes, const Machine& m) {
  ChannelGraph g;
  g.pattern = Pattern::Ring;
  bool network = nodes > 1;
  std::vector<int> crossings{0};
  if (network && node.nics > 1 && m.cross_nic == 1) crossings = {1};
  if (network && node.nics > 1 && m.cross_nic == 2)
    crossings = {0, m.version.has(Change::CrossingRingsExchangeNics) ? 2 : 1};
  std::set<PathType> inter = network ? types_to_nics(node) : std::set<PathType>{PathType::Dis};
  std::set<PathType> intra = types_inside(node);
  std::size_t least = m.version.has(Change::TwoRingsOfTwoDomains) && two_domains(node) ? 2 : 1;
  double most = 0;
  std::vector<Channel> found;
  double at = 0;
  // Within which it was found: nearer ways first, and where something is found none between GPUs is
  // farther, none to NICs farther than another GPU's.
  PathType far_inter = PathType::Loc;
  PathType far_intra = PathType::Loc;
  for (double speed : speeds(m.compute_capability, nodes == 1)) {
    // Half as fast, and less: what is found is kept.
    if (at > 0 && speed <= 0.49 * at) break;
    for (int cross : crossings) {
      bool margin =
          cross != 0 && g.crossnic == 0 && !m.version.has(Change::CrossingRingsNeedNoMargin);
      double needed = most * (margin ? 1.15 : 1);
      for (PathType to_nic : inter)
        for (PathType between : intra) {
          bool too_far = !found.empty() &&
                         (to_nic > std::max(far_inter, PathType::Pxn) || between > far_intra);
          if (too_far || (between > to_nic && between != *intra.begin())) continue;
          std::vector<Channel> channels =
              pack(node, m, {Shape::Ring, network, {between, to_nic, kMostChannels, false, cross}},
                   speed, speed, needed / speed + kSlack);
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
  if (found.empty()) {
    fall_back(g, node, network);
    return g;
  }
  fill(g, node, found, at, at);
  duplicate(g, m.compute_capability);
  return g;
}

// NVLS: a channel for each GPU that is a head: on one node all, or at most 32; of several
// nodes the GPUs nearest to the NICs. A GPU's link carries what it gives to every head, and a
// head's once more.
ChannelGraph nvls(const Node& node, int nodes, const Machine& m) {
  ChannelGraph g;
  auto tried = speeds(m.compute_capability, nodes == 1);
  auto arity = static_cast<std::size_t>(
      m.version.has(Change::NvlsOfAtMost32Heads) ? std::min(32, node.gpus) : node.gpus);
  std::vector<int> heads;
  for (int nic = 0; nic < node.nics && nodes > 1; ++nic) {
    PathType nearest = PathType::Dis;
    for (int gpu = 0; gpu < node.gpus; ++gpu)
      nearest = std::min(nearest, node.nic_back_path[node.at(gpu, nic)]);
    // Of the nearest GPUs the first that no NIC has.
    for (int gpu = 0; gpu < node.gpus; ++gpu) {
      if (node.nic_back_path[node.at(gpu, nic)] != nearest ||
          std::find(heads.begin(), heads.end(), gpu) != heads.end())
        continue;
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
    if (count > most ||
        static_cast<double>(count) * speed > static_cast<double>(most) * at + kSlack) {
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
  // Then the speed between nodes is raised, a step of the list at a time, while it is below twice
  // the one inside; on one node nothing stands against it.
  double inter = at;
  for (auto faster = tried.rbegin(); faster != tried.rend(); ++faster)
    if (*faster > inter && inter < 2 * at && (nodes == 1 || *faster <= node.nic_bandwidth + kSlack))
      inter = *faster;
  g.channels = static_cast<int>(most);
  g.bw_intra = at * 1e9;
  g.bw_inter = inter * 1e9;
  g.type_intra = PathType::Nvl;
  g.pattern = Pattern::Nvls;
  for (std::size_t k = 0; k < most; ++k) g.order.push_back({heads[k]});
  return g;
}

// Trees between nodes, of as many channels. `chain`: CollNet's, which is a plain one, and may have
// none.
ChannelGraph trees(const Node& node, const Machine& m, std::size_t channels, bool chain) {
  int cc = m.compute_capability;
  ChannelGraph g;
  auto tried = speeds(cc, false);
  std::set<PathType> intra = types_inside(node);
  std::set<PathType> inter = types_to_nics(node);
  std::vector<Shape> shapes{Shape::Balanced};
  if (node.gpus == 1 || chain)
    shapes = {Shape::Plain};
  else if (cc >= 90)
    shapes.push_back(Shape::Plain);
  auto find = [&](std::size_t at) {
    for (PathType to_nic : inter)
      for (PathType between : intra) {
        if (between > to_nic && between != *intra.begin()) break;
        for (Shape shape : shapes)
          for (bool same : {true, false}) {
            Wanted wanted{shape, true, {between, to_nic, channels, same}};
            std::vector<Channel> found = pack(node, m, wanted, tried[at], tried[at]);
            if (found.size() < channels) continue;
            g.pattern = shape == Shape::Balanced ? Pattern::BalancedTree : Pattern::PlainTree;
            // The chain inside may be up to twice as fast as the network.
            double speed = tried[at];
            for (std::size_t faster = at; faster > 0 && speed < 2 * tried[at]; --faster) {
              std::vector<Channel> more = pack(node, m, wanted, tried[faster - 1], tried[at]);
              if (more.size() < channels) break;
              found = std::move(more);
              speed = tried[faster - 1];
            }
            fill(g, node, found, speed, tried[at]);
            return;
          }
      }
  };
  // NCCL gives up where not as many are found; this search is not as thorough, and takes half of
  // them.
  for (; channels > 0 && g.channels == 0; channels /= 2)
    for (std::size_t at = 0; at < tried.size() && g.channels == 0; ++at) find(at);
  if (g.channels == 0 && !chain) {
    g.pattern = node.gpus == 1 ? Pattern::PlainTree : Pattern::BalancedTree;
    fall_back(g, node, true);
  }
  return g;
}

}  // namespace

double link_bandwidth(Wire wire, double raw, const Machine& m) {
  int cc = m.compute_capability;
  switch (wire) {
    case Wire::Nvlink: {  // raw per link: 25 GB/s (SM60 20, SM100 50); NCCL's: SM60 18, SM70 and
                          // SM80 20, SM86 12 of 14.0625, SM90 20.6, SM100 40.1
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

Graphs search(const Node& node, int nodes, const Machine& m, Duration latency_inter, bool collnet) {
  int cc = m.compute_capability;
  Graphs out;
  ChannelGraph& ring = out[GraphId::Ring];
  ChannelGraph& tree = out[GraphId::Tree];
  if (node.gpus > 1 || nodes > 1) ring = rings(node, nodes, m);
  bool fell_back = ring.bw_intra <= kFallbackBandwidth;
  if (nodes > 1) {
    tree = trees(node, m, static_cast<std::size_t>(ring.channels), false);
    // Rings and trees have equally many channels (src/init.cc): one, if trees fell back.
    if (tree.bw_intra <= kFallbackBandwidth) keep(ring, 1);
  } else if (node.gpus > 1) {
    // The same paths, open; two GPUs need each direction once.
    tree = ring;
    tree.pattern = Pattern::BalancedTree;
    if (node.gpus == 2 && !fell_back) tree.bw_intra = tree.bw_inter = 2 * ring.bw_intra;
  }
  if (node.nvswitch && cc >= 90 && node.gpus > 1) {
    out[GraphId::Nvls] = nvls(node, nodes, m);
    out[GraphId::Nvls].type_inter = ring.type_inter;
  }
  if (collnet && nodes > 1 && !fell_back) {
    out[GraphId::CollnetChain] =
        tree.pattern == Pattern::PlainTree
            ? tree
            : trees(node, m, static_cast<std::size_t>(ring.channels), true);
    out[GraphId::CollnetDirect] = ring;
    out[GraphId::CollnetDirect].pattern = Pattern::CollnetDirect;
    out[GraphId::CollnetDirect].type_intra = *types_inside(node).rbegin();
  }
  for (ChannelGraph& g : out) g.latency_inter = latency_inter;
  return out;
}

}  // namespace ddpsim::nccl
