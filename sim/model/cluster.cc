#include "sim/model/cluster.h"

#include <array>
#include <set>

namespace ddpsim {
namespace {

constexpr std::size_t kMaxSlowLinks = 1024;
constexpr std::int64_t kMaxGraph = std::int64_t{1} << 26;

Problem check_link(const LinkSpec& l, const std::string& path) {
  if (l.bandwidth.bits_per_s <= 0) return {path + "/bandwidth", "a link's bandwidth is positive, for example \"100Gb/s\""};
  if (l.bandwidth.bits_per_s < 1'000) return {path + "/bandwidth", "less than 1 kb/s is not a link"};
  if (l.bandwidth.bits_per_s > 1'000'000'000'000'000) return {path + "/bandwidth", "more than 1,000 Tb/s is not a link"};
  if (l.latency > kSecond) return {path + "/latency", "a link's latency is below a second"};
  if ((l.burst.count > 0) != (l.peak.bits_per_s > 0)) return {path, "burst and peak make a token bucket together; give both or neither"};
  if (l.peak.bits_per_s > 0 && l.peak < l.bandwidth) return {path + "/peak", "the peak rate is at least the bandwidth"};
  if (l.transport.empty()) return {path + "/transport", "a transport needs a name, one of the profile's \"transports\""};
  return {};
}

Problem check_graph(const Cluster& c) {
  std::set<std::string> names;
  int hosts = 0;
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    const GraphNode& n = c.nodes[i];
    if (n.name.empty()) return {"/nodes/" + std::to_string(i) + "/name", "a node needs a name"};
    if (!names.insert(n.name).second) return {"/nodes/" + std::to_string(i) + "/name", "\"" + n.name + "\" appears twice"};
    hosts += n.host ? 1 : 0;
  }
  if (hosts == 0) return {"/nodes", "a cluster needs at least one node of kind \"host\""};
  // One table of routes per host.
  if (static_cast<std::int64_t>(c.nodes.size() + c.links.size()) > kMaxGraph / hosts)
    return {"/nodes", "a graph this large is better given as a pattern (hosts x (nodes + links) is at most 2^26)"};
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

}  // namespace

const char* name_of(Pattern p) {
  constexpr std::array<const char*, 4> kNames{"star", "racks", "fat_tree", "graph"};
  return kNames[static_cast<std::size_t>(p)];
}

Problem validate(const Cluster& c) {
  if (c.name.empty()) return {"/name", "a cluster needs a name"};
  if (c.hosts < 1) return {"/hosts", "a cluster has at least one host"};
  if (c.devices_per_host < 1) return {"/devices_per_host", "a host has at least one device"};
  if (c.devices_per_host > 1024) return {"/devices_per_host", "more than 1,024 devices in a host"};
  if (c.hosts > kMaxDevices / c.devices_per_host) return {"/hosts", "more than 1,048,576 devices"};
  if (c.nics_per_host < 1 || c.nics_per_host > 64) return {"/nics_per_host", "a host has 1 to 64 NICs"};
  if (c.hosts > kMaxDevices / c.nics_per_host) return {"/nics_per_host", "more than 1,048,576 NICs in all"};
  if (c.profile.empty()) return {"/device/profile", "a device names its profile (ddpsim list profiles)"};
  if (c.devices_per_host > 1 && !c.intra) return {"/intra", "more than one device a host needs \"intra\", the link from each device to its host's switch"};
  if (c.intra)
    if (auto p = check_link(*c.intra, "/intra")) return p;
  if (c.pattern == Pattern::Graph) {
    if (auto p = check_graph(c)) return p;
  } else {
    if (auto p = check_link(c.link, "/link")) return p;
  }
  if (c.pattern == Pattern::Racks) {
    if (c.racks < 1 || c.racks > c.hosts) return {"/racks", "1 to as many racks as hosts"};
    if (auto p = check_link(c.uplink, "/uplink")) return p;
  }
  if (c.pattern == Pattern::FatTree) {
    if (c.hosts_per_leaf < 1) return {"/hosts_per_leaf", "at least one host per leaf switch"};
    if (c.spines < 1 || c.spines > 4096) return {"/spines", "1 to 4,096 spine switches"};
    if ((c.hosts - 1) / c.hosts_per_leaf + 1 > kMaxDevices / c.spines) return {"/spines", "more than 1,048,576 links from leaves to spines"};
    if (c.spines > c.hosts_per_leaf * c.nics_per_host)
      return {"/spines", "more spines than a leaf has NICs below it (" + std::to_string(c.hosts_per_leaf * c.nics_per_host) +
                             "): each uplink would be slower than one NIC at 1:1"};
    if (!(c.oversubscription >= 1 && c.oversubscription <= 1000)) return {"/oversubscription", "1:1 to 1000:1"};
  }
  if (c.emulated_on_cores < 0 || c.emulated_on_cores > 4096) return {"/emulated_on_cores", "1 to 4,096 cores of the machine that all hosts share"};
  std::set<int> slow;
  if (c.slow_links.size() > kMaxSlowLinks) return {"/slow_links", "more than 1,024 slow links"};
  for (std::size_t i = 0; i < c.slow_links.size(); ++i) {
    std::string path = "/slow_links/" + std::to_string(i);
    if (c.slow_links[i].host < 0 || c.slow_links[i].host >= c.hosts)
      return {path + "/host", "no host " + std::to_string(c.slow_links[i].host) + "; the cluster has " + std::to_string(c.hosts)};
    if (!slow.insert(c.slow_links[i].host).second) return {path + "/host", "host " + std::to_string(c.slow_links[i].host) + " is named twice; keep one"};
    LinkSpec link = c.link;
    link.bandwidth = c.slow_links[i].bandwidth;
    if (auto p = check_link(link, path)) return p;
  }
  return {};
}

}  // namespace ddpsim
