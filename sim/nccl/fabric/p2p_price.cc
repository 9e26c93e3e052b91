//   price = base + batches of the busiest thread block, each (step + fill) + max(bytes on the
//     slowest link, bytes of a thread block, buffers in flight)
// A message of a batch has its share of its thread block. A chunk passes stages: inside a node a
// thread block stores it at the receiver, whose block copies it out; between nodes a block copies
// it to a buffer, the network takes it, a block copies it out. fill = the stages of one chunk less
// the slowest.
#include "sim/nccl/fabric/p2p_price.h"

#include <algorithm>

#include "sim/nccl/fabric/p2p_routes.h"
#include "sim/nccl/fabric/peers.h"
#include "sim/nccl/fabric/terms.h"
#include "sim/nccl/nth.h"

namespace ddpsim::nccl {
namespace {

// `messages` of an operation whose bytes are `parts` of them.
std::vector<LinkLoad> loads_of(const std::vector<std::int64_t>& messages, int parts) {
  std::vector<LinkLoad> out;
  for (std::size_t l = 0; l < messages.size(); ++l)
    if (messages[l] > 0)
      out.push_back({static_cast<topology::LinkId>(l), static_cast<double>(messages[l]) / parts});
  return out;
}

// Both lists, each by its bytes on the wire.
std::vector<LinkLoad> added(const std::vector<LinkLoad>& a, double of_a,
                            const std::vector<LinkLoad>& b, double of_b) {
  std::vector<LinkLoad> out;
  for (std::size_t i = 0, k = 0; i < a.size() || k < b.size();) {
    topology::LinkId link =
        k == b.size() || (i < a.size() && a[i].link < b[k].link) ? a[i].link : b[k].link;
    double amount = 0;
    if (i < a.size() && a[i].link == link) amount += a[i++].per_byte * of_a;
    if (k < b.size() && b[k].link == link) amount += b[k++].per_byte * of_b;
    out.push_back({link, amount});
  }
  return out;
}

// NVLinks between the two GPUs of a node that have fewest (0: some pair has none, -1: no pair), and
// whether every pair has some way over them.
struct Nvlinks {
  int fewest = -1;
  bool all = true;
};
Nvlinks nvlinks_inside(const Group& g) {
  Nvlinks out;
  topology::Route route;
  for (const auto& node : g.nodes)
    for (int a : node)
      for (int b : node) {
        if (a == b) continue;
        const DeviceId from = nth(g.devices, a);
        const DeviceId to = nth(g.devices, b);
        topology::PathType type = path_type_inside(g, from, to);
        int count = 0;
        if (type <= topology::PathType::Nvl) {
          g.fabric->find_route(from, to, route);
          Bandwidth raw{INT64_MAX};
          for (topology::LinkId l : route.links)
            raw = std::min(raw, g.fabric->links()[l].bandwidth);
          count = nvlinks_of(gb_per_s(raw), g.system.compute_capability);
        }
        out.fewest = out.fewest < 0 ? count : std::min(out.fewest, count);
        out.all = out.all && type < topology::PathType::Pix;
      }
  return out;
}

// To which a rank sends between nodes.
double peers_elsewhere(const P2pOperation& o) {
  const Group& g = *o.group;
  return o.operation == Operation::SendRecv
             ? 1
             : g.ranks() - static_cast<double>(g.nodes.front().size());
}

// Round trips that a part's chunks wait for those before them to leave their buffers.
double waiting_for_buffers(const P2pMessage& m, int depth) {
  double chunks = fraction(m.part, m.chunk);
  return std::max(0.0, chunks - depth) / depth;
}

}  // namespace

P2pOperation make_p2p(const Group& g, Operation operation) {
  P2pOperation out;
  out.group = &g;
  out.operation = operation;
  Nvlinks nvlinks = nvlinks_inside(g);
  out.p2p = p2p_of(g.system, g.settings, nvlinks.fewest, nvlinks.all);
  bool all = operation == Operation::AllToAll;
  P2pPairs pairs = all ? routes_of_all_pairs(g) : routes_to_the_next(g);
  int parts = all ? g.ranks() : 1;
  out.inside = loads_of(pairs.inside.messages, parts);
  out.between = loads_of(pairs.between.messages, parts);
  out.inside_hops = std::move(pairs.inside.hops);
  out.between_hops = std::move(pairs.between.hops);
  return out;
}

std::int64_t p2p_message_bytes(const P2pOperation& o, Bytes size) {
  return o.operation == Operation::AllToAll ? (size.count + o.group->ranks() - 1) / o.group->ranks()
                                            : size.count;
}

std::vector<std::vector<P2pBatch>> P2pOperation::batches(const P2pMessage& in,
                                                         const P2pMessage& out) const {
  if (operation == Operation::AllToAll) {
    std::vector<int> sizes;
    for (const auto& node : group->nodes) sizes.push_back(static_cast<int>(node.size()));
    return p2p_batches(p2p, sizes, in.parts, out.parts);
  }
  // One message from every rank, inside a node from some and between from others.
  std::vector<std::vector<P2pBatch>> one;
  if (in.parts > 0) one.push_back({{1, 0}});
  if (out.parts > 0) one.push_back({{0, 1}});
  return one;
}

P2pMessages p2p_messages(const P2pOperation& o, Bytes size) {
  const Group& g = *o.group;
  std::int64_t bytes = p2p_message_bytes(o, size);
  P2pMessages out;
  out.inside.parts = out.between.parts = 0;
  if (!o.inside_hops.empty())
    out.inside = p2p_message(g.system, o.p2p, g.settings.version, false, bytes);
  if (!o.between_hops.empty())
    out.between = p2p_message(g.system, o.p2p, g.settings.version, true, bytes);
  return out;
}

std::vector<LinkLoad> p2p_loads(const P2pOperation& o, Protocol inside) {
  return added(o.inside, wire_factor(inside), o.between, 1);
}

BytesPerUs p2p_socket_rate(const P2pOperation& o, const Profile& p, Level level,
                           const P2pMessage& between) {
  auto connections = static_cast<int>(peers_elsewhere(o)) * between.parts;
  return connections > 0 ? socket_rate(*o.group, p, level, connections) : BytesPerUs{};
}

namespace {

class P2pPricer {
 public:
  P2pPricer(const P2pOperation& o, const Profile& p, Level level, Bytes size,
            const P2pMessages& messages)
      : o_(o),
        g_(*o.group),
        p_(p),
        level_(level),
        bytes_(p2p_message_bytes(o, size)),
        size_(static_cast<double>(size.count)),
        block_(block_rate(g_)),
        out_{{}, messages.inside, messages.between} {}

