// ring   base + steps' latencies (of each loop over NCCL's buffers, less what other slices hide) +
//        size * load / rate
// others  base + the pipeline's time (pipe_time.cc): pieces through stages that share links
//         and thread blocks
#include <algorithm>
#include <array>
#include <cmath>

#include "sim/nccl/fabric/terms.h"

namespace ddpsim::nccl {
namespace {

constexpr double kPsPerUs = 1e6;
constexpr double kUsualWire = 1.0;  // microseconds
constexpr const char* kSocketThreads = "threads of sockets";

const TransportSection& section(const Group& g, const Profile& p, const SlowestHop& hop) {
  return p.transports.at(g.fabric->transports()[hop.transport]);
}

HopKind class_of(const Group& g, const SlowestHop& hop) {
  switch (topology::kind_of(g.fabric->transports()[hop.transport])) {
    case topology::LinkKind::Nvlink:
    case topology::LinkKind::C2c:
      return HopKind::Nvlink;
    case topology::LinkKind::Pcie:
    case topology::LinkKind::Upi:
      return HopKind::Pci;
    case topology::LinkKind::Net:
      return HopKind::Net;
  }
  return HopKind::Net;
}

// A tree's thread blocks reduce up and broadcast down side by side; the links inside a node get
// this share of what they take from a ring (NCCL: 0.92). A NIC is fed by proxies, and takes what it
// takes from a ring.
constexpr double kTreeShare = 0.92;

// Of a PCIe link's rate, through the host's memory.
const Range& memory_share(const TransportSection& t) {
  return t.host_memory ? *t.host_memory : t.efficiency;
}

// Bytes per microsecond of the slowest link that a hop crosses, alone.
double hop_rate(const Group& g, const Profile& p, Level level, const SlowestHop& hop) {
  const TransportSection& t = section(g, p, hop);
  double rate = hop.rate * at(hop.by_memory ? memory_share(t) : t.efficiency, level);
  if (hop.staging > 0) rate = std::min(rate, hop.staging / g.proxy_copies);
  return rate / 1e6;
}

}  // namespace

namespace {

double wire_rate(const Group& g, const Profile& p, Level level, topology::LinkId id) {
  const topology::Link& link = g.fabric->links()[id];
  return link.bandwidth.bytes_per_ps() *
         at(p.transports.at(g.fabric->transports()[link.transport]).efficiency, level);
}

}  // namespace

double link_rate(const Group& g, const Profile& p, Level level, topology::LinkId id) {
  const topology::Link& link = g.fabric->links()[id];
  const double rate = wire_rate(g, p, level, id);
  return link.staging.bits_per_s > 0 ? std::min(rate, link.staging.bytes_per_ps() / g.proxy_copies)
                                     : rate;
}
double link_rate_us(const Group& g, const Profile& p, Level level, topology::LinkId id,
                    bool copied) {
  double rate = copied ? link_rate(g, p, level, id) : wire_rate(g, p, level, id);
  if (!g.to_memory.empty() && g.to_memory[id]) {
    const topology::Link& link = g.fabric->links()[id];
    const TransportSection& t = p.transports.at(g.fabric->transports()[link.transport]);
    rate = std::min(rate, link.bandwidth.bytes_per_ps() * at(memory_share(t), level));
  }
  return rate * kPsPerUs;
}

int socket_threads(const Group& g) {
  const Settings& set = g.settings;
  if (set.socket_threads) return *set.socket_threads;
  switch (g.fabric->cluster().nccl.nic_vendor) {
    case NicVendor::Aws:
      return 2;
    case NicVendor::Google:
      return set.version.has(Change::SocketsByProxyThread) ? 4 : 1;
    case NicVendor::Other:
      break;
  }
  return set.version.has(Change::SocketsByProxyThread) ? 0 : 1;
}

bool has_sockets(const Group& g) {
  if (!g.inter.exists) return false;
  const std::string& name = g.fabric->transports()[g.inter.transport];
  return name != "ib" && name != "libfabric";
}

double socket_load(const Group& g, Pipeline p, const Stage& s) {
  return socket_threads(g) == 0 || p == Pipeline::Pat ? s.share : 1;
}

double socket_rate_us(const Group& g, const Profile& p, Level level, int connections) {
  if (!g.inter.exists) return 0;
  const TransportSection& t = section(g, p, g.inter);
  if (!t.thread_bytes_per_s) return 0;
  int threads = std::max(1, socket_threads(g) * connections);
  return at(*t.thread_bytes_per_s, level) * threads / 1e6;
}

// One step over a hop, microseconds: NCCL's own number, more or less what the transport's latency
// differs from NCCL's for a ring; and the wire.
double step_us(const Group& g, const Profile& p, const SlowestHop& hop, Algorithm a,
               Protocol protocol, std::int64_t message) {
  HopKind kind = class_of(g, hop);
  const TransportSection& t = section(g, p, hop);
  bool simple = protocol == Protocol::Simple;
  bool alone = kind == HopKind::Net &&
               g.system.nodes == g.system.ranks;  // no chain behind the network: the tree's number
  // NVLSTree's number over a network was measured anew for 2.28, and is 6.9 us more than before:
  // over a network that is as much slower than the one of the other numbers. Here that is the
  // network's latency, of all algorithms alike.
  Version measured = kind == HopKind::Net && a == Algorithm::NvlsTree ? Version(27) : kMeasured;
  double own = step_latency_us(measured, kind, alone ? Algorithm::Tree : a, protocol);
  Duration usual = simple || !t.ll_latency ? t.latency : *t.ll_latency;
  double extra = static_cast<double>(usual.ps) / kPsPerUs -
                 step_latency_us(kMeasured, kind, Algorithm::Ring,
                                 simple || !t.ll_latency ? Protocol::Simple : Protocol::Ll);
  // NCCL's numbers were taken over real links: a network of one switch (two links of 0.5 us) is in
  // them, and so is what is inside a host.
  double wire = std::max(0.0, static_cast<double>(hop.wire.ps) / kPsPerUs - kUsualWire);
  double out = std::max(0.0, own + extra) * t.step_factor + wire;
  // Beyond the eager limit the receiver is asked first: there and back once more.
  if (hop.eager.count > 0 &&
      static_cast<double>(message) * wire_factor(protocol) >= static_cast<double>(hop.eager.count))
    out += static_cast<double>(t.rendezvous.ps) / kPsPerUs;
  return out;
}

double block_rate(const Group& g) {
  return channel_limit(g.system, 1, g.settings.version, Algorithm::Tree, Protocol::Simple);
}

namespace {

// GB/s that one thread block copies at most into or out of a buffer. NCCL's limits are of a channel
// of its search, and the communicator runs it as two thread blocks (src/graph/connect.cc).
double copy_rate(const Group& g) {
  return block_rate(g) / 2;
}

// NCCL's latency of NVLS is of eight GPUs, and has the first chunks' in and out in it.
double windows_chunks_us(const Group& g) {
  return 2 * 8 * g.constants.nvls_chunk_us;
}

}  // namespace

bool of_network(const Group& g, topology::LinkId id) {
  auto kind = [&](std::uint8_t transport) {
    return topology::kind_of(g.fabric->transports()[transport]);
  };
  const topology::Link& link = g.fabric->links()[id];
  return link.kind == topology::LinkKind::Net ||
         (kind(link.transport) == topology::LinkKind::Pcie && g.intra.exists &&
          kind(g.intra.transport) != topology::LinkKind::Pcie);
}

Bottleneck bottleneck(const Group& g, const Profile& p, Level level,
                      const std::vector<LinkLoad>& loads, double inside, double between,
                      bool copied) {
  Bottleneck worst;
  for (const LinkLoad& l : loads) {
    double each = l.per_byte * (of_network(g, l.link) ? between : inside) /
                  link_rate_us(g, p, level, l.link, copied);
    if (each > worst.us) worst = {each, l.link};
  }
  return worst;
}

namespace {

class Pricer {
 public:
  Pricer(const Group& g, const Profile& p, Level level, Operation op, const Choice& choice,
         Bytes size)
      : g_(g),
        p_(p),
        level_(level),
        op_(op),
        c_(choice),
        size_(static_cast<double>(size.count)),
        wire_(wire_factor(choice.protocol)) {}

