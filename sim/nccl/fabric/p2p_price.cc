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
        int from = nth(g.devices, a);
        int to = nth(g.devices, b);
        topology::PathType type = path_type_inside(g, from, to);
        int count = 0;
        if (type <= topology::PathType::Nvl) {
          g.fabric->find_route(from, to, route);
          double raw = 1e30;
          for (topology::LinkId l : route.links)
            raw = std::min(raw, g.fabric->links()[l].bandwidth.bytes_per_ps() * 1e3);
          count = nvlinks_of(raw, g.system.compute_capability);
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
  double chunks = static_cast<double>(m.part) / static_cast<double>(m.chunk);
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

double p2p_socket_rate_us(const P2pOperation& o, const Profile& p, Level level,
                          const P2pMessage& between) {
  auto connections = static_cast<int>(peers_elsewhere(o)) * between.parts;
  return connections > 0 ? socket_rate_us(*o.group, p, level, connections) : 0;
}

P2pPrice p2p_price(const P2pOperation& o, const Profile& p, Level level, Bytes size) {
  const Group& g = *o.group;
  P2pMessages messages = p2p_messages(o, size);
  P2pPrice out{{}, messages.inside, messages.between};
  std::int64_t bytes = p2p_message_bytes(o, size);
  const P2pMessage& in = out.inside;
  const P2pMessage& between = out.between;
  bool ll = between.parts == 0 && in.protocol == Protocol::Ll;
  Price& price = out.price;
  double base = base_latency_us(kMeasured, Algorithm::Ring, ll ? Protocol::Ll : Protocol::Simple);
  auto slowest = [&](const std::vector<SlowestHop>& hops, const P2pMessage& m) {
    double us = 0;
    for (const SlowestHop& h : hops) {
      double now = step_us(g, p, h, Algorithm::Ring, m.protocol, std::min(m.chunk, m.part));
      if (now > us) price.step_transport = g.fabric->transports()[h.transport];
      us = std::max(us, now);
    }
    return us;
  };
  double step_in = slowest(o.inside_hops, in);
  double step_out = slowest(o.between_hops, between);

  double transfer = 0;
  auto limit = [&](double us, const std::string& what, const std::string& transport) {
    if (us <= transfer) return;
    transfer = us;
    price.limited_by = what;
    price.limiting_transport = transport;
  };
  double s = static_cast<double>(size.count);
  Bottleneck link = bottleneck(g, p, level, p2p_loads(o, in.protocol));
  double moving = link.us * s;
  limit(moving, g.fabric->link_name(link.link),
        g.fabric->transports()[g.fabric->links()[link.link].transport]);
  double block = block_rate(g) * 1e3;  // bytes per microsecond
  double local =
      o.operation == Operation::SendRecv ? 1 : static_cast<double>(g.nodes.front().size() - 1);
  if (double rate = p2p_socket_rate_us(o, p, level, between); rate > 0) {
    double us = peers_elsewhere(o) * static_cast<double>(bytes) / rate;
    limit(us, "threads of sockets", "");
    moving = std::max(moving, us);
  }
  double flags = ll_bus_limit(g.system, g.system.nodes, g.settings.version) * 1e3;
  if (in.parts > 0 && in.protocol == Protocol::Ll)
    limit(local * static_cast<double>(bytes) / flags, "LL's flags", "");

  std::vector<std::vector<P2pBatch>> blocks = o.batches(in, between);
  // The network's part of a chunk's way, while all messages are under way.
  double chunk_in = static_cast<double>(std::min(in.chunk, in.part));
  double chunk_out = static_cast<double>(std::min(between.chunk, between.part));
  std::size_t most = 1;
  for (const auto& batches : blocks) most = std::max(most, batches.size());
  double net = between.parts == 0 ? 0
                                  : moving / static_cast<double>(most) * chunk_out /
                                        static_cast<double>(between.part);
  // The network begins with the block that has fewest messages to copy.
  double fewest = 1e30;
  for (const auto& batches : blocks)
    if (!batches.empty() && batches.front().between > 0)
      fewest = std::min(fewest, static_cast<double>(batches.front().all()));
  double steps = 0;
  double fill = 0;
  for (const auto& batches : blocks) {
    double of_steps = 0;
    double of_fill = 0;
    double busy = 0;
    double waiting = 0;
    for (const P2pBatch& b : batches) {
      double count = b.all();
      double part = 0;
      double waits = 0;
      double filling = 0;
      if (b.inside > 0) {
        part = static_cast<double>(in.part);
        waits = waiting_for_buffers(in, p2p_depth(false, b.all())) * 2 * step_in;
        if (in.protocol == Protocol::Simple) filling = count * chunk_in / block;
      }
      if (b.between > 0) {
        part = std::max(part, static_cast<double>(between.part));
        waits =
            std::max(waits, waiting_for_buffers(between, p2p_depth(true, b.all())) * 2 * step_out);
        double copy = count * chunk_out / block;
        filling = std::max(filling, copy + std::min(net, fewest * chunk_out / block));
      }
      of_steps += std::max(b.inside > 0 ? step_in : 0, b.between > 0 ? step_out : 0);
      of_fill += filling;
      busy += count * part / block;
      waiting += waits;
    }
    limit(busy, "thread blocks", "");
    limit(waiting, "buffers", "");
    steps = std::max(steps, of_steps);
    fill = std::max(fill, of_fill);
  }
  double n = g.ranks();
  set_times(price, base, steps, fill, transfer,
            s * (o.operation == Operation::AllToAll ? (n - 1) / n : 1));
  return out;
}

}  // namespace ddpsim::nccl