  P2pTime price() {
    const P2pMessage& in = out_.inside;
    bool ll = out_.between.parts == 0 && in.protocol == Protocol::Ll;
    Microseconds base =
        base_latency(kMeasured, Algorithm::Ring, ll ? Protocol::Ll : Protocol::Simple);
    step_in_ = slowest(o_.inside_hops, in);
    step_out_ = slowest(o_.between_hops, out_.between);
    limit_by_moving();
    limit_by_flags();
    limit_by_blocks();
    double n = g_.ranks();
    set_times(out_.price, base, steps_, fill_, transfer_,
              size_ * (o_.operation == Operation::AllToAll ? (n - 1) / n : 1));
    return std::move(out_);
  }

 private:
  Microseconds slowest(const std::vector<SlowestHop>& hops, const P2pMessage& m) {
    Microseconds most;
    for (const SlowestHop& h : hops) {
      Microseconds now =
          step_time(g_, p_, h, Algorithm::Ring, m.protocol, std::min(m.chunk, m.part));
      if (now > most) out_.price.step_transport = g_.fabric->transports()[h.transport];
      most = std::max(most, now);
    }
    return most;
  }

  void limit(Microseconds time, const std::string& what, const std::string& transport) {
    if (time <= transfer_) return;
    transfer_ = time;
    out_.price.limited_by = what;
    out_.price.limiting_transport = transport;
  }