  Price price() {
    double n = g_.ranks();
    base_ = base_latency_us(kMeasured, c_.algorithm, c_.protocol);
    switch (c_.algorithm) {
      case Algorithm::Ring:
        ring(n);
        break;
      default:
        pipeline(terms());
    }
    Price out;
    double factor = op_ == Operation::AllReduce ? 2 * (n - 1) / n
                    : op_ == Operation::AllGather || op_ == Operation::ReduceScatter ? (n - 1) / n
                                                                                     : 1;
    out.limited_by = limited_by_;
    set_times(out, base_, steps_, fill_, transfer_, size_ * factor);
    out.limiting_transport = transport_;
    out.pipeline = pipeline_;
    out.per_byte = per_byte_;
    const SlowestHop& slow =
        g_.inter.exists && (between_ >= inside_ || !g_.intra.exists) ? g_.inter : g_.intra;
    out.step_transport = g_.fabric->transports()[slow.transport];
    return out;
  }

 private:
  double step(const SlowestHop& hop, Algorithm a, double message) const {
    return step_us(g_, p_, hop, a, c_.protocol, static_cast<std::int64_t>(message));
  }
  void limit(double us, const std::string& what) {
    if (us <= transfer_) return;
    transfer_ = us;
    limited_by_ = what;
    transport_.clear();
  }
  void limit_by_link(const Bottleneck& b) {
    double us = b.us * size_;
    if (us <= transfer_) return;
    const topology::Link& link = g_.fabric->links()[b.link];
    bool copied = link.staging.bits_per_s > 0 &&
                  link.staging.bytes_per_ps() / g_.proxy_copies < link.bandwidth.bytes_per_ps();
    bool by_memory = !g_.to_memory.empty() && g_.to_memory[b.link];
    limit(us, g_.fabric->link_name(b.link) + (copied      ? ", copied by a thread"
                                              : by_memory ? ", through the host's memory"
                                                          : ""));
    transport_ = g_.fabric->transports()[g_.fabric->links()[b.link].transport];
  }
  // What the threads of a rank's sockets copy of the rings' bytes. `between`: bytes on the wire per
  // byte of the rings' loads.
  void limit_by_sockets(double between) {
    double rate = socket_rate_us(g_, p_, level_, c_.channels);
    if (rate <= 0) return;
    double n = g_.ranks();
    double busiest = socket_threads(g_) == 0 ? g_.busiest_of_rings : 1;
    limit(2 * (n - 1) / n * busiest * between * size_ / rate, kSocketThreads);
  }
  // Where there are several nodes, the links between them say what others see.
  void links(const std::vector<LinkLoad>& loads, double inside, double between) {
    per_byte_ = g_.system.nodes > 1 ? between : inside;
    limit_by_link(bottleneck(g_, p_, level_, loads, inside, between));
    limit_by_sockets(between);
  }
  void add_steps(double inside, double between) {
    inside_ = inside;
    between_ = between;
    steps_ = inside + between;
  }

