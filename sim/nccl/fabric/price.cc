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

constexpr const char* kSocketThreads = "threads of sockets";

class Pricer {
 public:
  Pricer(const Group& g, const Profile& p, Level level, Operation op, const Choice& choice,
         Bytes size)
      : g_(g),
        p_(p),
        level_(level),
        op_(op),
        c_(choice),
        bytes_(size),
        size_(static_cast<double>(size.count)),
        wire_(wire_factor(choice.protocol)) {}

  OperationTime price() {
    double n = g_.ranks();
    base_ = base_latency(kMeasured, c_.algorithm, c_.protocol);
    switch (c_.algorithm) {
      case Algorithm::Ring:
        ring(n);
        break;
      default:
        pipeline(pipe_terms(g_, p_, level_, op_, c_, bytes_));
    }
    OperationTime out;
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
  Microseconds step(const SlowestHop& hop, Algorithm a, double message) const {
    return step_time(g_, p_, hop, a, c_.protocol, static_cast<std::int64_t>(message));
  }
  void limit(Microseconds time, const std::string& what) {
    if (time <= transfer_) return;
    transfer_ = time;
    limited_by_ = what;
    transport_.clear();
  }
  void limit_by_link(const Bottleneck& b) {
    Microseconds time = b.time * size_;
    if (time <= transfer_) return;
    const topology::Link& link = g_.fabric->links()[b.link];
    bool copied = link.staging.bits_per_s > 0 &&
                  link.staging.bytes_per_ps() / g_.proxy_copies < link.bandwidth.bytes_per_ps();
    bool by_memory = !g_.to_memory.empty() && g_.to_memory[b.link];
    limit(time, g_.fabric->link_name(b.link) + (copied      ? ", copied by a thread"
                                                : by_memory ? ", through the host's memory"
                                                            : ""));
    transport_ = g_.fabric->transports()[g_.fabric->links()[b.link].transport];
  }
  // What the threads of a rank's sockets copy of the rings' bytes. `between`: bytes on the wire per
  // byte of the rings' loads.
  void limit_by_sockets(double between) {
    BytesPerUs rate = socket_rate(g_, p_, level_, c_.channels);
    if (rate <= BytesPerUs{}) return;
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
  void add_steps(Microseconds inside, Microseconds between) {
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
    Microseconds intra, inter;
    if (g_.intra.exists) intra = step(g_.intra, Algorithm::Ring, message);
    if (g_.inter.exists) inter = step(g_.inter, Algorithm::Ring, message);
    double share = reduce ? 1 : chain ? n / (2 * (n - 1)) : 0.5;  // of the all-reduce's loads
    // Of two nodes that are a chain one only sends and one only receives.
    double one_way = chain && nodes == 2 ? section(g_, p_, g_.inter).one_way : 1;
    links(g_.ring, share * wire_, share * wire_ / one_way);
    double moved = size_ * (reduce ? 2 * (n - 1) / n : chain ? 1 : (n - 1) / n);
    if (chain)
      fill_ = (n - 2) * chunk * wire_ /
              std::min(bytes_per_us(block_rate(g_)),
                       hop_rate(g_, p_, level_, g_.inter.exists ? g_.inter : g_.intra));
    protocol_limits(moved);
    bool sliced = simple && !chain;
    // Nothing goes over a link while a thread block copies the last chunk out of its buffer; of
    // what came over a network the last slice, since each comes more slowly than the one before is
    // copied.
    if (sliced) fill_ += (g_.inter.exists ? message : chunk) / copy_rate(g_);
    Microseconds hidden;
    if (sliced) hidden = (chunk - message) * transfer_ / (each * steps);
    double more = sliced ? std::ceil(each / chunk) - 1 : 0;  // loops
    Microseconds seen_intra = std::max(Microseconds{}, intra - hidden);
    Microseconds seen_inter = std::max(Microseconds{}, inter - hidden);
    Microseconds last = between > 0 ? inter - seen_inter
                                    : intra - seen_intra;  // nothing hides the last step of a loop
    Microseconds inside = (steps - between) * (intra + more * seen_intra);
    Microseconds outside = (1 + more) * between * seen_inter;
    if (between > 0)
      outside += (1 + more) * last;
    else
      inside += more * last;
    add_steps(inside, outside);
  }

  // What the thread blocks or the protocol move at most. `moved`: bytes that each rank sends.
  void protocol_limits(double moved) {
    Version v = g_.settings.version;
    if (c_.protocol == Protocol::Ll)
      limit(moved / ll_bus_limit(g_.system, g_.system.nodes, v), "LL's flags");
    GBps block = c_.protocol == Protocol::Ll128 ? ll128_block_rate(g_, c_.algorithm)
                 : c_.protocol == Protocol::Ll  ? block_rate(g_) / wire_
                                                : block_rate(g_);
    if (block > GBps{}) limit(moved / (c_.channels * block), "thread blocks");
  }

  // The mover takes so long for a byte.
  Microseconds time_of(const PipeMover& m, const PipeTerms& t) const {
    switch (m.what) {
      case PipeMover::What::Threads:
        return t.blocks > BytesPerUs{} ? 1 / (t.blocks * m.share) : Microseconds{};
      case PipeMover::What::Copies:
        return t.copies > BytesPerUs{} ? 1 / t.copies : Microseconds{};
      case PipeMover::What::Sockets:
        return t.sockets > BytesPerUs{} ? t.between / t.sockets : Microseconds{};
      case PipeMover::What::Link:
        break;
    }
    bool net = of_network(g_, m.link);
    return (net ? t.between : t.inside) / carried_by(g_, p_, level_, m.link);
  }

  void pipeline(const PipeTerms& t) {
    Pipe own;
    const Pipe& pipe = pipe_of(g_, t.pipeline, op_, own);
    pipeline_ = t.pipeline;
    per_byte_ = g_.system.nodes > 1 ? t.between : t.inside;
    std::vector<Microseconds> each;
    for (const PipeMover& m : pipe.movers) each.push_back(time_of(m, t));
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
    if (t.sockets > BytesPerUs{})
      for (const PipeStep& s : pipe.steps)
        for (auto [mover, bytes] : s.load)
          if (pipe.movers[mover].what == PipeMover::What::Sockets)
            limit(bytes * each[mover] * size_, kSocketThreads);
    if (t.pace > Microseconds{}) limit(size_ * t.pace, "LL's flags");
    PipeTime time = pipe_time(pipe, t, each, size_);
    add_steps(time.inside, time.between);
    fill_ = std::max(Microseconds{}, time.total - steps_ - transfer_);
    transfer_ = std::min(
        transfer_,
        std::max(Microseconds{}, time.total - steps_));  // the steps' latencies hide part of it
  }

  const Group& g_;
  const Profile& p_;
  Level level_;
  Operation op_;
  const Choice& c_;
  Bytes bytes_;
  double size_;  // the same
  double wire_;
  Microseconds base_;
  Microseconds steps_;
  Microseconds fill_;
  Microseconds transfer_;
  Microseconds inside_;
  Microseconds between_;
  std::string limited_by_;
  std::string transport_;
  std::optional<Pipeline> pipeline_;
  double per_byte_ = 0;
};

}  // namespace

OperationTime time_of(const Group& g, const Profile& p, Level level, Operation op,
                      const Choice& choice, Bytes size) {
  return Pricer(g, p, level, op, choice, size).price();
}

}  // namespace ddpsim::nccl
