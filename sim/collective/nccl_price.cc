// ring   base + steps' latencies (of each loop over NCCL's buffers, less what other slices hide) + size * load / rate
// tree   base + 2 (ppn - 1) intra + 2 log2(nodes) inter + fill + size * load / rate;  fill: a chunk's own time on every hop but the slowest
// NVLS   latency + size (1 + 1/n) / (rate * NVLS efficiency);  NVLSTree: + 2 log2(nodes) inter + one round of the pipeline
#include <algorithm>
#include <array>
#include <cmath>

#include "sim/collective/nccl_terms.h"
#include "sim/collective/price.h"

namespace ddpsim::collective {
namespace {

using nccl::Algorithm;
using nccl::Protocol;

constexpr double kPsPerUs = 1e6;
constexpr double kUsualWire = 1.0;  // microseconds

const TransportSection& section(const NcclGroup& g, const Profile& p, const NcclHop& hop) { return p.transports.at(g.fabric->transports()[hop.transport]); }

nccl::Hop class_of(const NcclGroup& g, const NcclHop& hop) {
  switch (topology::kind_of(g.fabric->transports()[hop.transport])) {
    case topology::LinkKind::Nvlink:
    case topology::LinkKind::C2c: return nccl::Hop::Nvlink;
    case topology::LinkKind::Pcie:
    case topology::LinkKind::Upi: return nccl::Hop::Pci;
    case topology::LinkKind::Net: return nccl::Hop::Net;
  }
  return nccl::Hop::Net;
}

// Bytes on the wire per byte of data, and what the protocol leaves unused: LL's flags, LL128's flags and its copies through shared memory (NCCL: 0.92).
double wire_factor(Protocol p) { return p == Protocol::Ll ? 2 : p == Protocol::Ll128 ? 1 / 0.92 : 1; }
// A tree's thread blocks reduce up and broadcast down side by side; the links inside a node get this share of what they take from a ring (NCCL: 0.92). A
// NIC is fed by proxies, and takes what it takes from a ring.
constexpr double kTreeShare = 0.92;

// One step over a hop, microseconds: NCCL's own number, more or less what the transport's latency differs from NCCL's for a ring; and the wire.
double step_us(const NcclGroup& g, const Profile& p, const NcclHop& hop, Algorithm a, Protocol protocol, std::int64_t message) {
  nccl::Version v = g.settings.version;
  nccl::Hop kind = class_of(g, hop);
  const TransportSection& t = section(g, p, hop);
  bool simple = protocol == Protocol::Simple;
  bool alone = kind == nccl::Hop::Net && g.system.nodes == g.system.ranks;  // no chain behind the network: the tree's number
  double own = nccl::step_latency_us(v, kind, alone ? Algorithm::Tree : a, protocol);
  Duration usual = simple || !t.ll_latency ? t.latency : *t.ll_latency;
  double extra = static_cast<double>(usual.ps) / kPsPerUs - nccl::step_latency_us(v, kind, Algorithm::Ring, simple || !t.ll_latency ? Protocol::Simple : Protocol::Ll);
  // NCCL's numbers were taken over real links: a network of one switch (two links of 0.5 us) is in them, and so is what is inside a host.
  double wire = std::max(0.0, static_cast<double>(hop.wire.ps) / kPsPerUs - kUsualWire);
  double out = std::max(0.0, own + extra) * t.step_factor + wire;
  // Beyond the eager limit the receiver is asked first: there and back once more.
  if (hop.eager.count > 0 && static_cast<double>(message) * wire_factor(protocol) >= static_cast<double>(hop.eager.count)) out += static_cast<double>(t.rendezvous.ps) / kPsPerUs;
  return out;
}

struct Bottleneck {
  double per_byte = 0;  // microseconds per byte of the operation
  topology::LinkId link = 0;
};

// `inside`, `between`: bytes that a link carries per byte of its load, in a node and between nodes.
Bottleneck bottleneck(const NcclGroup& g, const Profile& p, Level level, const std::vector<LinkLoad>& loads, double inside, double between) {
  Bottleneck worst;
  for (const LinkLoad& l : loads) {
    const topology::Link& link = g.fabric->links()[l.link];
    const TransportSection& t = p.transports.at(g.fabric->transports()[link.transport]);
    double rate = link.bandwidth.bytes_per_ps() * at(t.efficiency, level) * kPsPerUs;
    // Without GPUDirect a thread copies every byte between the network's buffers and the GPU's, both ways.
    if (link.staging.bits_per_s > 0) rate = std::min(rate, link.staging.bytes_per_ps() / 2 * kPsPerUs);
    double each = l.per_byte * (link.kind == topology::LinkKind::Net ? between : inside) / rate;
    if (each > worst.per_byte) worst = {each, l.link};
  }
  return worst;
}

// Bytes per microsecond of the slowest link that a hop crosses, alone.
double hop_rate(const NcclGroup& g, const Profile& p, Level level, const NcclHop& hop) {
  double rate = hop.rate * at(section(g, p, hop).efficiency, level);
  if (hop.staging > 0) rate = std::min(rate, hop.staging);
  return rate / 1e6;
}

// GB/s that one thread block moves at most: NCCL's limit of a tree's channel on one node (perChMaxTree).
double block_rate(const NcclGroup& g) {
  nccl::System one = g.system;
  one.nodes = 1;
  return nccl::channel_limit(one, g.settings.version, Algorithm::Tree, Protocol::Simple);
}

class Pricer {
 public:
  Pricer(const NcclGroup& g, const Profile& p, Level level, Operation op, const nccl::Choice& choice, Bytes size)
      : g_(g), p_(p), level_(level), op_(op), c_(choice), size_(static_cast<double>(size.count)), wire_(wire_factor(choice.protocol)) {}

