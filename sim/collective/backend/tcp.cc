#include "sim/collective/backend/tcp.h"

#include <numeric>

#include "sim/collective/make.h"
#include "sim/collective/message_tasks.h"
#include "sim/collective/price_terms.h"

namespace ddpsim::collective {
namespace {

// 2(n-1) steps of S/n, one after another, of one pass n-1: a received chunk is summed before the
// next step (not beside the wire). Where all hosts share one machine's cores, n ranks sum at once
// on them. docs/model.md 4.6.
Price tcp_ring(const Communicator& c, const Asked& asked) {
  const auto& [p, level, operation, size, type] = asked;
  const double n = c.ranks();
  const int passes = operation == Operation::AllReduce ? 2 : 1;
  const std::int64_t steps = passes * (c.ranks() - 1);
  const std::int64_t sums = operation == Operation::AllGather ? 0 : c.ranks() - 1;
  const std::vector<LinkLoad>& load = c.pattern(operation).load;
  Price price;
  price.pattern = c.id(operation);
  price.algorithm = "ring";
  const double chunk = static_cast<double>(size.count) / n;
  price.chunk = static_cast<std::int64_t>(chunk) + 1;
  if (sums > 0) price_sum(c, p, type, chunk, price);
  Phase phase;  // its launch passes before it is queued: see queued_launch
  phase.work = size * (passes * (n - 1) / n) * correction(slowest_knots(c, p), chunk);
  Duration gaps = path_latency(c, p, passes);
  price.hop_latency = {(gaps.ps + steps / 2) / steps};
  gaps += price.reduce * sums;
  phase.max_rate =
      rate_with_latency(c, p, level, load, phase.work, static_cast<double>(steps), gaps);
  price.phases.push_back(phase);
  price.alone = alone(price, bottleneck(c, p, level, load));
  return price;
}

}  // namespace

PatternId Tcp::pattern(Operation o) const {
  switch (o) {
    case Operation::AllReduce:
      return all_reduce;
    case Operation::ReduceScatter:
      return reduce_scatter;
    case Operation::AllGather:
      return all_gather;
    case Operation::Broadcast:
      return broadcast;
    case Operation::Reduce:
      return reduce;
    case Operation::SendRecv:
      return send_recv;
    default:
      return {};
  }
}

Price Tcp::price(const Communicator& c, const Asked& asked) const {
  const Operation o = asked.operation;
  if (o == Operation::Broadcast) return tree_price(c, asked);
  const bool step_list = o == Operation::Reduce || o == Operation::SendRecv ||
                         (o == Operation::AllReduce && c.pattern(o).algorithm != Algorithm::Ring);
  return step_list ? schedule_price(c, pattern(o), asked) : tcp_ring(c, asked);
}

std::vector<engine::TaskId> Tcp::add_messages(const Communicator& c,
                                              const MessagePlay& play) const {
  if (play.operation == Operation::Broadcast) return tcp_broadcast(c, play);
  return add_step_list(c, play);
}

Communicator make_tcp(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                      Algorithm algorithm) {
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  Begun b = begin(fabric, std::move(devices), Tcp{}, {std::move(order)});
  Communicator& c = b.c;
  if (c.ranks() < 2) return std::move(c);
  Tcp& tcp = std::get<Tcp>(c.library);
  tcp.all_reduce =
      c.add(algorithm == Algorithm::Ring ? along_rings(b, Operation::AllReduce)
                                         : make_pattern(c, algorithm, Operation::AllReduce));
  tcp.broadcast = c.add(
      broadcast_tree(c, make_rounds(Algorithm::BinomialTree, Operation::Broadcast, c.layout)));
  tcp.reduce_scatter = c.add(along_rings(b, Operation::ReduceScatter));
  tcp.all_gather = c.add(along_rings(b, Operation::AllGather));
  tcp.reduce = c.add(make_pattern(c, Algorithm::BinomialTree, Operation::Reduce));
  return finish(std::move(b));
}

}  // namespace ddpsim::collective
