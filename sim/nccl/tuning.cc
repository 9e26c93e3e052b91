// time = latency * count + bytes / bandwidth, with
//   ring:  bandwidth = bus * n / steps,  bus = channels * speed * protocol;   latency = base +
//          (steps - k) * intra + k * inter
//   tree:  bandwidth = bus / 2,          bus = min(.92 channels * speed, channels * limit) *
//          protocol
// and so on, each line of the tables below by version.
#include "sim/nccl/tuning.h"

#include <algorithm>
#include <string_view>

#include "sim/units/number.h"

namespace ddpsim::nccl {
namespace {

using Row = std::array<double, 3>;
using ByAlgorithm = std::array<Row, kAlgorithms>;  // LL, LL128, Simple

constexpr ByAlgorithm kBase{
    {{6.8, 14, 8.4}, {6.6, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}}};
constexpr std::array<ByAlgorithm, 3> kStep{{
    {{{.6, 1.25, 4.0},
      {.6, 1.9, 3.4},
      {0, 0, 3.7},
      {0, 0, 2.8},
      {0, 0, 25},
      {0, 0, 25},
      {0, 0, 4}}},
    {{{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 0}, {0, 0, 0}, {0, 0, 4}}},
    {{{5.0, 8.5, 14},
      {2.7, 4.0, 14},
      {0, 0, 31},
      {0, 0, 30},
      {0, 0, 18},
      {0, 0, 20.9},
      {0, 0, 14}}},
}};

// Columns: 1, 2, 4 and more nodes (3 counts as 4). Rows: Volta, Ampere, Hopper, Blackwell.
constexpr std::array<Row, 4> kLlMax{
    {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr std::array<Row, 4> kRingLl128{
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr std::array<Row, 4> kTreeLl128{
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr std::array<Row, 4> kTree{
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr std::array<Row, 4> kNvlsTree{
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.8}}};

constexpr std::array<std::array<double, 23>, 3> kTreeCorrection{{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};

std::size_t index_of(Algorithm a) {
  return static_cast<std::size_t>(a);
}
std::size_t index_of(Protocol p) {
  return static_cast<std::size_t>(p);
}

std::size_t generation(int cc) {
  return cc >= 100 ? 3 : cc >= 90 ? 2 : cc >= 80 ? 1 : 0;
}
// 2.25 brought Blackwell's row; until 2.27 it was Hopper's twice.
double by_generation(const std::array<Row, 4>& table, const System& s, Version v,
                     std::size_t column) {
  std::size_t g = generation(s.compute_capability);
  if (g < 3) return table[g][column];
  if (v.minor < 25) return table[2][column];
  return v.minor < 28 ? 2 * table[2][column] : table[3][column];
}
std::size_t column_of(const System& s) {
  return s.nodes <= 2 ? static_cast<std::size_t>(s.nodes - 1) : 2;
}

const ChannelGraph& graph_of(const System& s, Algorithm a) {
  switch (a) {
    case Algorithm::Tree:
      return s.graphs.by_algorithm[1];
    case Algorithm::CollnetChain:
      return s.graphs.by_algorithm[2];
    case Algorithm::Nvls:
    case Algorithm::NvlsTree:
      return s.graphs.by_algorithm[3];
    case Algorithm::CollnetDirect:
      return s.graphs.by_algorithm[4];
    default:
      return s.graphs.by_algorithm[0];
  }
}

bool defined(Operation op, Algorithm a, Protocol p) {
  if (a >= Algorithm::Nvls && p != Protocol::Simple) return false;
  if ((a == Algorithm::CollnetDirect || a == Algorithm::CollnetChain) && p != Protocol::Simple)
    return false;
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
      return false;
  }
  return false;
}

bool enabled(const System& s, Operation op, Algorithm a, Protocol p, Version v) {
  const ChannelGraph& g = graph_of(s, a);
  if (g.channels == 0 || s.ranks < 2) return false;
  int cc = s.compute_capability;
  if (p == Protocol::Ll && !s.ll && s.nodes > 1) return false;
  if (p == Protocol::Ll128) {
    PathType far = cc >= 90 ? PathType::Pxn : PathType::Pxb;
    if (s.nodes > 1 && (!s.ll128 || g.type_inter > far)) return false;
    if (g.type_intra > PathType::Nvb || !s.one_capability || cc < 70) return false;
    // Before 2.27 only on GPUs that it had been tried on.
    if (v.minor < 27 && cc != 70 && cc != 80 && cc != 90 &&
        (v.minor < 25 || (cc != 100 && cc != 120)))
      return false;
  }
  switch (a) {
    case Algorithm::CollnetDirect:
      if (op != Operation::AllReduce && v.minor < 20) return false;
      return s.collnet && s.nvswitch && s.per_node() <= 8 &&
             (op == Operation::AllReduce || s.nodes > 1);
    case Algorithm::CollnetChain:
      return s.collnet && s.per_node() <= 8;
    case Algorithm::Nvls:
      if (op != Operation::AllReduce && s.per_node() > 32 && v.minor >= 25)
        return false;  // more parts than a channel has heads
      return s.nvls && s.nvswitch && cc >= 90 && g.channels >= 2 && s.per_node() >= 2 &&
             (s.nodes == 1 || s.collnet);
    case Algorithm::NvlsTree:
      return s.nvls && s.nvswitch && cc >= 90 && g.channels >= 2 && s.nodes > 1 &&
             s.per_node() >= 2;
    case Algorithm::Pat:
      return v.minor >= 23 && s.nodes == s.ranks && cc >= 60;
    default:
      return true;
  }
}

double bandwidth(const System& s, Operation op, Algorithm a, Protocol p, Version v) {
  const ChannelGraph& g = graph_of(s, a);
  std::size_t column = column_of(s);
  double n = s.ranks;
  double ppn = s.per_node();
  double channels = g.channels;
  double intra = g.bw_intra / 1e9;
  double inter = g.bw_inter / 1e9;
  bool collnet = a == Algorithm::CollnetDirect || a == Algorithm::CollnetChain;
  double speed = s.nodes <= 2 || collnet ? intra : inter;
  bool gather = op == Operation::ReduceScatter || op == Operation::AllGather;
  bool nvls = a == Algorithm::Nvls || a == Algorithm::NvlsTree;
  if (nvls && v.minor < 28) {
    if (gather && v.minor == 27)
      speed = std::min(intra * (ppn - 1) / ppn, inter * 0.9);
    else
      speed = std::min(intra, a == Algorithm::NvlsTree && s.nodes > 2 ? inter / 2 : inter);
    return channels * speed * (gather && v.minor >= 23 ? 1 : 5.0 / 6);
  }
  if (nvls) {
    double in = intra * nvls_efficiency(s.compute_capability) * (channels - 1) / channels *
                (gather ? (ppn - 1) / ppn : 2);
    double between = inter * (a == Algorithm::NvlsTree && s.nodes <= 2 ? 2 : 1);
    speed = std::min(in, between);
    if (a == Algorithm::NvlsTree) speed = std::min(speed, channel_limit(s, v, a, p));
  }
  double bus = channels * speed;
  if (a == Algorithm::Ring && p == Protocol::Ll) {
    double lines = v.minor >= 21                                                          ? 0.5
                   : s.nodes > 1 || op == Operation::AllReduce || op == Operation::Reduce ? 0.25
                                                                                          : 1.0 / 3;
    bus = std::min(ll_bus_limit(s, v), bus * lines);
  }
  if (a == Algorithm::Ring && p == Protocol::Ll128)
    bus = std::min(bus * (v.minor < 23 && ppn < 2 ? 0.7 : 0.92),
                   channels * channel_limit(s, v, a, p));
  if (a == Algorithm::Tree) {
    bus = std::min(bus * 0.92, channels * by_generation(kTree, s, v, column));
    if (p == Protocol::Ll) bus = std::min(bus / 3.8, ll_bus_limit(s, v));
    if (p == Protocol::Ll128)
      bus = std::min(bus * (s.nodes == 1 ? 7.0 / 9 : 120.0 / 128),
                     channels * channel_limit(s, v, a, p));
    if (g.pattern == kPlainTree) bus *= 0.85;
  }
  if (a == Algorithm::Pat) bus *= v.minor >= 24 ? 0.75 : 0.85;
  if (a == Algorithm::CollnetDirect) {
    if (op == Operation::AllReduce) {
      double factor = ppn / channels;
      factor -= (factor - 1) / 2;
      bus /= factor;
      if (s.compute_capability >= 90) bus *= 0.85;
    } else if (v.minor >= 27) {
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
  return a == Algorithm::Ring || nvls ? bus * n / steps : bus * 0.5;
}

double latency(const System& s, Operation op, Algorithm a, Protocol p, Version v) {
  const ChannelGraph& g = graph_of(s, a);
  double n = s.ranks;
  double nodes = s.nodes;
  double ppn = s.per_node();
  bool simple = p == Protocol::Simple;
  Hop near = g.type_intra <= PathType::Nvl ? Hop::Nvlink : Hop::Pci;
  double intra = step_latency_us(v, near, a, p);
  if (s.cpu == Cpu::Power && near == Hop::Pci && a == Algorithm::Tree && simple)
    intra = step_latency_us(v, near, Algorithm::Ring, p);
  bool alone = s.ranks == s.nodes && v.minor >= 23;
  double inter = step_latency_us(v, Hop::Net, alone ? Algorithm::Tree : a, p) +
                 static_cast<double>(g.latency_inter.ps) / 1e6 * (simple ? 2 : 1);
  double steps = op == Operation::AllReduce                                     ? 2 * (n - 1)
                 : op == Operation::ReduceScatter || op == Operation::AllGather ? n - 1
                                                                                : n;
  double levels = floor_log2(s.nodes);
  double out = base_latency_us(v, a, p);
  switch (a) {
    case Algorithm::Ring: {
      if (op == Operation::Broadcast || op == Operation::Reduce) {
        double each = s.nodes > 1 ? step_latency_us(v, Hop::Net, a, p) : intra;
        if (g.same_channels) return out + each;
        if (simple) each = step_latency_us(v, s.nodes > 1 ? Hop::Net : near, Algorithm::Tree, p);
        return out + steps * each;
      }
      double overhead = s.nodes == 1 ? 0 : (s.cpu == Cpu::Amd ? 2.0 : 1.0) * (simple ? 3 : 1);
      double between = s.nodes == 1                 ? 0
                       : op == Operation::AllReduce ? (v.minor >= 23 ? 2 * (nodes - 1) : 2 * nodes)
                                                    : nodes - 1;
      return out + (steps - between) * std::max(intra, overhead) + between * inter;
    }
    case Algorithm::Tree:
      return out + 2 * ((ppn - 1) * intra + levels * inter);
    case Algorithm::CollnetDirect:
      return out + 2 * (std::min(1.0, ppn - 1) * intra + (ppn - 1) * (v.minor >= 19 ? 0.4 : 0.5)) +
             inter;
    case Algorithm::CollnetChain:
      return out + 2 * (ppn - 1) * intra + inter;
    case Algorithm::Nvls:
      return intra + (s.nodes > 1 ? inter : 0);
    case Algorithm::NvlsTree:
      return out + intra + 2 * levels * inter;
    case Algorithm::Pat:
      return out + levels * inter / 3.5 + 2.8 * n;
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

const char* name_of(Algorithm a) {
  constexpr std::array<const char*, kAlgorithms> names{
      "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
  return names[index_of(a)];
}
const char* name_of(Protocol p) {
  constexpr std::array<const char*, kProtocols> names{"ll", "ll128", "simple"};
  return names[index_of(p)];
}

std::optional<Version> parse_version(const std::string& text) {
  std::string_view rest = text;
  if (!rest.starts_with("2.")) return std::nullopt;
  rest.remove_prefix(2);
  auto minor = leading_count(rest);
  if (!minor || minor->value > INT32_MAX) return std::nullopt;
  const Version version{static_cast<int>(minor->value)};
  rest.remove_prefix(minor->length);
  if (rest.empty()) return version;
  if (!rest.starts_with('.')) return std::nullopt;
  rest.remove_prefix(1);
  auto patch = leading_count(rest);
  if (!patch) return std::nullopt;
  rest.remove_prefix(patch->length);
  // "+cuda13.0" and the like may follow.
  if (!rest.empty() && rest.front() != '-' && rest.front() != '+') return std::nullopt;
  return version;
}

double step_latency_us(Version v, Hop hop, Algorithm a, Protocol p) {
  if (a == Algorithm::Tree && p == Protocol::Simple && v.minor < 23) return 28;
  if (a == Algorithm::NvlsTree && hop == Hop::Net && v.minor < 28) return 14;
  if ((a == Algorithm::Nvls || a == Algorithm::NvlsTree) && hop == Hop::Nvlink && v.minor < 21)
    return 23;
  return kStep[static_cast<std::size_t>(hop)][index_of(a)][index_of(p)];
}
double base_latency_us(Version v, Algorithm a, Protocol p) {
  return a == Algorithm::Tree && p == Protocol::Simple && v.minor < 23
             ? 0
             : kBase[index_of(a)][index_of(p)];
}

double nvls_efficiency(int cc) {
  return cc >= 100 ? 0.74 : 0.85;
}

double channel_limit(const System& s, Version v, Algorithm a, Protocol p) {
  std::size_t column = column_of(s);
  if (a == Algorithm::Tree && p != Protocol::Ll128) return by_generation(kTree, s, v, column);
  if (a == Algorithm::Tree) return by_generation(kTreeLl128, s, v, column);
  if (a == Algorithm::Ring && p == Protocol::Ll128) return by_generation(kRingLl128, s, v, column);
  if (a == Algorithm::NvlsTree)
    return v.minor < 28 ? by_generation(kTree, s, v, column)
                        : by_generation(kNvlsTree, s, v, column);
  return 0;
}

double ll_bus_limit(const System& s, Version v) {
  std::size_t column = column_of(s);
  if (s.nodes > 1) return kLlMax[s.cpu == Cpu::Amd || s.cpu == Cpu::Mixed ? 1 : 0][column];
  // 2.21 raised Hopper's; before, it was Ampere's.
  if (s.compute_capability >= 90 && v.minor < 21) return kLlMax[1][column];
  return by_generation(kLlMax, s, v, column);
}

int communicator_channels(const System& s, Algorithm a) {
  const ChannelGraph& g = graph_of(s, a);
  if (a == Algorithm::Nvls || a == Algorithm::NvlsTree)
    return s.compute_capability >= 100 ? (s.nodes == 1 ? 24 : 32) : 16;
  int channels = 2 * g.channels;
  const ChannelGraph& ring = s.graphs.by_algorithm[0];
  if (s.compute_capability >= 90 && s.nodes > 1 && ring.bw_intra > 45e9 && channels < 16)
    channels *= 2;
  return std::max(1, channels);
}

Table cost_table(const System& s, Operation op, Version v) {
  v.minor = std::clamp(v.minor, 19, 28);
  Table t{};
  for (int a = 0; a < kAlgorithms; ++a)
    for (int p = 0; p < kProtocols; ++p) {
      auto algorithm = static_cast<Algorithm>(a);
      auto protocol = static_cast<Protocol>(p);
      if (!defined(op, algorithm, protocol) || !enabled(s, op, algorithm, protocol, v)) continue;
      t[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)] = {
          latency(s, op, algorithm, protocol, v), bandwidth(s, op, algorithm, protocol, v)};
    }
  return t;
}

std::optional<double> estimate_us(const System& s, const Table& t, Operation op, Algorithm a,
                                  Protocol p, std::int64_t bytes) {
  Cell c = t[index_of(a)][index_of(p)];
  if (c.bandwidth <= 0) return std::nullopt;
  if (a == Algorithm::Tree && op == Operation::AllReduce) {
    std::int64_t units = bytes >> 6;
    int i = units > 0 ? floor_log2(units) : -1;
    if (i >= 0 && i < 23) c.bandwidth *= kTreeCorrection[index_of(p)][static_cast<std::size_t>(i)];
  }
  if (a == Algorithm::Ring && p == Protocol::Simple && op == Operation::AllReduce && s.nodes > 1 &&
      bytes / (static_cast<std::int64_t>(communicator_channels(s, a)) * s.ranks) >= 64)
    c.latency_us *= s.compute_capability < 80 ? 1.9 : 1.4;
  return c.latency_us + static_cast<double>(bytes) / (1000 * c.bandwidth);
}

}  // namespace ddpsim::nccl