  NcclPrice price() {
    double n = g_.ranks();
    base_ = nccl::base_latency_us(g_.settings.version, c_.algorithm, c_.protocol);
    switch (c_.algorithm) {
      case Algorithm::Ring: ring(n); break;
      case Algorithm::Tree: tree(); break;
      case Algorithm::Nvls: nvls(n); break;
      case Algorithm::NvlsTree: nvls_tree(); break;
      case Algorithm::CollnetDirect:
      case Algorithm::CollnetChain: collnet(); break;
      case Algorithm::Pat: pat(n); break;
    }
    NcclPrice out;
    double factor = op_ == Operation::AllReduce ? 2 * (n - 1) / n : op_ == Operation::AllGather || op_ == Operation::ReduceScatter ? (n - 1) / n : 1;
    out.limited_by = limited_by_;
    set_times(out, base_, steps_, fill_, transfer_, size_ * factor);
    out.limiting_transport = transport_;
    out.loads = loads_;
    out.per_byte = per_byte_;
    const NcclHop& slow = g_.inter.exists && (between_ >= inside_ || !g_.intra.exists) ? g_.inter : g_.intra;
    out.step_transport = g_.fabric->transports()[slow.transport];
    return out;
  }

 private:
  double step(const NcclHop& hop, Algorithm a, double message) const { return step_us(g_, p_, hop, a, c_.protocol, static_cast<std::int64_t>(message)); }
  void limit(double us, const std::string& what) {
    if (us <= transfer_) return;
    transfer_ = us;
    limited_by_ = what;
    transport_.clear();
  }
  void limit_by_link(const Bottleneck& b) {
    double us = b.per_byte * size_;
    if (us <= transfer_) return;
    limit(us, g_.fabric->link_name(b.link));
    transport_ = g_.fabric->transports()[g_.fabric->links()[b.link].transport];
  }
  // `which`: of NcclGroup::every; its folded list is `loads`. Where there are several nodes, the links between them say what others see.
  void links(int which, const std::vector<LinkLoad>& loads, double inside, double between) {
    loads_ = which;
    per_byte_ = g_.system.nodes > 1 ? between : inside;
    limit_by_link(bottleneck(g_, p_, level_, loads, inside, between));
  }
  void add_steps(double inside, double between) {
    inside_ = inside;
    between_ = between;
    steps_ = inside + between;
  }