  // A chunk is handed on in slices: while one is under way the next is made, so that a step takes
  // max(chunk / rate, slice / rate + latency). Between nodes that is so from the beginning (proxies
  // and NICs work beside the thread blocks), inside a node from the second loop over NCCL's buffers
  // on.
  void ring(double n) {
    double nodes = g_.system.nodes;
    bool reduce = op_ == Operation::AllReduce;
    bool chain = op_ == Operation::Broadcast || op_ == Operation::Reduce;
    bool simple = c_.protocol == Protocol::Simple;
    double steps = reduce ? 2 * (n - 1) : n - 1;
    double between = nodes == 1 ? 0 : reduce ? 2 * (nodes - 1) : nodes - 1;
    double each = chain ? size_ / c_.channels : size_ / n / c_.channels;
    double chunk = std::min(static_cast<double>(c_.chunk), each);
    // Two slices a chunk, but none below a thirty-second of the largest
    // (src/device/prims_simple.h).
    double most = static_cast<double>(c_.slice);
    double message = simple ? std::min(chunk, std::clamp(chunk / 2, most / 32, most)) : chunk;
    double intra = g_.intra.exists ? step(g_.intra, Algorithm::Ring, message) : 0;
    double inter = g_.inter.exists ? step(g_.inter, Algorithm::Ring, message) : 0;
    double share = reduce ? 1 : chain ? n / (2 * (n - 1)) : 0.5;  // of the all-reduce's loads
    // Of two nodes that are a chain one only sends and one only receives.
    double one_way = chain && nodes == 2 ? section(g_, p_, g_.inter).one_way : 1;
    links(g_.ring, share * wire_, share * wire_ / one_way);
    double moved = size_ * (reduce ? 2 * (n - 1) / n : chain ? 1 : (n - 1) / n);
    if (chain)
      fill_ = (n - 2) * chunk * wire_ /
              std::min(block_rate(g_) * 1e3,
                       hop_rate(g_, p_, level_, g_.inter.exists ? g_.inter : g_.intra));
    protocol_limits(moved);
    bool sliced = simple && !chain;
    // Nothing goes over a link while a thread block copies the last chunk out of its buffer; of
    // what came over a network the last slice, since each comes more slowly than the one before is
    // copied.
    if (sliced) fill_ += (g_.inter.exists ? message : chunk) / (copy_rate(g_) * 1e3);
    double hidden = sliced ? (chunk - message) * transfer_ / (each * steps) : 0;
    double more = sliced ? std::ceil(each / chunk) - 1 : 0;  // loops
    double seen_intra = std::max(0.0, intra - hidden);
    double seen_inter = std::max(0.0, inter - hidden);
    double last = between > 0 ? inter - seen_inter
                              : intra - seen_intra;  // nothing hides the last step of a loop
    double inside = (steps - between) * (intra + more * seen_intra);
    double outside = (1 + more) * between * seen_inter;
    if (between > 0)
      outside += (1 + more) * last;
    else
      inside += more * last;
    add_steps(inside, outside);
  }

