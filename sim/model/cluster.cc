#include "sim/model/cluster.h"

#include <array>
#include <initializer_list>
#include <set>

#include "sim/units/by.h"

namespace ddpsim {
namespace {

constexpr std::size_t kMaxSlowLinks = 1024;
constexpr std::int64_t kMaxInsideLinks = std::int64_t{1} << 22;
constexpr int kMostDevices =
    1 << 17;  // of which a step takes a few seconds to predict, and about 1 GB
constexpr std::int64_t kMaxGraph = std::int64_t{1} << 26;

Problem check_graph(const Cluster& c) {
  std::set<std::string> names;
  int hosts = 0;
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    const GraphNode& n = c.nodes[i];
    if (n.name.empty()) return {"/nodes/" + std::to_string(i) + "/name", "a node needs a name"};
    if (!names.insert(n.name).second)
      return {"/nodes/" + std::to_string(i) + "/name", "\"" + n.name + "\" appears twice"};
    hosts += n.host ? 1 : 0;
  }
  if (hosts == 0) return {"/nodes", "a cluster needs at least one node of kind \"host\""};
  // One table of routes per host.
  if (static_cast<std::int64_t>(c.nodes.size() + c.links.size()) > kMaxGraph / hosts)
    return {"/nodes",
            "a graph this large is better given as a pattern (hosts x (nodes + links) is at most "
            "2^26)"};
  std::set<std::string> transports;
  for (std::size_t i = 0; i < c.links.size(); ++i) {
    const GraphLink& l = c.links[i];
    std::string path = "/links/" + std::to_string(i);
    if (!names.count(l.from)) return {path + "/from", "no node is named \"" + l.from + "\""};
    if (!names.count(l.to)) return {path + "/to", "no node is named \"" + l.to + "\""};
    if (l.from == l.to) return {path, "a link joins two different nodes"};
    if (auto p = check_link(l.link, path)) return p;
    transports.insert(l.link.transport);
    if (transports.size() > 64) return {path + "/transport", "more than 64 different transports"};
  }
  return {};
}

// A few numbers that multiply to something that must not be large.
bool too_many(std::initializer_list<std::int64_t> factors, std::int64_t most) {
  std::int64_t product = 1;
  for (std::int64_t f : factors) {
    if (f > 0 && product > most / f) return true;
    product *= f;
  }
  return false;
}

Problem check_spines(const Cluster& c, std::int64_t leaves, std::int64_t nics_below) {
  if (c.spines < 1 || c.spines > 4096) return {"/spines", "1 to 4,096 spine switches"};
  if (leaves > kMaxDevices / c.spines)
    return {"/spines", "more than 1,048,576 links from leaves to spines"};
  if (c.spines > nics_below)
    return {"/spines", "more spines than a leaf has NICs below it (" + std::to_string(nics_below) +
                           "): each uplink would be slower than one NIC at 1:1"};
  if (!(c.oversubscription >= 1 && c.oversubscription <= 1000))
    return {"/oversubscription", "1:1 to 1000:1"};
  return {};
}

Problem check_torus(const Cluster& c) {
  if (c.extents.empty() || c.extents.size() > 4)
    return {"/extents", "1 to 4 extents, for example [4, 4, 2]"};
  std::int64_t hosts = 1;
  for (std::size_t i = 0; i < c.extents.size(); ++i) {
    if (c.extents[i] < 1)
      return {"/extents/" + std::to_string(i), "at least one host along each dimension"};
    if (too_many({hosts, c.extents[i]}, kMaxDevices))
      return {"/extents", "more than 1,048,576 hosts"};
    hosts *= c.extents[i];
  }
  if (hosts != c.hosts)
    return {"/hosts", "the extents make " + std::to_string(hosts) + " hosts; leave \"hosts\" out"};
  return check_link(c.trunk, "/trunk");
}

Problem check_dragonfly(const Cluster& c) {
  if (c.groups < 1) return {"/groups", "at least one group"};
  if (c.routers_per_group < 1) return {"/routers_per_group", "at least one router per group"};
  if (c.hosts_per_router < 1) return {"/hosts_per_router", "at least one host per router"};
  if (too_many({c.groups, c.routers_per_group, c.routers_per_group}, kMaxDevices) ||
      too_many({c.groups, c.groups}, kMaxDevices) ||
      too_many({c.groups, c.routers_per_group, c.hosts_per_router}, kMaxDevices))
    return {"/groups", "more than 1,048,576 hosts or links between routers"};
  if (c.hosts > c.groups * c.routers_per_group * c.hosts_per_router)
    return {"/hosts", "groups x routers_per_group x hosts_per_router make room for " +
                          std::to_string(c.groups * c.routers_per_group * c.hosts_per_router) +
                          " hosts"};
  if (auto p = check_link(c.trunk, "/trunk")) return p;
  return check_link(c.global, "/global");
}

Problem check_pattern(const Cluster& c) {
  switch (c.pattern) {
    case Pattern::Star:
    case Pattern::Graph:
      return {};
    case Pattern::Racks:
      if (c.racks < 1 || c.racks > c.hosts) return {"/racks", "1 to as many racks as hosts"};
      return check_link(c.uplink, "/uplink");
    case Pattern::FatTree:
      if (c.hosts_per_leaf < 1) return {"/hosts_per_leaf", "at least one host per leaf switch"};
      if (c.hosts_per_leaf > kMaxDevices)
        return {"/hosts_per_leaf", "more than 1,048,576 hosts per leaf switch"};
      return check_spines(c, (c.hosts - 1) / c.hosts_per_leaf + 1,
                          std::int64_t{c.hosts_per_leaf} * c.nics_per_host);
    case Pattern::RailOptimised:
      if (c.hosts_per_group < 1)
        return {"/hosts_per_group", "at least one host per group of rails"};
      if (c.hosts_per_group > kMaxDevices)
        return {"/hosts_per_group", "more than 1,048,576 hosts per group of rails"};
      return check_spines(c, (std::int64_t{c.hosts - 1} / c.hosts_per_group + 1) * c.nics_per_host,
                          c.hosts_per_group);
    case Pattern::Ring:
      return check_link(c.trunk, "/trunk");
    case Pattern::Torus:
      return check_torus(c);
    case Pattern::Dragonfly:
      return check_dragonfly(c);
    case Pattern::Nvl72: {
      if (c.hosts_per_rack < 1) return {"/hosts_per_rack", "at least one host per rack"};
      bool switched = c.inside ? c.inside->pattern == InsidePattern::Nvswitch
                               : c.intra && c.intra->transport == "nvlink";
      if (!switched)
        return {c.inside ? "/inside" : "/intra",
                "an NVLink rack needs \"inside\" of pattern \"nvswitch\", or \"intra\" with "
                "transport \"nvlink\": each GPU's way to the rack's NVLink switches"};
      return {};
    }
  }
  return {};
}

Problem check_faults(const Cluster& c) {
  if (c.failed_links.size() > kMaxSlowLinks)
    return {"/failed_links", "more than 1,024 failed links"};
  if (c.degraded_links.size() > kMaxSlowLinks)
    return {"/degraded_links", "more than 1,024 degraded links"};
  for (std::size_t i = 0; i < c.degraded_links.size(); ++i) {
    const DegradedLink& d = c.degraded_links[i];
    std::string path = "/degraded_links/" + std::to_string(i);
    bool rate = d.bandwidth.bits_per_s != 0;
    if (rate == (d.fraction != 0))
      return {path,
              "give \"bandwidth\" (what is left) or \"fraction\" (of what it had), one of them"};
    if (rate && d.bandwidth.bits_per_s < 1'000)
      return {path + "/bandwidth", "less than 1 kb/s is not a link; put it in \"failed_links\""};
    if (!rate && !(d.fraction >= 1e-6 && d.fraction <= 1))
      return {path + "/fraction",
              "a share of the link's bandwidth above 0 and at most 1; a dead link belongs in "
              "\"failed_links\""};
  }
  return {};
}

}  // namespace

Problem validate(const Cluster& c) {
  if (c.name.empty()) return {"/name", "a cluster needs a name"};
  if (c.hosts < 1) return {"/hosts", "a cluster has at least one host"};
  if (c.devices_per_host < 1) return {"/devices_per_host", "a host has at least one device"};
  if (c.devices_per_host > 1024) return {"/devices_per_host", "more than 1,024 devices in a host"};
  if (c.hosts > kMostDevices / c.devices_per_host) return {"/hosts", "more than 131,072 devices"};
  if (c.nics_per_host < 1 || c.nics_per_host > 64)
    return {"/nics_per_host", "a host has 1 to 64 NICs"};
  if (c.hosts > kMaxDevices / c.nics_per_host)
    return {"/nics_per_host", "more than 1,048,576 NICs in all"};
  if (c.profile.empty())
    return {"/device/profile", "a device names its profile (ddpsim list profiles)"};
  if (c.devices_per_host > 1 && !c.intra && !c.inside)
    return {"/intra",
            "more than one device a host needs \"intra\", the link from each device to its host's "
            "switch, or \"inside\", a pattern or drawing of the host"};
  if (c.intra && c.inside)
    return {"/inside",
            "beside \"intra\": keep one; \"intra\" joins every device to one switch by one link"};
  if (c.inside) {
    if (auto p = validate(*c.inside, c.devices_per_host, c.nics_per_host)) return p;
    std::int64_t links = expand(*c.inside, c.devices_per_host, c.nics_per_host).links.size();
    if (too_many({links, c.hosts}, kMaxInsideLinks))
      return {"/hosts", "more than 4,194,304 links inside hosts"};
  }
  if (c.intra)
    if (auto p = check_link(*c.intra, "/intra")) return p;
  if (c.pattern == Pattern::Graph) {
    if (auto p = check_graph(c)) return p;
  } else {
    if (auto p = check_link(c.link, "/link")) return p;
  }
  if (auto p = check_pattern(c)) return p;
  if (auto p = check_faults(c)) return p;
  if (c.emulated_on_cores < 0 || c.emulated_on_cores > 4096)
    return {"/emulated_on_cores", "1 to 4,096 cores of the machine that all hosts share"};
  std::set<HostId> slow;
  if (c.slow_links.size() > kMaxSlowLinks) return {"/slow_links", "more than 1,024 slow links"};
  for (std::size_t i = 0; i < c.slow_links.size(); ++i) {
    std::string path = "/slow_links/" + std::to_string(i);
    const HostId host = c.slow_links[i].host;
    if (!host.among(c.hosts))
      return {path + "/host",
              "no host " + to_string(host) + "; the cluster has " + std::to_string(c.hosts)};
    if (!slow.insert(host).second)
      return {path + "/host", "host " + to_string(host) + " is named twice; keep one"};
    LinkSpec link = c.link;
    link.bandwidth = c.slow_links[i].bandwidth;
    if (auto p = check_link(link, path)) return p;
  }
  return {};
}

}  // namespace ddpsim