  // A chunk is handed on in slices: while one is under way the next is made, so that a step takes max(chunk / rate, slice / rate + latency). Between nodes
  // that is so from the beginning (proxies and NICs work beside the thread blocks), inside a node from the second loop over NCCL's buffers on.
  void ring(double n) {
    double nodes = g_.system.nodes;
    bool reduce = op_ == Operation::AllReduce;
    bool chain = op_ == Operation::Broadcast || op_ == Operation::Reduce;
    bool simple = c_.protocol == Protocol::Simple;
    double steps = reduce ? 2 * (n - 1) : n - 1;
    double between = nodes == 1 ? 0 : reduce ? 2 * (nodes - 1) : nodes - 1;
    double each = chain ? size_ / c_.channels : size_ / n / c_.channels;
    double chunk = std::min(static_cast<double>(c_.chunk), each);
    // Two slices a chunk, but none below a thirty-second of the largest (src/device/prims_simple.h).
    double most = static_cast<double>(c_.slice);
    double message = simple ? std::min(chunk, std::clamp(chunk / 2, most / 32, most)) : chunk;
    double intra = g_.intra.exists ? step(g_.intra, Algorithm::Ring, message) : 0;
    double inter = g_.inter.exists ? step(g_.inter, Algorithm::Ring, message) : 0;
    double share = reduce ? 1 : chain ? n / (2 * (n - 1)) : 0.5;  // of the all-reduce's loads
    links(0, g_.ring, share * wire_, share * wire_);
    double moved = size_ * (reduce ? 2 * (n - 1) / n : chain ? 1 : (n - 1) / n);
    if (chain) fill_ = (n - 2) * chunk * wire_ / std::min(block_rate(g_) * 1e3, hop_rate(g_, p_, level_, g_.inter.exists ? g_.inter : g_.intra));
    protocol_limits(moved);
    bool sliced = simple && !chain;
    double hidden = sliced ? (chunk - message) * transfer_ / (each * steps) : 0;
    double more = sliced ? std::ceil(each / chunk) - 1 : 0;  // loops
    double seen_intra = std::max(0.0, intra - hidden);
    double seen_inter = std::max(0.0, inter - hidden);
    double last = between > 0 ? inter - seen_inter : intra - seen_intra;  // nothing hides the last step of a loop
    double inside = (steps - between) * (intra + more * seen_intra);
    double outside = (1 + more) * between * seen_inter;
    if (between > 0) outside += (1 + more) * last;
    else inside += more * last;
    add_steps(inside, outside);
  }

  // NCCL's limit (perChMaxRingLL128, perChMaxTreeLL128) is of a channel of its search, which the communicator runs as several (src/graph/connect.cc).
  double ll128_block_rate() const {
    double channels = g_.system.graphs.by_algorithm[c_.algorithm == Algorithm::Tree ? 1 : 0].channels;
    return nccl::channel_limit(g_.system, g_.settings.version, c_.algorithm, Protocol::Ll128) * channels / nccl::communicator_channels(g_.system, c_.algorithm);
  }
  // What the thread blocks or the protocol move at most. `moved`: bytes that each rank sends.
  void protocol_limits(double moved) {
    nccl::Version v = g_.settings.version;
    if (c_.protocol == Protocol::Ll) limit(moved / (nccl::ll_bus_limit(g_.system, v) * 1e3), "LL's flags");
    double block = c_.protocol == Protocol::Ll128 ? ll128_block_rate() : block_rate(g_);
    if (c_.protocol != Protocol::Ll && block > 0) limit(moved / (c_.channels * block * 1e3), "thread blocks");
  }

