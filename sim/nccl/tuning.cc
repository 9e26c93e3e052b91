// time = latency * count + bytes / bandwidth, with
//   ring:  bandwidth = bus * n / steps,  bus = channels * speed * protocol;   latency = base +
//          (steps - k) * intra + k * inter
//   tree:  bandwidth = bus / 2,          bus = min(.92 channels * speed, channels * limit) *
//          protocol
// and so on, each line of the tables below by version.
#include "sim/nccl/tuning.h"

#include <algorithm>

#include "sim/nccl/rccl.h"

namespace ddpsim::nccl {
namespace {

using ByProtocol = By<Protocol, double>;  // LL, LL128, Simple
using ByAlgorithm = By<Algorithm, ByProtocol>;

constexpr ByAlgorithm by_algorithm(std::array<std::array<double, 3>, 7> rows) {
  ByAlgorithm out;
  for (std::size_t i = 0; i < rows.size(); ++i) out.values[i].values = rows[i];
  return out;
}
constexpr ByAlgorithm kBase = by_algorithm(
    {{{6.8, 14, 8.4}, {6.6, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}}});
constexpr By<HopKind, ByAlgorithm> kStep{{
    by_algorithm({{{.6, 1.25, 4.0},
                   {.6, 1.9, 3.4},
                   {0, 0, 3.7},
                   {0, 0, 2.8},
                   {0, 0, 25},
                   {0, 0, 25},
                   {0, 0, 4}}}),
    by_algorithm({{{1.0, 1.9, 4.0},
                   {1.0, 2.5, 5.7},
                   {0, 0, 3.7},
                   {0, 0, 2.8},
                   {0, 0, 0},
                   {0, 0, 0},
                   {0, 0, 4}}}),
    by_algorithm({{{5.0, 8.5, 14},
                   {2.7, 4.0, 14},
                   {0, 0, 31},
                   {0, 0, 30},
                   {0, 0, 18},
                   {0, 0, 20.9},
                   {0, 0, 14}}}),
}};

// GB/s by nodes, for GPUs of each generation.
struct ByNodes {
  double one_node = 0;
  double two_nodes = 0;
  double more = 0;
  constexpr GBps on(int nodes) const {
    return {nodes <= 1 ? one_node : nodes == 2 ? two_nodes : more};
  }
};
struct ByGeneration {
  ByNodes volta, ampere, hopper, blackwell;
};
constexpr ByGeneration kLlMax{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
constexpr ByGeneration kRingLl128{
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}};
constexpr ByGeneration kTreeLl128{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
constexpr ByGeneration kTree{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
constexpr ByGeneration kNvlsTree{
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.8}};

// A channel's, measured later.
constexpr GBps kRingLl128OfBlackwell{40};
constexpr GBps kNvlsTreeOfBlackwell{80};

// By size, from 64 bytes on, doubled.
constexpr By<Protocol, std::array<double, 23>> kTreeCorrection{{{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}}};

GBps limit_of(const ByGeneration& l, const System& s, int nodes, Version v) {
  int cc = s.compute_capability;
  if (cc < 80) return l.volta.on(nodes);
  if (cc < 90) return l.ampere.on(nodes);
  if (cc < 100 || !v.has(Change::BlackwellRows)) return l.hopper.on(nodes);
  return v.has(Change::BlackwellNumbers) ? l.blackwell.on(nodes) : 2 * l.hopper.on(nodes);
}

bool defined(Operation op, Algorithm a, Protocol p) {
  if (a != Algorithm::Ring && a != Algorithm::Tree && p != Protocol::Simple) return false;
  switch (op) {
    case Operation::Broadcast:
    case Operation::Reduce:
      return a == Algorithm::Ring;
    case Operation::AllGather:
    case Operation::ReduceScatter:
      return a == Algorithm::Pat || a == Algorithm::Ring || a == Algorithm::Nvls ||
             a == Algorithm::CollnetDirect;
    case Operation::AllReduce:
      return a != Algorithm::Pat;
    case Operation::AllToAll:
    case Operation::SendRecv:
    case Operation::Push:  // of parameter servers: no operation of NCCL
    case Operation::Pull:
      return false;
  }
  return false;
}

// NVLS, and NVLSTree.
bool has_nvls(const System& s, Version v) {
  int heads = s.graphs[GraphId::Nvls].channels;
  return s.nvls && s.nvswitch && s.compute_capability >= 90 &&
         heads >= (v.has(Change::NvlsNeedsTwoHeads) ? 2 : 1) &&
         s.per_node() >= (v.has(Change::NvlsOfTwoGpus) ? 2 : 3);
}

int nvls_channels(const System& s, Version v) {
  if (s.compute_capability < 100 || !v.has(Change::NvlsChannelsOfBlackwell)) return 16;
  return s.nodes == 1 && v.has(Change::NvlsChannelsOfOneNode) ? 24 : 32;
}

bool enabled(const System& s, Operation op, Algorithm a, Protocol p, Version v) {
  const ChannelGraph& g = graph_of(s, a);
  if (g.channels == 0 || s.ranks < 2) return false;
  int cc = s.compute_capability;
  if (s.rccl && !rccl_offers(a, p, s.nodes)) return false;
  if (p == Protocol::Ll && !s.ll && s.nodes > 1) return false;
  if (p == Protocol::Ll128) {
    PathType far = cc >= 90 ? PathType::Pxn : PathType::Pxb;
    if (s.nodes > 1 && (!s.ll128 || g.type_inter > far)) return false;
    bool mixed = !s.one_capability && !(cc >= 90 && v.has(Change::Ll128OfMixedGpus));
    if (g.type_intra > PathType::Nvb || mixed || cc < 70) return false;
    bool tried = cc == 70 || cc == 80 || cc == 90 ||
                 (v.has(Change::Ll128OnBlackwell) && (cc == 100 || cc == 120));
    if (!v.has(Change::Ll128OnAnyGpu) && !tried) return false;
  }
  switch (a) {
    case Algorithm::CollnetDirect:
      if (op != Operation::AllReduce && !v.has(Change::CollnetDirectGathers)) return false;
      return s.collnet && s.nvswitch && s.per_node() <= 8 &&
             (op == Operation::AllReduce || s.nodes > 1);
    case Algorithm::CollnetChain:
      return s.collnet && s.per_node() <= 8;
    case Algorithm::Nvls:
      if (op != Operation::AllReduce && s.per_node() > 32 && v.has(Change::NvlsOfAtMost32Heads))
        return false;  // more parts than a channel has heads
      return has_nvls(s, v) && (s.nodes == 1 || s.collnet);
    case Algorithm::NvlsTree:
      return has_nvls(s, v) && s.nodes > 1;
    case Algorithm::Pat:
      return v.has(Change::Pat) && s.nodes == s.ranks && cc >= 60;
    default:
      return true;
  }
}

GBps bandwidth(const System& s, Operation op, Algorithm a, Protocol p, Version v) {
  const ChannelGraph& g = graph_of(s, a);
  double n = s.ranks;
  double ppn = s.per_node();
  double channels = g.channels;
  GBps intra = gb_per_s(g.bw_intra);
  GBps inter = gb_per_s(g.bw_inter);
  GBps speed = s.nodes <= 2 || is_collnet(a) ? intra : inter;
  bool gather = op == Operation::ReduceScatter || op == Operation::AllGather;
  if (is_nvls(a) && !v.has(Change::NvlsCostModel)) {
    if (gather && v.has(Change::NvlsGathersAtNetworkRate))
      speed = std::min(intra * (ppn - 1) / ppn, inter * 0.9);
    else
      speed = std::min(intra, a == Algorithm::NvlsTree && s.nodes > 2 ? inter / 2 : inter);
    return channels * speed * (gather && v.has(Change::NvlsGathersAtFullRate) ? 1 : 5.0 / 6);
  }
  if (is_nvls(a)) {
    GBps in = intra * nvls_efficiency(s.compute_capability) * (channels - 1) / channels *
              (gather ? (ppn - 1) / ppn : 2);
    GBps between = inter * (a == Algorithm::NvlsTree && s.nodes <= 2 ? 2 : 1);
    speed = std::min(in, between);
    if (a == Algorithm::NvlsTree) speed = std::min(speed, channel_limit(s, s.nodes, v, a, p));
  }
  GBps bus = channels * speed;
  if (a == Algorithm::Ring && p == Protocol::Ll) {
    double lines = v.has(Change::LlTakesHalf)                                             ? 0.5
                   : s.nodes > 1 || op == Operation::AllReduce || op == Operation::Reduce ? 0.25
                                                                                          : 1.0 / 3;
    bus = std::min(ll_bus_limit(s, s.nodes, v), bus * lines);
  }
  if (a == Algorithm::Ring && p == Protocol::Ll128)
    bus = std::min(bus * (ppn < 2 && !v.has(Change::Ll128OfLoneGpus) ? 0.7 : 0.92),
                   channels * channel_limit(s, s.nodes, v, a, p));
  if (a == Algorithm::Tree) {
    bus = std::min(bus * 0.92, channels * limit_of(kTree, s, s.nodes, v));
    if (p == Protocol::Ll) bus = std::min(bus / 3.8, ll_bus_limit(s, s.nodes, v));
    if (p == Protocol::Ll128)
      bus = std::min(bus * (s.nodes == 1 ? 7.0 / 9 : 120.0 / 128),
                     channels * channel_limit(s, s.nodes, v, a, p));
    if (g.pattern == Pattern::PlainTree) bus *= 0.85;
  }
  if (a == Algorithm::Pat) bus *= v.has(Change::PatBandwidth) ? 0.75 : 0.85;
  if (a == Algorithm::CollnetDirect) {
    if (op == Operation::AllReduce) {
      double factor = ppn / channels;
      factor -= (factor - 1) / 2;
      bus /= factor;
      if (s.compute_capability >= 90) bus *= 0.85;
    } else if (v.has(Change::CollnetGathersAtNetworkRate)) {
      bus = ppn * std::min(intra, inter * 0.9);
    } else {
      double share = (ppn - 1) / 7;
      bus = ppn * intra * (share * 0.85 + (1 - share) * 0.95);
    }
  }
  double steps = op == Operation::AllReduce                                     ? 2 * (n - 1)
                 : op == Operation::ReduceScatter || op == Operation::AllGather ? n - 1
                                                                                : n;
  if (gather && a != Algorithm::Ring) return bus;
  return a == Algorithm::Ring || is_nvls(a) ? bus * n / steps : bus * 0.5;
}

Microseconds latency(const System& s, Operation op, Algorithm a, Protocol p, Version v) {
  const ChannelGraph& g = graph_of(s, a);
  double n = s.ranks;
  double nodes = s.nodes;
  double ppn = s.per_node();
  bool simple = p == Protocol::Simple;
  HopKind near = g.type_intra <= PathType::Nvl ? HopKind::Nvlink : HopKind::Pci;
  Microseconds intra = step_latency(v, near, a, p);
  if (s.cpu == Cpu::Power && near == HopKind::Pci && a == Algorithm::Tree && simple)
    intra = step_latency(v, near, Algorithm::Ring, p);
  bool alone = s.ranks == s.nodes && v.has(Change::LoneGpusRunTrees);
  Microseconds inter = step_latency(v, HopKind::Net, alone ? Algorithm::Tree : a, p) +
                       microseconds(g.latency_inter) * (simple ? 2 : 1);
  double steps = op == Operation::AllReduce                                     ? 2 * (n - 1)
                 : op == Operation::ReduceScatter || op == Operation::AllGather ? n - 1
                                                                                : n;
  double levels = floor_log2(s.nodes);
  Microseconds out = base_latency(v, a, p);
  switch (a) {
    case Algorithm::Ring: {
      if (op == Operation::Broadcast || op == Operation::Reduce) {
        Microseconds each = s.nodes > 1 ? step_latency(v, HopKind::Net, a, p) : intra;
        if (g.same_channels) return out + each;
        if (simple) each = step_latency(v, s.nodes > 1 ? HopKind::Net : near, Algorithm::Tree, p);
        return out + steps * each;
      }
      Microseconds overhead{s.nodes == 1 ? 0 : (s.cpu == Cpu::Amd ? 2.0 : 1.0) * (simple ? 3 : 1)};
      double between = op == Operation::AllReduce ? 2 * (nodes - 1) : nodes - 1;
      if (op == Operation::AllReduce && s.nodes > 1 && !v.has(Change::RingsLastHopIsInside))
        between = 2 * nodes;
      return out + (steps - between) * std::max(intra, overhead) + between * inter;
    }
    case Algorithm::Tree:
      return out + 2 * ((ppn - 1) * intra + levels * inter);
    case Algorithm::CollnetDirect:
      return out + 2 * (std::min(1.0, ppn - 1) * intra + (ppn - 1) * Microseconds{0.4}) + inter;
    case Algorithm::CollnetChain:
      return out + 2 * (ppn - 1) * intra + inter;
    case Algorithm::Nvls:
      return intra + (s.nodes > 1 ? inter : Microseconds{});
    case Algorithm::NvlsTree:
      return out + intra + 2 * levels * inter;
    case Algorithm::Pat:
      return out + levels * inter / 3.5 + Microseconds{2.8} * n;
  }
  return out;
}

}  // namespace

int floor_log2(std::int64_t n) {
  int k = 0;
  while (n > 1) {
    n >>= 1;
    ++k;
  }
  return k;
}

Microseconds step_latency(Version v, HopKind hop, Algorithm a, Protocol p) {
  if (a == Algorithm::Tree && p == Protocol::Simple && !v.has(Change::SimpleTreeLatency))
    return {28};
  if (a == Algorithm::NvlsTree && hop == HopKind::Net && !v.has(Change::NvlsTreeNumbers))
    return {14};
  if (is_nvls(a) && hop == HopKind::Nvlink && !v.has(Change::NvlsStepLatency)) return {23};
  return {kStep[hop][a][p]};
}
Microseconds base_latency(Version v, Algorithm a, Protocol p) {
  if (a == Algorithm::Tree && p == Protocol::Simple && !v.has(Change::SimpleTreeLatency)) return {};
  return {kBase[a][p]};
}

double nvls_efficiency(int cc) {
  return cc >= 100 ? 0.74 : 0.85;
}

GBps channel_limit(const System& s, int nodes, Version v, Algorithm a, Protocol p) {
  bool ll128 = p == Protocol::Ll128;
  if (a == Algorithm::Tree) return limit_of(ll128 ? kTreeLl128 : kTree, s, nodes, v);
  if (a == Algorithm::Ring && ll128)
    return s.compute_capability >= 100 && v.has(Change::RingLl128OfBlackwell)
               ? kRingLl128OfBlackwell
               : limit_of(kRingLl128, s, nodes, v);
  if (a == Algorithm::NvlsTree && s.compute_capability >= 100 && nodes > 2 &&
      v.has(Change::NvlsTreeOfBlackwell))
    return kNvlsTreeOfBlackwell;
  if (a == Algorithm::NvlsTree)
    return limit_of(v.has(Change::NvlsTreeNumbers) ? kNvlsTree : kTree, s, nodes, v);
  return {};
}

GBps ll_bus_limit(const System& s, int nodes, Version v) {
  if (nodes > 1) {
    bool amd = s.cpu == Cpu::Amd || s.cpu == Cpu::Mixed;
    return (amd ? kLlMax.ampere : kLlMax.volta).on(nodes);
  }
  if (s.compute_capability >= 90 && !v.has(Change::HopperLlLimit)) return kLlMax.ampere.on(1);
  return limit_of(kLlMax, s, nodes, v);
}

const ChannelGraph& graph_of(const System& s, Algorithm a) {
  return s.graphs[graph_of(a)];
}
int communicator_channels(const System& s, Algorithm a) {
  if (is_nvls(a)) return nvls_channels(s, s.version);
  int channels = std::min(64, 2 * graph_of(s, a).channels);
  if (s.compute_capability >= 90 && s.nodes > 1 &&
      s.graphs[GraphId::Ring].bw_intra > bytes_per_s(GBps{45}) && channels < 16)
    channels *= 2;
  if (s.version.has(Change::NvlsRaisesChannels) && !s.version.has(Change::NvlsHasItsOwnChannels) &&
      has_nvls(s, s.version))
    channels = std::max(channels, nvls_channels(s, s.version));
  return std::max(1, channels);
}

Table cost_table(const System& s, Operation op, Version v) {
  Table t;
  for (Algorithm a : kAll<Algorithm>)
    for (Protocol p : kAll<Protocol>)
      if (defined(op, a, p) && enabled(s, op, a, p, v))
        t[a][p] = {latency(s, op, a, p, v), bandwidth(s, op, a, p, v)};
  return t;
}

std::optional<Microseconds> estimate(const System& s, const Table& t, Operation op, Algorithm a,
                                     Protocol p, std::int64_t bytes) {
  Cell c = t[a][p];
  if (c.bandwidth <= GBps{}) return std::nullopt;
  // NVLSTree's list has one entry more, as its last.
  bool nvls_tree = a == Algorithm::NvlsTree && s.version.has(Change::NvlsTreeCorrection) &&
                   s.compute_capability >= 100 && s.cpu != Cpu::Arm && s.cpu != Cpu::Power;
  if ((a == Algorithm::Tree || nvls_tree) && op == Operation::AllReduce) {
    std::int64_t units = bytes >> 6;
    int i = units > 0 ? floor_log2(units) : -1;
    if (nvls_tree && i == 23) i = 22;
    if (i >= 0 && i < 23) c.bandwidth *= kTreeCorrection[p][i];
  }
  if (a == Algorithm::Ring && p == Protocol::Simple && op == Operation::AllReduce && s.nodes > 1 &&
      bytes / (static_cast<std::int64_t>(communicator_channels(s, a)) * s.ranks) >= 64)
    c.latency *= s.compute_capability < 80 ? 1.9 : 1.4;
  return c.latency + static_cast<double>(bytes) / c.bandwidth;
}

}  // namespace ddpsim::nccl