  // NCCL's limit (perChMaxRingLL128, perChMaxTreeLL128) is of a channel of its search, which the
  // communicator runs as several (src/graph/connect.cc).
  double ll128_block_rate() const {
    double channels = graph_of(g_.system, c_.algorithm).channels;
    return channel_limit(g_.system, g_.system.nodes, g_.settings.version, c_.algorithm,
                         Protocol::Ll128) *
           channels / communicator_channels(g_.system, c_.algorithm);
  }
  // What the thread blocks or the protocol move at most. `moved`: bytes that each rank sends.
  void protocol_limits(double moved) {
    Version v = g_.settings.version;
    if (c_.protocol == Protocol::Ll)
      limit(moved / (ll_bus_limit(g_.system, g_.system.nodes, v) * 1e3), "LL's flags");
    double block = c_.protocol == Protocol::Ll128 ? ll128_block_rate()
                   : c_.protocol == Protocol::Ll  ? block_rate(g_) / wire_
                                                  : block_rate(g_);
    if (block > 0) limit(moved / (c_.channels * block * 1e3), "thread blocks");
  }

  double nvls_factor() const { return 1 / nvls_efficiency(g_.system.compute_capability); }

 public:
  PipeTerms terms() const {
    PipeTerms t;
    double channels = c_.channels;
    double ppn = g_.system.per_node();
    double chunk = std::min(static_cast<double>(c_.chunk), size_ / channels);
    t.piece = static_cast<double>(c_.chunk) * channels;
    auto latency = [&](const SlowestHop& hop, double message) {
      return hop.exists ? step(hop, c_.algorithm, message) : 0;
    };
    bool all_reduce = op_ == Operation::AllReduce;
    auto switched = [&] { return std::max(0.0, latency(g_.window, 0) - windows_chunks_us(g_)); };
    auto copied = [&] {
      double of_head =
          std::min(static_cast<double>(c_.chunk), size_ / channels / g_.system.heads());
      return channels / (1 / (copy_rate(g_) * 1e3) + g_.constants.nvls_chunk_us / of_head);
    };
    switch (c_.algorithm) {
      case Algorithm::Tree:
        t.pipeline = Pipeline::Tree;
        t.inside = std::max(wire_, 1 / kTreeShare);
        t.between = wire_;
        t.inside_us = latency(g_.intra, chunk);
        t.between_us = latency(g_.inter, chunk);
        // NCCL's limit of LL between nodes is of the whole, and slower than its thread blocks are
        // inside one; what sets it is not known.
        if (c_.protocol == Protocol::Ll)
          t.blocks = 1e3 * std::min(ll_bus_limit(g_.system, 1, g_.settings.version),
                                    channels * block_rate(g_) / wire_);
        else
          t.blocks = 1e3 * channels *
                     (c_.protocol == Protocol::Ll128 ? ll128_block_rate() : block_rate(g_));
        if (c_.protocol == Protocol::Ll && g_.system.nodes > 1)
          t.pace = 2 / (1e3 * ll_bus_limit(g_.system, g_.system.nodes, g_.settings.version));
        t.lines = c_.protocol != Protocol::Simple;
        t.window = t.lines ? 0 : kStepsOfBuffer;
        break;
      case Algorithm::Nvls:
        t.pipeline = Pipeline::Nvls;
        t.piece *= g_.system.heads();
        t.inside = nvls_factor();
        // Once for all that the switch does, in one stage or in two.
        t.inside_us = switched() / (all_reduce && g_.nodes.size() > 1 ? 2 : 1);
        t.between_us = latency(g_.inter, 0);
        t.blocks = channels * copy_rate(g_) * 1e3;
        t.copies = copied();
        break;
      case Algorithm::NvlsTree:
        t.pipeline = Pipeline::NvlsTree;
        t.piece *= g_.system.heads();
        t.inside = nvls_factor();
        t.inside_us = switched() / 2;
        t.between_us = latency(g_.inter, static_cast<double>(c_.chunk));
        t.blocks = channels * copy_rate(g_) * 1e3;
        t.copies = copied();
        break;
      case Algorithm::CollnetDirect:
      case Algorithm::CollnetChain: {
        bool direct = c_.algorithm == Algorithm::CollnetDirect;
        t.pipeline = direct ? Pipeline::CollnetDirect : Pipeline::CollnetChain;
        if (direct) t.piece *= ppn;
        t.inside_us = direct ? std::min(1.0, ppn - 1) * latency(g_.intra, 0) + (ppn - 1) * 0.4
                             : latency(g_.intra, 0);
        t.between_us = latency(g_.inter, 0);
        break;
      }
      default: {
        t.pipeline = Pipeline::Pat;
        t.piece = size_;
        double rounds = static_cast<double>(g_.pipes[Pipeline::Pat].levels);
        double levels = floor_log2(g_.system.nodes);
        t.between_us =
            (levels * latency(g_.inter, static_cast<double>(c_.chunk)) / 3.5 + 2.8 * g_.ranks()) /
            std::max(1.0, rounds);
      }
    }
    if (!is_collnet(c_.algorithm)) t.sockets = socket_rate_us(g_, p_, level_, c_.channels);
    t.operation = all_reduce || t.pipeline == Pipeline::Pat || t.pipeline == Pipeline::Nvls
                      ? op_
                      : Operation::AllReduce;
    return t;
  }