  void tree() {
    double nodes = g_.system.nodes;
    double ppn = g_.system.per_node();
    double levels = nccl::floor_log2(g_.system.nodes);
    double chunk = std::min(static_cast<double>(c_.chunk), size_ / c_.channels);
    double intra = g_.intra.exists ? step(g_.intra, Algorithm::Tree, chunk) : 0;
    double inter = g_.inter.exists ? step(g_.inter, Algorithm::Tree, chunk) : 0;
    add_steps(2 * (ppn - 1) * intra, 2 * levels * inter);
    links(1, g_.tree, std::max(wire_, 1 / kTreeShare), wire_);
    protocol_limits(2 * size_);
    // The buffer of a connection is sent and given back in a round trip at least.
    if (c_.protocol == Protocol::Simple) limit(size_ / c_.channels / static_cast<double>(nccl::kStepsOfBuffer * c_.chunk) * 2 * std::max(intra, inter), "buffers");
    // A chunk is handed on whole by Simple; LL and LL128 hand on line by line inside a node, and whole messages to the network.
    double in = 0;
    double out = 0;
    if (g_.intra.exists && c_.protocol == Protocol::Simple) in = chunk / std::min(block_rate(g_) * 1e3, hop_rate(g_, p_, level_, g_.intra));
    if (g_.inter.exists) {
      // Two children send to one NIC, or get from one; the channels of a NIC are inner nodes of different trees, and seldom busy together.
      double share = std::max(1.0, c_.channels / (2.0 * nics()));
      out = chunk * wire_ * (nodes > 2 ? 1.5 : 1.0) * share / hop_rate(g_, p_, level_, g_.inter);
    }
    fill_ = std::max(0.0, 2 * (ppn - 1) * in + 2 * levels * out - std::max(in, out));
  }
  // NICs of a node that take part.
  double nics() const {
    const nccl::ChannelGraph& g = g_.system.graphs.by_algorithm[1];
    std::vector<int> used;
    for (const auto& n : g.nics) used.push_back(n[0]);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    return std::max<double>(1, static_cast<double>(used.size()));
  }

  double nvls_factor() const { return 1 / nccl::nvls_efficiency(g_.settings.version, g_.system.compute_capability); }

  void nvls(double n) {
    add_steps(step(g_.intra, Algorithm::Nvls, 0), 0);
    // All-gather: a head gives its part, all take the whole; reduce-scatter the other way round.
    double share = op_ == Operation::AllReduce ? 1 : 1 / (1 + 1 / n);
    links(2, g_.nvls, nvls_factor() * share, 1);
    // Of what a GPU reads, sums and gives as a head, and takes: each thread block its part.
    limit(size_ * (1 + 1 / n) * share / (c_.channels * block_rate(g_) * 1e3), "thread blocks");
    fill_ = copies(std::min(size_, static_cast<double>(c_.chunk) * n * c_.channels));
  }

  // Buffers that are not registered are copied to the switch's window and back, a round at each end of the pipeline.
  double copies(double round) const { return 2 * round / (c_.channels * block_rate(g_) * 1e3); }

  void nvls_tree() {
    double levels = nccl::floor_log2(g_.system.nodes);
    double heads = g_.system.per_node();
    double round = std::min(size_, static_cast<double>(c_.chunk) * heads * c_.channels);  // bytes that the pipeline takes in at once
    double inter = step(g_.inter, Algorithm::NvlsTree, static_cast<double>(c_.chunk));
    add_steps(step(g_.intra, Algorithm::NvlsTree, 0), 2 * levels * inter);
    Bottleneck inside = bottleneck(g_, p_, level_, g_.nvls, nvls_factor(), 1);
    Bottleneck all = bottleneck(g_, p_, level_, g_.nvls_tree, 1, 1);
    loads_ = 3;
    per_byte_ = 1;
    if (inside.per_byte >= all.per_byte) all = inside;
    limit_by_link(all);
    limit(size_ * (1 + 1 / heads) / (c_.channels * block_rate(g_) * 1e3), "thread blocks");
    // A round is reduced inside, goes up, comes down, is spread inside; only its slowest part is hidden behind the next round.
    double up = round / heads / hop_rate(g_, p_, level_, g_.inter);
    double in = round * inside.per_byte;
    fill_ = std::max(0.0, in + 2 * levels * up - round * all.per_byte) + copies(round);
  }

