// What NCCL runs for one collective of a job, as a price of its communicator: nccl::price_of's
// parts as a phase over links.
//   T = base + bytes / rate,   rate <= bytes / (steps' latencies + fill + transfer):  the gaps
//                              between a step's messages are open to other traffic
#include "sim/collective/nccl.h"

#include <algorithm>

#include "sim/collective/price_terms.h"

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
void price_steps(const Communicator& c, const Profile& p, Level level, Operation op,
                 const nccl::Choice& choice, Bytes size, Price& price) {
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
  double moving = turns * piece * bottleneck(c, p, level, c.patterns[kAllReduce].load);
  double rest = static_cast<double>((price.alone - price.phases[0].latency).ps) - moving;
  price.hop_latency = {static_cast<std::int64_t>(std::max(0.0, rest / steps))};
}

}  // namespace

Communicator make_nccl_communicator(const topology::Fabric& fabric, std::vector<int> devices,
                                    const nccl::Settings& settings, int compute_capability,
                                    const nccl::Searches* known) {
  if (devices.size() < 2) return make_communicator(fabric, std::move(devices), Backend::Nccl);
  Communicator c;
  c.nccl = nccl::build(fabric, devices, settings, compute_capability, nullptr, known);
  nccl::Wiring wiring = nccl::wiring(*c.nccl);
  c.fabric = &fabric;
  c.devices = std::move(devices);
  c.backend = Backend::Nccl;
  c.layout = layout_of(fabric, c.devices);
  for (nccl::Wiring::Ring& r : wiring.rings) {
    c.rings.push_back(std::move(r.order));
    c.ring_shares.push_back(r.share);
    c.ring_nics.push_back(r.nic);
  }
  c.patterns.resize(kNcclPatterns);
  c.patterns[kAllReduce].load = std::move(wiring.of_rings);
  for (std::vector<LinkLoad>& load : wiring.of_pipelines)
    c.patterns.emplace_back().load = std::move(load);
  for (Pattern& pattern : c.patterns) pattern.moved = c.ranks();
  // As every communicator's ring: per byte that passes each of its hops.
  for (LinkLoad& l : c.patterns[kAllReduce].load) l.per_byte /= ring_factor(c.ranks());
  c.transports = std::move(wiring.transports);
  return c;
}

Price nccl_collective(const Communicator& c, const Profile& p, Level level, Operation op,
                      Bytes size) {
  if (c.ranks() < 2 || size.count == 0) return nothing(c, p);
  nccl::Choice choice = *nccl::choose(*c.nccl, op, size.count);
  nccl::Price found = nccl::price_of(*c.nccl, p, level, op, choice, size);
  Price price;
  price.algorithm = label(choice);
  price.channels = choice.channels;
  Phase phase;
  phase.latency = found.base;
  price.alone = found.total;
  bool ring = !found.pipeline;
  price.pattern = ring ? kAllReduce : nccl_pattern(*found.pipeline);
  phase.work =
      static_cast<double>(size.count) * found.per_byte * (ring ? ring_factor(c.ranks()) : 1);
  phase.weight = static_cast<double>(c.rings.size());
  phase.max_rate = phase.work / std::max(1.0, static_cast<double>((found.total - found.base).ps));
  price.phases.push_back(phase);
  if (ring) price_steps(c, p, level, op, choice, size, price);
  return price;
}

void add_all_to_all(Communicator& c) {
  if (c.all_to_all > 0) return;
  c.messages = nccl::make_p2p(*c.nccl, Operation::AllToAll);
  c.messages.group = nullptr;
  c.all_to_all = static_cast<int>(c.patterns.size());
  for (nccl::Protocol inside : {nccl::Protocol::Simple, nccl::Protocol::Ll}) {
    Pattern& pattern = c.patterns.emplace_back();
    pattern.operation = Operation::AllToAll;
    pattern.load = nccl::p2p_loads(c.messages, inside);
    pattern.moved = c.ranks() - 1;
  }
  c.distinct.clear();  // of the patterns before
}

Price nccl_all_to_all(const Communicator& c, const Profile& p, Level level, Bytes size) {
  if (size.count == 0) return nothing(c, p);
  nccl::P2pOperation messages = c.messages;
  messages.group = &*c.nccl;
  const nccl::P2pPrice found = nccl::p2p_price(messages, p, level, size);
  const bool ll = found.inside.parts > 0 && found.inside.protocol == nccl::Protocol::Ll;
  Price price;
  price.algorithm = ll && found.between.parts == 0 ? "send/recv/LL" : "send/recv/Simple";
  price.pattern = c.all_to_all + (ll ? 1 : 0);
  price.alone = found.price.total;
  Phase phase;
  phase.latency = found.price.base;
  phase.work = static_cast<double>(size.count);
  phase.weight = static_cast<double>(c.rings.size());
  phase.max_rate =
      phase.work / std::max(1.0, static_cast<double>((price.alone - phase.latency).ps));
  price.phases.push_back(phase);
  return price;
}

}  // namespace ddpsim::collective
