// What NCCL runs for one collective of a job, as a price of its communicator: nccl::time_of's
// parts as a phase over links.
//   T = base + bytes / rate,   rate <= bytes / (steps' latencies + fill + transfer):  the gaps
//                              between a step's messages are open to other traffic
#include "sim/collective/backend/nccl.h"

#include <algorithm>

#include "sim/collective/message_tasks.h"
#include "sim/collective/price_terms.h"
#include "sim/nccl/fabric/messages.h"

namespace ddpsim::collective {
namespace {

double ring_factor(int n) {
  return 2.0 * (n - 1) / n;
}

std::string label(const nccl::Choice& c) {
  return std::string(nccl::name_of(c.algorithm)) + "/" + nccl::name_of(c.protocol);
}

// Of the ring's messages: what a step takes besides its transfer, so that the messages end when the
// closed form does.
void price_steps(const Communicator& c, const Asked& asked, const nccl::Choice& choice,
                 Price& price) {
  const auto& [p, level, op, size, type] = asked;
  double n = c.ranks();
  bool chain = op == Operation::Broadcast;
  double work = price.phases[0].work;
  double most = std::max(1.0, static_cast<double>(choice.chunk) * choice.channels);
  price.pieces =
      chain ? 1 + static_cast<std::int64_t>((static_cast<double>(size.count) - 1) / most) : 1;
  double steps = op == Operation::AllReduce ? 2 * (n - 1) : n - 1;
  double turns = chain ? static_cast<double>(price.pieces) + n - 2 : steps;
  double piece = chain ? work / static_cast<double>(price.pieces) : work / steps;
  price.chunk = static_cast<std::int64_t>(piece / choice.channels) + 1;
  double moving = turns * piece * bottleneck(c, p, level, c.pattern(price.pattern).load);
  double rest = static_cast<double>((price.alone - price.phases[0].latency).ps) - moving;
  price.hop_latency = {static_cast<std::int64_t>(std::max(0.0, rest / steps))};
}

Price all_to_all_price(const Nccl& own, const Communicator& c, const Asked& asked) {
  const auto& [p, level, op, size, type] = asked;
  nccl::P2pOperation messages = own.messages;
  messages.group = &*own.group;
  const nccl::P2pTime found = nccl::p2p_time(messages, p, level, size);
  const bool ll = found.inside.parts > 0 && found.inside.protocol == nccl::Protocol::Ll;
  Price price;
  price.algorithm = ll && found.between.parts == 0 ? "send/recv/LL" : "send/recv/Simple";
  price.pattern = ll ? own.all_to_all_ll : own.all_to_all_simple;
  price.alone = found.price.total;
  Phase phase;
  phase.latency = found.price.base;
  phase.work = static_cast<double>(size.count);
  phase.weight = c.channels();
  phase.max_rate =
      phase.work / std::max(1.0, static_cast<double>((price.alone - phase.latency).ps));
  price.phases.push_back(phase);
  return price;
}

}  // namespace

PatternId Nccl::pattern(Operation o) const {
  switch (o) {
    case Operation::AllToAll:
      return all_to_all_simple;
    case Operation::SendRecv:
    case Operation::Push:
    case Operation::Pull:
      return {};
    default:
      return ring;
  }
}

Price Nccl::price(const Communicator& c, const Asked& asked) const {
  const auto& [p, level, op, size, type] = asked;
  if (op == Operation::AllToAll) return all_to_all_price(*this, c, asked);
  nccl::Choice choice = *nccl::choose(*group, op, size.count);
  nccl::OperationTime found = nccl::time_of(*group, p, level, op, choice, size);
  Price price;
  price.algorithm = label(choice);
  price.channels = choice.channels;
  Phase phase;
  phase.latency = found.base;
  price.alone = found.total;
  bool rings = !found.pipeline;
  price.pattern = rings ? ring : pipelines[*found.pipeline];
  phase.work = size * found.per_byte * (rings ? ring_factor(c.ranks()) : 1);
  phase.weight = c.channels();
  phase.max_rate = phase.work / std::max(1.0, static_cast<double>((found.total - found.base).ps));
  price.phases.push_back(phase);
  if (rings) price_steps(c, asked, choice, price);
  return price;
}

std::vector<engine::TaskId> Nccl::add_messages(const Communicator& c,
                                               const MessagePlay& play) const {
  if (play.price.pattern == ring) return add_ring_messages(c, play, true);
  return nccl::add_messages(play.graph, *group, play.profile, play.level, play.operation,
                            *nccl::choose(*group, play.operation, play.size.count), play.size,
                            *play.stages, play.arrive);
}

Communicator make_nccl_communicator(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                                    const nccl::Settings& settings, int compute_capability,
                                    const nccl::Searches* known) {
  if (devices.size() < 2) return make_nccl_ring(fabric, std::move(devices));
  Communicator c;
  Nccl own;
  own.group = nccl::build(fabric, devices, settings, compute_capability, nullptr, known);
  nccl::Wiring wiring = nccl::wiring(*own.group);
  c.fabric = &fabric;
  c.devices = std::move(devices);
  c.layout = layout_of(fabric, c.devices);
  for (nccl::Wiring::Ring& r : wiring.rings)
    c.rings.push_back({std::move(r.order), r.share, r.nic});
  const auto add = [&](std::vector<LinkLoad> load) {
    Pattern pattern;
    pattern.load = std::move(load);
    pattern.moved = c.ranks();
    return c.add(std::move(pattern));
  };
  // As every communicator's ring: per byte that passes each of its hops.
  for (LinkLoad& l : wiring.of_rings) l.per_byte /= ring_factor(c.ranks());
  own.ring = add(std::move(wiring.of_rings));
  for (std::size_t k = 0; k < nccl::kCount<nccl::Pipeline>; ++k) {
    const auto pipeline = static_cast<nccl::Pipeline>(k);
    own.pipelines[pipeline] = add(std::move(wiring.of_pipelines[pipeline]));
  }
  c.transports = std::move(wiring.transports);
  c.library = std::move(own);
  return c;
}

const nccl::Group* nccl_group(const Communicator& c) {
  const auto* own = std::get_if<Nccl>(&c.library);
  return own ? &*own->group : nullptr;
}
nccl::Group* nccl_group(Communicator& c) {
  auto* own = std::get_if<Nccl>(&c.library);
  return own ? &*own->group : nullptr;
}

void add_all_to_all(Communicator& c) {
  auto* own = std::get_if<Nccl>(&c.library);
  if (!own || own->all_to_all_simple || c.ranks() > nccl::kMostP2pRanks) return;
  own->messages = nccl::make_p2p(*own->group, Operation::AllToAll);
  own->messages.group = nullptr;
  const auto add = [&](nccl::Protocol inside) {
    Pattern pattern;
    pattern.operation = Operation::AllToAll;
    pattern.load = nccl::p2p_loads(own->messages, inside);
    pattern.moved = c.ranks() - 1;
    return c.add(std::move(pattern));
  };
  own->all_to_all_simple = add(nccl::Protocol::Simple);
  own->all_to_all_ll = add(nccl::Protocol::Ll);
  c.distinct.clear();  // of the patterns before
}

}  // namespace ddpsim::collective
