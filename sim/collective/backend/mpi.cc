#include "sim/collective/backend/mpi.h"

#include <algorithm>
#include <numeric>

#include "sim/collective/make.h"
#include "sim/collective/message_tasks.h"
#include "sim/collective/price_terms.h"

namespace ddpsim::collective {

PatternId Mpi::pattern(MpiAllReduce a) const {
  return all_reduces[static_cast<std::size_t>(a) - 1];
}
PatternId Mpi::broadcast_pattern(Algorithm a) const {
  const auto at = std::find(kMpiBroadcasts.begin(), kMpiBroadcasts.end(), a);
  return broadcasts[at - kMpiBroadcasts.begin()];
}

PatternId Mpi::pattern(Operation o) const {
  switch (o) {
    case Operation::AllReduce:
      return pattern(MpiAllReduce::Rabenseifner);
    case Operation::Broadcast:
      return broadcast_pattern(Algorithm::BinomialTree);
    case Operation::SendRecv:
      return send_recv;
    default:
      return {};
  }
}

Price Mpi::price(const Communicator& c, const Asked& asked) const {
  const std::int64_t bytes = asked.size.count;
  if (asked.operation == Operation::Broadcast)
    return schedule_price(c, broadcast_pattern(fixed_broadcast(c.ranks(), bytes)), asked);
  if (asked.operation == Operation::SendRecv) return schedule_price(c, send_recv, asked);
  const MpiAllReduce runs =
      all_reduce_that_runs(settings, c.ranks(), bytes, element_size(asked.type));
  Price price = schedule_price(c, pattern(runs), asked);
  price.algorithm = name_of(runs);
  return price;
}

std::vector<engine::TaskId> Mpi::add_messages(const Communicator& c,
                                              const MessagePlay& play) const {
  return add_step_list(c, play);
}

Communicator make_mpi(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                      const OpenMpi& settings) {
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  Begun b = begin(fabric, std::move(devices), Mpi{.settings = settings}, {std::move(order)});
  Communicator& c = b.c;
  if (c.ranks() < 2) return std::move(c);
  Mpi& mpi = std::get<Mpi>(c.library);
  for (int id = 1; id <= kMpiAllReduces; ++id)
    mpi.all_reduces[static_cast<std::size_t>(id) - 1] =
        c.add(make_pattern(c, algorithm_of(static_cast<MpiAllReduce>(id)), Operation::AllReduce));
  for (std::size_t k = 0; k < kMpiBroadcasts.size(); ++k) {
    // A power of two has it: others get the tree that takes its place.
    const bool has = performs(kMpiBroadcasts[k], Operation::Broadcast, c.ranks());
    Pattern pattern =
        make_pattern(c, has ? kMpiBroadcasts[k] : Algorithm::BinomialTree, Operation::Broadcast);
    pattern.moved = c.ranks();
    mpi.broadcasts[k] = c.add(std::move(pattern));
  }
  return finish(std::move(b));
}

}  // namespace ddpsim::collective
