#include <charconv>

#include "sim/io/codecs.h"

namespace ddpsim::io {
namespace {

void read_link_fields(const Reader& r, LinkSpec& l) {
  l.bandwidth = r.at("bandwidth").bandwidth();
  if (r.has("latency")) l.latency = r.at("latency").duration();
  if (r.has("burst")) l.burst = r.at("burst").bytes();
  if (r.has("peak")) l.peak = r.at("peak").bandwidth();
  if (r.has("transport")) l.transport = r.at("transport").text();
  if (r.has("eager")) l.eager = r.at("eager").bytes();
  if (r.has("staging")) l.staging = r.at("staging").bandwidth();
}

NcclFacts read_nccl_facts(const Reader& r) {
  r.only({"cpu", "net_latency", "ll", "ll128", "collnet", "multicast"});
  NcclFacts f;
  if (r.has("cpu")) f.cpu = static_cast<HostCpu>(r.at("cpu").choice({"intel", "amd", "arm", "power", "mixed"}));
  if (r.has("net_latency")) f.net_latency = r.at("net_latency").duration();
  if (r.has("ll")) f.ll = r.at("ll").boolean();
  if (r.has("ll128")) f.ll128 = r.at("ll128").boolean();
  if (r.has("collnet")) f.collnet = r.at("collnet").boolean();
  if (r.has("multicast")) f.multicast = r.at("multicast").boolean();
  return f;
}

LinkSpec read_link(const Reader& r) {
  r.only({"bandwidth", "latency", "burst", "peak", "transport", "eager", "staging"});
  LinkSpec l;
  read_link_fields(r, l);
  return l;
}

double read_ratio(const Reader& r) {
  if (r.json().is_number()) return r.number();
  std::string t = r.text();
  double a = 0;
  double b = 0;
  auto first = std::from_chars(t.data(), t.data() + t.size(), a);
  if (first.ec == std::errc() && first.ptr != t.data() + t.size() && *first.ptr == ':') {
    auto second = std::from_chars(first.ptr + 1, t.data() + t.size(), b);
    if (second.ec == std::errc() && second.ptr == t.data() + t.size() && b > 0) return a / b;
  }
  r.fail("\"" + t.substr(0, 40) + "\" is not a ratio such as \"1:1\" or \"2:1\"");
}

void read_graph(const Reader& r, Cluster& c) {
  for (const Reader& n : r.at("nodes").items()) {
    n.only({"name", "kind"});
    c.nodes.push_back({n.at("name").text(), n.at("kind").choice({"host", "switch"}) == 0});
  }
  for (const Reader& l : r.at("links").items()) {
    l.only({"from", "to", "bandwidth", "latency", "burst", "peak", "transport", "eager", "staging"});
    GraphLink link;
    link.from = l.at("from").text();
    link.to = l.at("to").text();
    read_link_fields(l, link.link);
    c.links.push_back(std::move(link));
  }
  c.hosts = 0;
  for (const GraphNode& n : c.nodes) c.hosts += n.host ? 1 : 0;
}

}  // namespace

Cluster read_cluster(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema("ddpsim.cluster/1");
  r.only({"schema", "name", "description", "source", "pattern", "hosts", "devices_per_host", "nics_per_host", "device", "link", "intra", "slow_links", "racks",
          "uplink", "nccl", "hosts_per_leaf", "spines", "oversubscription", "nodes", "links", "emulated_on_cores"});
  Cluster c;
  c.name = r.at("name").text();
  if (r.has("description")) c.description = r.at("description").text();
  c.pattern = static_cast<Pattern>(r.at("pattern").choice({"star", "racks", "fat_tree", "graph"}));
  if (r.has("devices_per_host")) c.devices_per_host = r.at("devices_per_host").small(-1, 1 << 20);
  if (r.has("nics_per_host")) c.nics_per_host = r.at("nics_per_host").small(-1, 1 << 20);
  Reader device = r.at("device");
  device.only({"kind", "profile"});
  c.device = device.at("kind").choice({"cpu", "gpu"}) == 0 ? DeviceKind::Cpu : DeviceKind::Gpu;
  c.profile = device.at("profile").text();
  if (r.has("nccl")) c.nccl = read_nccl_facts(r.at("nccl"));
  if (r.has("emulated_on_cores")) c.emulated_on_cores = r.at("emulated_on_cores").small(-1, 1 << 20);
  if (r.has("intra")) c.intra = read_link(r.at("intra"));
  auto belongs = [&](const char* key, Pattern p) {
    if (r.has(key) && c.pattern != p) r.at(key).fail(std::string("belongs to pattern \"") + name_of(p) + "\", not \"" + name_of(c.pattern) + "\"");
  };
  belongs("nodes", Pattern::Graph);
  belongs("links", Pattern::Graph);
  belongs("racks", Pattern::Racks);
  belongs("uplink", Pattern::Racks);
  belongs("hosts_per_leaf", Pattern::FatTree);
  belongs("spines", Pattern::FatTree);
  belongs("oversubscription", Pattern::FatTree);
  if (c.pattern == Pattern::Graph) {
    if (r.has("hosts")) r.at("hosts").fail("a graph's hosts are its nodes of kind \"host\"; leave \"hosts\" out");
    if (r.has("link")) r.at("link").fail("a graph has \"links\", not \"link\"");
    if (r.has("slow_links")) r.at("slow_links").fail("in a graph, give the slow link its own bandwidth in \"links\"");
    if (c.nics_per_host != 1) r.at("nics_per_host").fail("a graph has one NIC a host; draw others as links");
    read_graph(r, c);
  } else {
    c.hosts = r.at("hosts").small(-1, INT32_MAX);
    c.link = read_link(r.at("link"));
  }
  if (c.pattern == Pattern::Racks) {
    c.racks = r.at("racks").small(-1, INT32_MAX);
    c.uplink = read_link(r.at("uplink"));
  }
  if (c.pattern == Pattern::FatTree) {
    c.hosts_per_leaf = r.at("hosts_per_leaf").small(-1, INT32_MAX);
    c.spines = r.at("spines").small(-1, INT32_MAX);
    if (r.has("oversubscription")) c.oversubscription = read_ratio(r.at("oversubscription"));
  }
  if (r.has("slow_links"))
    for (const Reader& s : r.at("slow_links").items()) {
      s.only({"host", "bandwidth"});
      c.slow_links.push_back({s.at("host").small(-1, INT32_MAX), s.at("bandwidth").bandwidth()});
    }
  if (auto p = validate(c)) r.fail_at(p.path, p.message);
  return c;
}

}  // namespace ddpsim::io