 private:
  // Microseconds that a byte takes.
  double mover_us(const PipeMover& m, const PipeTerms& t) const {
    switch (m.what) {
      case PipeMover::What::Threads:
        return t.blocks > 0 ? 1 / (t.blocks * m.share) : 0;
      case PipeMover::What::Copies:
        return t.copies > 0 ? 1 / t.copies : 0;
      case PipeMover::What::Sockets:
        return t.sockets > 0 ? t.between / t.sockets : 0;
      case PipeMover::What::Link:
        break;
    }
    bool net = of_network(g_, m.link);
    return (net ? t.between : t.inside) / link_rate_us(g_, p_, level_, m.link);
  }

  void pipeline(const PipeTerms& t) {
    Pipe own;
    const Pipe& pipe = pipe_of(g_, t.pipeline, op_, own);
    pipeline_ = t.pipeline;
    per_byte_ = g_.system.nodes > 1 ? t.between : t.inside;
    std::vector<double> each;
    for (const PipeMover& m : pipe.movers) each.push_back(mover_us(m, t));
    for (const PipeUse& u : pipe.uses) {
      const PipeMover& m = pipe.movers[u.mover];
      if (m.what == PipeMover::What::Link)
        limit_by_link({u.total * each[u.mover], u.link});
      else
        limit(u.total * each[u.mover] * size_,
              m.what == PipeMover::What::Sockets ? kSocketThreads
              : m.what == PipeMover::What::Threads && c_.protocol == Protocol::Ll
                  ? "LL's flags"
                  : "thread blocks");
    }
    // A connection's threads serve one step each.
    if (t.sockets > 0)
      for (const PipeStep& s : pipe.steps)
        for (auto [mover, bytes] : s.load)
          if (pipe.movers[mover].what == PipeMover::What::Sockets)
            limit(bytes * each[mover] * size_, kSocketThreads);
    if (t.pace > 0) limit(size_ * t.pace, "LL's flags");
    PipeTime time = pipe_time(pipe, t, each, size_);
    add_steps(time.inside, time.between);
    fill_ = std::max(0.0, time.total - steps_ - transfer_);
    transfer_ = std::min(
        transfer_, std::max(0.0, time.total - steps_));  // the steps' latencies hide part of it
  }

  const Group& g_;
  const Profile& p_;
  Level level_;
  Operation op_;
  const Choice& c_;
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
  std::optional<Pipeline> pipeline_;
  double per_byte_ = 0;
};

}  // namespace

Price price_of(const Group& g, const Profile& p, Level level, Operation op, const Choice& choice,
               Bytes size) {
  return Pricer(g, p, level, op, choice, size).price();
}

PipeTerms pipe_terms(const Group& g, const Profile& p, Level level, Operation op,
                     const Choice& choice, Bytes size) {
  return Pricer(g, p, level, op, choice, size).terms();
}

void set_times(Price& price, double base, double steps, double fill, double transfer,
               double bus_bytes) {
  price.base = from_us(base);
  price.steps = from_us(steps);
  price.fill = from_us(fill);
  price.transfer = from_us(transfer);
  price.total = price.base + price.steps + price.fill + price.transfer;
  if (base + steps + fill > transfer)
    price.limited_by = fill > base + steps ? "filling the pipeline" : "latency";
  price.bus_bytes_per_s = bus_bytes / (static_cast<double>(price.total.ps) / 1e12);
}

}  // namespace ddpsim::nccl
