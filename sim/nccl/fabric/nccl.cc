#include "sim/nccl/fabric/nccl.h"

#include <algorithm>

#include "sim/nccl/fabric/group.h"

namespace ddpsim::nccl {

OwnedGroup::OwnedGroup() = default;
OwnedGroup::OwnedGroup(Group g) : group_(std::make_unique<Group>(std::move(g))) {}
OwnedGroup::OwnedGroup(const OwnedGroup& other)
    : group_(other ? std::make_unique<Group>(*other) : nullptr) {}
OwnedGroup::OwnedGroup(OwnedGroup&& other) noexcept = default;
OwnedGroup& OwnedGroup::operator=(OwnedGroup other) noexcept {
  group_ = std::move(other.group_);
  return *this;
}
OwnedGroup::~OwnedGroup() = default;

OwnedGroup build(const topology::Fabric& fabric, std::vector<DeviceId> devices, Settings settings,
                 int compute_capability, const Graphs* found, const Searches* known) {
  return OwnedGroup(make_group(fabric, std::move(devices), std::move(settings), compute_capability,
                               found, known));
}

void set_choice(Group& g, const Settings& settings) {
  g.settings = settings;
}

void set_constants(Group& g, const Constants& c) {
  g.constants = c;
}

void set_tuned(Group& g, std::vector<Tuned> tuned) {
  g.settings.tuned = std::move(tuned);
}

const topology::Fabric& fabric(const Group& g) {
  return *g.fabric;
}
int ranks(const Group& g) {
  return g.ranks();
}
int nodes(const Group& g) {
  return g.system.nodes;
}
int compute_capability(const Group& g) {
  return g.system.compute_capability;
}
Version version(const Group& g) {
  return g.settings.version;
}
std::optional<SymmetricKernel> symmetric_kernel(const Group& g, Operation op, Bytes size) {
  System s = g.system;
  s.version = g.settings.version;
  return symmetric_kernel(s, g.settings, op, size.count);
}
const std::string& network_transport(const Group& g) {
  return g.fabric->transports()[g.inter.transport];
}

Wiring wiring(const Group& g) {
  Wiring out;
  out.rings = g.rings;
  out.of_rings = g.every_ring;
  for (Pipeline p : kAll<Pipeline>)
    if (p != Pipeline::Pat) out.of_pipelines[p] = g.pipes[p].every;
  for (const SlowestHop* h : {&g.intra, &g.inter})
    if (h->exists) out.transports.push_back(h->transport);
  std::sort(out.transports.begin(), out.transports.end());
  out.transports.erase(std::unique(out.transports.begin(), out.transports.end()),
                       out.transports.end());
  return out;
}

std::vector<Candidate> candidates(const Group& g, Operation op, std::int64_t bytes) {
  return candidates(g.system, g.tables[op], g.settings, op, bytes);
}
std::optional<Choice> choose(const Group& g, Operation op, std::int64_t bytes) {
  return choose(g.system, g.tables[op], g.settings, op, bytes);
}
Choice complete(const Group& g, Operation op, Algorithm a, Protocol p, std::int64_t bytes,
                int channels) {
  return complete(g.system, g.tables[op], g.settings, op, a, p, bytes, channels);
}
int most_channels(const Group& g, Algorithm a) {
  return communicator_channels(g.system, a);
}

}  // namespace ddpsim::nccl