  // Links, and the threads of sockets.
  void limit_by_moving() {
    Bottleneck link = bottleneck(g_, p_, level_, p2p_loads(o_, out_.inside.protocol));
    moving_ = link.time * size_;
    limit(moving_, g_.fabric->link_name(link.link),
          g_.fabric->transports()[g_.fabric->links()[link.link].transport]);
    if (BytesPerUs rate = p2p_socket_rate(o_, p_, level_, out_.between); rate > BytesPerUs{}) {
      Microseconds time = peers_elsewhere(o_) * static_cast<double>(bytes_) / rate;
      limit(time, "threads of sockets", "");
      moving_ = std::max(moving_, time);
    }
  }

  void limit_by_flags() {
    double local =
        o_.operation == Operation::SendRecv ? 1 : static_cast<double>(g_.nodes.front().size() - 1);
    GBps flags = ll_bus_limit(g_.system, g_.system.nodes, g_.settings.version);
    if (out_.inside.parts > 0 && out_.inside.protocol == Protocol::Ll)
      limit(local * static_cast<double>(bytes_) / flags, "LL's flags", "");
  }

  void limit_by_blocks() {
    std::vector<std::vector<P2pBatch>> blocks = o_.batches(out_.inside, out_.between);
    // The network's part of a chunk's way, while all messages are under way.
    std::size_t most = 1;
    for (const auto& batches : blocks) most = std::max(most, batches.size());
    if (out_.between.parts > 0)
      net_ = moving_ / static_cast<double>(most) * chunk(out_.between) /
             static_cast<double>(out_.between.part);
    // The network begins with the block that has fewest messages to copy.
    for (const auto& batches : blocks)
      if (!batches.empty() && batches.front().between > 0)
        fewest_ = std::min(fewest_, static_cast<double>(batches.front().all()));
    for (const auto& batches : blocks) add_block(batches);
  }

  static double chunk(const P2pMessage& m) {
    return static_cast<double>(std::min(m.chunk, m.part));
  }

  void add_block(const std::vector<P2pBatch>& batches) {
    const P2pMessage& in = out_.inside;
    const P2pMessage& between = out_.between;
    Microseconds of_steps;
    Microseconds of_fill;
    Microseconds busy;
    Microseconds waiting;
    for (const P2pBatch& b : batches) {
      double count = b.all();
      double part = 0;
      Microseconds waits;
      Microseconds filling;
      if (b.inside > 0) {
        part = static_cast<double>(in.part);
        waits = waiting_for_buffers(in, p2p_depth(false, b.all())) * 2 * step_in_;
        if (in.protocol == Protocol::Simple) filling = count * chunk(in) / block_;
      }
      if (b.between > 0) {
        part = std::max(part, static_cast<double>(between.part));
        waits =
            std::max(waits, waiting_for_buffers(between, p2p_depth(true, b.all())) * 2 * step_out_);
        Microseconds copy = count * chunk(between) / block_;
        filling = std::max(filling, copy + std::min(net_, fewest_ * chunk(between) / block_));
      }
      of_steps += std::max(b.inside > 0 ? step_in_ : Microseconds{},
                           b.between > 0 ? step_out_ : Microseconds{});
      of_fill += filling;
      busy += count * part / block_;
      waiting += waits;
    }
    limit(busy, "thread blocks", "");
    limit(waiting, "buffers", "");
    steps_ = std::max(steps_, of_steps);
    fill_ = std::max(fill_, of_fill);
  }

  const P2pOperation& o_;
  const Group& g_;
  const Profile& p_;
  Level level_;
  std::int64_t bytes_;  // of one message
  double size_;
  GBps block_;
  P2pTime out_;
  Microseconds step_in_;
  Microseconds step_out_;
  Microseconds moving_;
  Microseconds net_;
  double fewest_ = 1e30;
  Microseconds transfer_;
  Microseconds steps_;
  Microseconds fill_;
};

}  // namespace

P2pTime p2p_time(const P2pOperation& o, const Profile& p, Level level, Bytes size) {
  return P2pPricer(o, p, level, size, p2p_messages(o, size)).price();
}

}  // namespace ddpsim::nccl
