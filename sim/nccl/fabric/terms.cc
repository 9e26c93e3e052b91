#include "sim/nccl/fabric/terms.h"

#include <algorithm>

namespace ddpsim::nccl {
namespace {

constexpr Microseconds kUsualWire{1};

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

// Of a PCIe link's rate, through the host's memory.
const Range& memory_share(const TransportSection& t) {
  return t.host_memory ? *t.host_memory : t.efficiency;
}

double wire_rate(const Group& g, const Profile& p, Level level, topology::LinkId id) {
  const topology::Link& link = g.fabric->links()[id];
  return link.bandwidth.bytes_per_ps() *
         at(p.transports.at(g.fabric->transports()[link.transport]).efficiency, level);
}

}  // namespace

const TransportSection& section(const Group& g, const Profile& p, const SlowestHop& hop) {
  return p.transports.at(g.fabric->transports()[hop.transport]);
}

BytesPerUs hop_rate(const Group& g, const Profile& p, Level level, const SlowestHop& hop) {
  const TransportSection& t = section(g, p, hop);
  BytesPerSecond rate =
      bytes_per_s(hop.rate) * at(hop.by_memory ? memory_share(t) : t.efficiency, level);
  if (hop.staging.bits_per_s > 0) rate = std::min(rate, bytes_per_s(hop.staging) / g.proxy_copies);
  return bytes_per_us(rate);
}

double link_rate(const Group& g, const Profile& p, Level level, topology::LinkId id) {
  const topology::Link& link = g.fabric->links()[id];
  const double rate = wire_rate(g, p, level, id);
  return link.staging.bits_per_s > 0 ? std::min(rate, link.staging.bytes_per_ps() / g.proxy_copies)
                                     : rate;
}
BytesPerUs carried_by(const Group& g, const Profile& p, Level level, topology::LinkId id,
                      bool copied) {
  double rate = copied ? link_rate(g, p, level, id) : wire_rate(g, p, level, id);
  if (!g.to_memory.empty() && g.to_memory[id]) {
    const topology::Link& link = g.fabric->links()[id];
    const TransportSection& t = p.transports.at(g.fabric->transports()[link.transport]);
    rate = std::min(rate, link.bandwidth.bytes_per_ps() * at(memory_share(t), level));
  }
  return bytes_per_us(rate);
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

BytesPerUs socket_rate(const Group& g, const Profile& p, Level level, int connections) {
  if (!g.inter.exists) return {};
  const TransportSection& t = section(g, p, g.inter);
  if (!t.thread_bytes_per_s) return {};
  int threads = std::max(1, socket_threads(g) * connections);
  return bytes_per_us(BytesPerSecond{at(*t.thread_bytes_per_s, level)} * threads);
}

// One step over a hop: NCCL's own number, more or less what the transport's latency
// differs from NCCL's for a ring; and the wire.
Microseconds step_time(const Group& g, const Profile& p, const SlowestHop& hop, Algorithm a,
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
  Microseconds own = step_latency(measured, kind, alone ? Algorithm::Tree : a, protocol);
  Duration usual = simple || !t.ll_latency ? t.latency : *t.ll_latency;
  Microseconds extra =
      microseconds(usual) - step_latency(kMeasured, kind, Algorithm::Ring,
                                         simple || !t.ll_latency ? Protocol::Simple : Protocol::Ll);
  // NCCL's numbers were taken over real links: a network of one switch (two links of 0.5 us) is in
  // them, and so is what is inside a host.
  Microseconds wire = std::max(Microseconds{}, microseconds(hop.wire) - kUsualWire);
  Microseconds out = std::max(Microseconds{}, own + extra) * t.step_factor + wire;
  // Beyond the eager limit the receiver is asked first: there and back once more.
  if (hop.eager.count > 0 &&
      static_cast<double>(message) * wire_factor(protocol) >= static_cast<double>(hop.eager.count))
    out += microseconds(t.rendezvous);
  return out;
}

GBps block_rate(const Group& g) {
  return channel_limit(g.system, 1, g.settings.version, Algorithm::Tree, Protocol::Simple);
}

GBps copy_rate(const Group& g) {
  return block_rate(g) / 2;
}

GBps ll128_block_rate(const Group& g, Algorithm a) {
  double channels = graph_of(g.system, a).channels;
  return channel_limit(g.system, g.system.nodes, g.settings.version, a, Protocol::Ll128) *
         channels / communicator_channels(g.system, a);
}

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
    Microseconds each = l.per_byte * (of_network(g, l.link) ? between : inside) /
                        carried_by(g, p, level, l.link, copied);
    if (each > worst.time) worst = {each, l.link};
  }
  return worst;
}

void set_times(OperationTime& price, Microseconds base, Microseconds steps, Microseconds fill,
               Microseconds transfer, double bus_bytes) {
  price.base = to_duration(base);
  price.steps = to_duration(steps);
  price.fill = to_duration(fill);
  price.transfer = to_duration(transfer);
  price.total = price.base + price.steps + price.fill + price.transfer;
  if (base + steps + fill > transfer)
    price.limited_by = fill > base + steps ? "filling the pipeline" : "latency";
  price.bus_bytes_per_s = bus_bytes / seconds(price.total);
}

}  // namespace ddpsim::nccl