  void collnet() {
    double ppn = g_.system.per_node();
    bool direct = c_.algorithm == Algorithm::CollnetDirect;
    double intra = g_.intra.exists ? step(g_.intra, c_.algorithm, 0) : 0;
    double inter = g_.inter.exists ? step(g_.inter, c_.algorithm, 0) : 0;
    add_steps(direct ? 2 * (std::min(1.0, ppn - 1) * intra + (ppn - 1) * 0.4) : 2 * (ppn - 1) * intra, inter);
    // The switches add: each host sends its sum once and takes the result once.
    limit(size_ / nics() / hop_rate(g_, p_, level_, g_.inter), "NICs");
    if (g_.intra.exists) limit(size_ * (direct ? 2 * (ppn - 1) / ppn : 2) / hop_rate(g_, p_, level_, g_.intra), "links inside the node");
  }

  void pat(double n) {
    double levels = nccl::floor_log2(g_.system.nodes);
    double inter = step(g_.inter, Algorithm::Pat, static_cast<double>(c_.chunk));
    add_steps(0, levels * inter / 3.5 + 2.8 * n);
    links(0, g_.ring, 0.5, 0.5);
  }

  const NcclGroup& g_;
  const Profile& p_;
  Level level_;
  Operation op_;
  const nccl::Choice& c_;
  double size_;
  double wire_;
  double base_ = 0;
  double steps_ = 0;
  double fill_ = 0;
  double transfer_ = 0;
  double inside_ = 0;
  double between_ = 0;
  std::string limited_by_;
  std::string transport_;
  int loads_ = -1;
  double per_byte_ = 0;
};

}  // namespace

NcclPrice nccl_price(const NcclGroup& g, const Profile& p, Level level, Operation op, const nccl::Choice& choice, Bytes size) {
  return Pricer(g, p, level, op, choice, size).price();
}

double nccl_step_us(const NcclGroup& g, const Profile& p, const NcclHop& hop, Protocol protocol, std::int64_t message) {
  return step_us(g, p, hop, nccl::Algorithm::Ring, protocol, message);
}
void set_times(NcclPrice& price, double base, double steps, double fill, double transfer, double bus_bytes) {
  auto us = [](double t) { return Duration{static_cast<std::int64_t>(t * kPsPerUs + 0.5)}; };
  price.base = us(base);
  price.steps = us(steps);
  price.fill = us(fill);
  price.transfer = us(transfer);
  price.total = price.base + price.steps + price.fill + price.transfer;
  if (base + steps + fill > transfer) price.limited_by = "latency";
  price.bus_bytes_per_s = bus_bytes / (static_cast<double>(price.total.ps) / 1e12);
}
double nccl_wire_factor(Protocol p) { return wire_factor(p); }
double nccl_block_rate(const NcclGroup& g) { return block_rate(g); }
NcclBottleneck nccl_bottleneck(const NcclGroup& g, const Profile& p, Level level, const std::vector<LinkLoad>& loads) {
  Bottleneck b = bottleneck(g, p, level, loads, 1, 1);
  return {b.per_byte, b.link};
}

Duration nccl_tests_time(const Profile& p, const NcclPrice& price, int gpus_per_process) { return std::max(price.total, p.host.launch * gpus_per_process); }

}  // namespace ddpsim::collective
