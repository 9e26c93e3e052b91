// Latencies and rates of a pipeline's stages, by algorithm.
#include <algorithm>

#include "sim/nccl/fabric/terms.h"

namespace ddpsim::nccl {
namespace {

// A tree's thread blocks reduce up and broadcast down side by side; the links inside a node get
// this share of what they take from a ring (NCCL: 0.92). A NIC is fed by proxies, and takes what it
// takes from a ring.
constexpr double kTreeShare = 0.92;

// NCCL's latency of NVLS is of eight GPUs, and has the first chunks' in and out in it.
Microseconds windows_chunks(const Group& g) {
  return 2 * 8 * g.constants.nvls_chunk;
}

class TermsMaker {
 public:
  TermsMaker(const Group& g, const Profile& p, Level level, Operation op, const Choice& choice,
             Bytes size)
      : g_(g),
        p_(p),
        level_(level),
        op_(op),
        c_(choice),
        size_(static_cast<double>(size.count)),
        wire_(wire_factor(choice.protocol)) {}

  PipeTerms make() const {
    PipeTerms t;
    t.piece = static_cast<double>(c_.chunk) * c_.channels;
    switch (c_.algorithm) {
      case Algorithm::Tree:
        set_tree(t);
        break;
      case Algorithm::Nvls:
        set_nvls(t);
        break;
      case Algorithm::NvlsTree:
        set_nvls_tree(t);
        break;
      case Algorithm::CollnetDirect:
      case Algorithm::CollnetChain:
        set_collnet(t);
        break;
      default:
        set_pat(t);
    }
    if (!is_collnet(c_.algorithm)) t.sockets = socket_rate(g_, p_, level_, c_.channels);
    t.operation =
        op_ == Operation::AllReduce || t.pipeline == Pipeline::Pat || t.pipeline == Pipeline::Nvls
            ? op_
            : Operation::AllReduce;
    return t;
  }

 private:
  double nvls_factor() const { return 1 / nvls_efficiency(g_.system.compute_capability); }

  Microseconds latency(const SlowestHop& hop, double message) const {
    return hop.exists ? step_time(g_, p_, hop, c_.algorithm, c_.protocol,
                                  static_cast<std::int64_t>(message))
                      : Microseconds{};
  }
  Microseconds switched() const {
    return std::max(Microseconds{}, latency(g_.window, 0) - windows_chunks(g_));
  }
  BytesPerUs copied() const {
    double channels = c_.channels;
    double of_head = std::min(static_cast<double>(c_.chunk), size_ / channels / g_.system.heads());
    const Microseconds of_byte = 1 / copy_rate(g_) + g_.constants.nvls_chunk / of_head;
    return {channels / of_byte.us};
  }

  void set_tree(PipeTerms& t) const {
    double channels = c_.channels;
    double chunk = std::min(static_cast<double>(c_.chunk), size_ / channels);
    t.pipeline = Pipeline::Tree;
    t.inside = std::max(wire_, 1 / kTreeShare);
    t.between = wire_;
    t.inside_latency = latency(g_.intra, chunk);
    t.between_latency = latency(g_.inter, chunk);
    // NCCL's limit of LL between nodes is of the whole, and slower than its thread blocks are
    // inside one; what sets it is not known.
    if (c_.protocol == Protocol::Ll)
      t.blocks = bytes_per_us(std::min(ll_bus_limit(g_.system, 1, g_.settings.version),
                                       channels * block_rate(g_) / wire_));
    else
      t.blocks = bytes_per_us(
          c_.protocol == Protocol::Ll128 ? ll128_block_rate(g_, c_.algorithm) : block_rate(g_),
          channels);
    if (c_.protocol == Protocol::Ll && g_.system.nodes > 1)
      t.pace = 2 / ll_bus_limit(g_.system, g_.system.nodes, g_.settings.version);
    t.lines = c_.protocol != Protocol::Simple;
    t.window = t.lines ? 0 : kStepsOfBuffer;
  }

  void set_nvls(PipeTerms& t) const {
    double channels = c_.channels;
    bool all_reduce = op_ == Operation::AllReduce;
    t.pipeline = Pipeline::Nvls;
    t.piece *= g_.system.heads();
    t.inside = nvls_factor();
    // Once for all that the switch does, in one stage or in two.
    t.inside_latency = switched() / (all_reduce && g_.nodes.size() > 1 ? 2 : 1);
    t.between_latency = latency(g_.inter, 0);
    t.blocks = bytes_per_us(channels * copy_rate(g_));
    t.copies = copied();
  }

  void set_nvls_tree(PipeTerms& t) const {
    double channels = c_.channels;
    t.pipeline = Pipeline::NvlsTree;
    t.piece *= g_.system.heads();
    t.inside = nvls_factor();
    t.inside_latency = switched() / 2;
    t.between_latency = latency(g_.inter, static_cast<double>(c_.chunk));
    t.blocks = bytes_per_us(channels * copy_rate(g_));
    t.copies = copied();
  }

  void set_collnet(PipeTerms& t) const {
    double ppn = g_.system.per_node();
    bool direct = c_.algorithm == Algorithm::CollnetDirect;
    t.pipeline = direct ? Pipeline::CollnetDirect : Pipeline::CollnetChain;
    if (direct) t.piece *= ppn;
    t.inside_latency =
        direct ? std::min(1.0, ppn - 1) * latency(g_.intra, 0) + (ppn - 1) * Microseconds{0.4}
               : latency(g_.intra, 0);
    t.between_latency = latency(g_.inter, 0);
  }

  void set_pat(PipeTerms& t) const {
    t.pipeline = Pipeline::Pat;
    t.piece = size_;
    double rounds = g_.pipes[Pipeline::Pat].levels;
    double levels = floor_log2(g_.system.nodes);
    t.between_latency = (levels * latency(g_.inter, static_cast<double>(c_.chunk)) / 3.5 +
                         Microseconds{2.8} * g_.ranks()) /
                        std::max(1.0, rounds);
  }

  const Group& g_;
  const Profile& p_;
  Level level_;
  Operation op_;
  const Choice& c_;
  double size_;
  double wire_;
};

}  // namespace

PipeTerms pipe_terms(const Group& g, const Profile& p, Level level, Operation op,
                     const Choice& choice, Bytes size) {
  return TermsMaker(g, p, level, op, choice, size).make();
}

}  // namespace ddpsim::nccl
