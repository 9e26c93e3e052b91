#include <algorithm>

#include "sim/io/codecs.h"
#include "sim/topology/fabric.h"
#include "sim/units/number.h"

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
  r.only({"cpu", "net_latency", "ll", "ll128", "collnet", "multicast", "peer_access", "nic_vendor",
          "library"});
  NcclFacts f;
  if (r.has("cpu"))
    f.cpu = static_cast<HostCpu>(r.at("cpu").choice({"intel", "amd", "arm", "power", "mixed"}));
  if (r.has("net_latency")) f.net_latency = r.at("net_latency").duration();
  if (r.has("ll")) f.ll = r.at("ll").boolean();
  if (r.has("ll128")) f.ll128 = r.at("ll128").boolean();
  if (r.has("collnet")) f.collnet = r.at("collnet").boolean();
  if (r.has("multicast")) f.multicast = r.at("multicast").boolean();
  if (r.has("peer_access")) f.peer_access = r.at("peer_access").boolean();
  if (r.has("nic_vendor"))
    f.nic_vendor = static_cast<NicVendor>(r.at("nic_vendor").choice({"other", "aws", "google"}));
  if (r.has("library")) f.rccl = r.at("library").choice({"nccl", "rccl"}) == 1;
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
  auto colon = t.find(':');
  auto a = parse_number(t.substr(0, colon));
  auto b = colon == std::string::npos ? std::nullopt : parse_number(t.substr(colon + 1));
  if (a && b && *b > 0) return *a / *b;
  r.fail("\"" + t.substr(0, 40) + "\" is not a ratio such as \"1:1\" or \"2:1\"");
}

void read_graph(const Reader& r, Cluster& c) {
  for (const Reader& n : r.at("nodes").items()) {
    n.only({"name", "kind"});
    c.nodes.push_back({n.at("name").text(), n.at("kind").choice({"host", "switch"}) == 0});
  }
  for (const Reader& l : r.at("links").items()) {
    l.only(
        {"from", "to", "bandwidth", "latency", "burst", "peak", "transport", "eager", "staging"});
    GraphLink link;
    link.from = l.at("from").text();
    link.to = l.at("to").text();
    read_link_fields(l, link.link);
    c.links.push_back(std::move(link));
  }
  c.hosts = 0;
  for (const GraphNode& n : c.nodes) c.hosts += n.host ? 1 : 0;
}

// A link inside a host: no token bucket, and one of the four transports there.
void read_inside_fields(const Reader& r, LinkSpec& l) {
  l.bandwidth = r.at("bandwidth").bandwidth();
  if (r.has("latency")) l.latency = r.at("latency").duration();
  if (!r.has("transport")) return;
  l.transport = topology::name_of(
      static_cast<topology::LinkKind>(r.at("transport").choice({"nvlink", "c2c", "pcie", "upi"})));
}

LinkSpec read_inside_link(const Reader& r, const char* transport) {
  r.only({"bandwidth", "latency", "transport"});
  LinkSpec l;
  l.transport = transport;
  read_inside_fields(r, l);
  if (l.transport != transport)
    r.at("transport")
        .fail(std::string("this link is \"") + transport +
              "\"; leave it out, or draw the host with \"vertices\" and \"links\"");
  return l;
}

void read_drawing(const Reader& r, Cluster& c, Inside& in, bool devices_given, bool nics_given) {
  r.only({"vertices", "links"});
  in.pattern = InsidePattern::Drawn;
  int gpus = 0;
  int nics = 0;
  for (const Reader& v : r.at("vertices").items()) {
    v.only({"name", "kind"});
    auto kind = static_cast<VertexKind>(
        v.at("kind").choice({"gpu", "nic", "pcie_switch", "cpu", "nvswitch"}));
    in.vertices.push_back({v.at("name").text(), kind});
    gpus += kind == VertexKind::Gpu ? 1 : 0;
    nics += kind == VertexKind::Nic ? 1 : 0;
  }
  for (const Reader& l : r.at("links").items()) {
    l.only({"from", "to", "bandwidth", "latency", "transport"});
    HostLink link;
    link.from = l.at("from").text();
    link.to = l.at("to").text();
    (void)l.at("transport");
    read_inside_fields(l, link.link);
    in.links.push_back(std::move(link));
  }
  if (gpus == 0) r.at("vertices").fail("a host has at least one vertex of kind \"gpu\"");
  if (!devices_given) c.devices_per_host = gpus;
  if (!nics_given && nics > 0) c.nics_per_host = nics;
}

void read_inside(const Reader& r, Cluster& c, bool devices_given, bool nics_given) {
  Inside in;
  if (r.has("vertices")) {
    read_drawing(r, c, in, devices_given, nics_given);
    c.inside = std::move(in);
    return;
  }
  r.only({"pattern", "link", "pcie", "c2c", "pcie_uplink", "nic_link", "cpu_link", "sockets",
          "switches_per_socket", "gpus_per_switch"});
  if (!r.has("pattern"))
    r.fail("give a \"pattern\", or draw the host with \"vertices\" and \"links\"");
  in.pattern = static_cast<InsidePattern>(
      r.at("pattern").choice({"nvswitch", "all_to_all", "hybrid_cube_mesh", "pcie_tree", "pairs"}));
  if (in.pattern == InsidePattern::PcieTree) {
    if (r.has("link"))
      r.at("link").fail(
          "is NVLink, which a \"pcie_tree\" has none of; its links are \"pcie\", \"pcie_uplink\", "
          "\"nic_link\" and \"cpu_link\"");
  } else {
    in.link = read_inside_link(r.at("link"), "nvlink");
  }
  if (r.has("pcie")) in.pcie = read_inside_link(r.at("pcie"), "pcie");
  if (r.has("c2c")) in.c2c = read_inside_link(r.at("c2c"), "c2c");
  if (r.has("pcie_uplink")) in.pcie_uplink = read_inside_link(r.at("pcie_uplink"), "pcie");
  if (r.has("nic_link")) in.nic_link = read_inside_link(r.at("nic_link"), "pcie");
  if (r.has("cpu_link")) in.cpu_link = read_inside_link(r.at("cpu_link"), "upi");
  if (r.has("sockets")) in.sockets = r.at("sockets").small(-1, 1 << 20);
  if (r.has("switches_per_socket"))
    in.switches_per_socket = r.at("switches_per_socket").small(-1, 1 << 20);
  if (r.has("gpus_per_switch")) in.gpus_per_switch = r.at("gpus_per_switch").small(1, 1 << 20);
  c.inside = std::move(in);
}

// Switches of k ports each: as many of them down as the ratio asks for, the rest up.
void read_k(const Reader& r, Cluster& c) {
  for (const char* key : {"hosts_per_leaf", "spines"})
    if (r.has(key)) r.at(key).fail("follows from \"k\", the ports of a switch; keep one of them");
  int k = r.at("k").small(2, 1 << 20);
  c.spines = std::max(1, static_cast<int>(k / (1 + std::max(1.0, c.oversubscription))));
  c.hosts_per_leaf = (k - c.spines) / std::max(1, c.nics_per_host);
  if (c.hosts_per_leaf < 1)
    r.at("k").fail("a leaf of " + std::to_string(k) + " ports has " + std::to_string(k - c.spines) +
                   " for hosts, fewer than the " + std::to_string(c.nics_per_host) +
                   " NICs of one");
}

void read_pattern(const Reader& r, Cluster& c) {
  switch (c.pattern) {
    case Pattern::Star:
    case Pattern::Graph:
      break;
    case Pattern::Racks:
      c.racks = r.at("racks").small(-1, INT32_MAX);
      c.uplink = read_link(r.at("uplink"));
      break;
    case Pattern::FatTree:
      if (r.has("oversubscription")) c.oversubscription = read_ratio(r.at("oversubscription"));
      if (r.has("k")) return read_k(r, c);
      c.hosts_per_leaf = r.at("hosts_per_leaf").small(-1, INT32_MAX);
      c.spines = r.at("spines").small(-1, INT32_MAX);
      break;
    case Pattern::RailOptimised:
      if (r.has("oversubscription")) c.oversubscription = read_ratio(r.at("oversubscription"));
      c.hosts_per_group = r.at("hosts_per_group").small(-1, INT32_MAX);
      c.spines = r.at("spines").small(-1, INT32_MAX);
      break;
    case Pattern::Torus:
      for (const Reader& e : r.at("extents").items()) c.extents.push_back(e.small(-1, INT32_MAX));
      [[fallthrough]];
    case Pattern::Ring:
      c.trunk = r.has("trunk") ? read_link(r.at("trunk")) : c.link;
      break;
    case Pattern::Dragonfly:
      c.groups = r.at("groups").small(-1, 1 << 20);
      c.routers_per_group = r.at("routers_per_group").small(-1, 1 << 20);
      c.hosts_per_router = r.at("hosts_per_router").small(-1, 1 << 20);
      c.trunk = read_link(r.at("trunk"));
      c.global = r.has("global") ? read_link(r.at("global")) : c.trunk;
      break;
    case Pattern::Nvl72:
      if (r.has("hosts_per_rack")) c.hosts_per_rack = r.at("hosts_per_rack").small(-1, INT32_MAX);
      break;
  }
}

// How many hosts a pattern makes by its own keys; 0 = it must be said.
std::int64_t hosts_of_pattern(const Cluster& c) {
  std::int64_t hosts = 0;
  if (c.pattern == Pattern::Torus) {
    hosts = 1;
    for (int e : c.extents) hosts = std::min<std::int64_t>(hosts * std::max(e, 0), INT32_MAX);
  }
  if (c.pattern == Pattern::Dragonfly)
    hosts = std::min<std::int64_t>(std::int64_t{c.groups} * c.routers_per_group, INT32_MAX) *
            c.hosts_per_router;
  return std::min<std::int64_t>(hosts, INT32_MAX);
}

void read_faults(const Reader& r, Cluster& c) {
  if (r.has("failed_links"))
    for (const Reader& f : r.at("failed_links").items()) c.failed_links.push_back(f.text());
  if (r.has("degraded_links"))
    for (const Reader& d : r.at("degraded_links").items()) {
      d.only({"link", "bandwidth", "fraction"});
      DegradedLink link;
      link.link = d.at("link").text();
      if (d.has("bandwidth")) link.bandwidth = d.at("bandwidth").bandwidth();
      if (d.has("fraction")) link.fraction = d.at("fraction").number();
      c.degraded_links.push_back(std::move(link));
    }
}

// Names are known once the links are.
void check_fault_names(const Reader& r, const Cluster& c) {
  if (c.failed_links.empty() && c.degraded_links.empty()) return;
  topology::Fabric f(c);
  if (f.ignored_faults().empty()) return;
  const auto& fault = f.ignored_faults().front();
  if (!fault.why.empty()) r.fail_at(fault.path, fault.why);
  std::vector<std::string> known;
  for (topology::LinkId l = 0; l < f.links().size(); ++l) {
    std::string name = f.link_name(l);
    if (name.ends_with(" up")) known.push_back(name.substr(0, name.size() - 3));
    known.push_back(std::move(name));
  }
  std::string hint = nearest(fault.name, known);
  if (hint.empty() && !known.empty())
    r.fail_at(fault.path, "no link is named \"" + fault.name.substr(0, 60) +
                              "\"; names are like \"" + known.back() + "\"");
  r.fail_at(fault.path,
            "no link is named \"" + fault.name.substr(0, 60) + "\"" +
                (hint.empty() ? "; the cluster has none" : " (did you mean \"" + hint + "\"?)"));
}

void check_cluster_keys(const Reader& r) {
  r.only({"schema",
          "name",
          "description",
          "source",
          "pattern",
          "hosts",
          "devices_per_host",
          "nics_per_host",
          "device",
          "link",
          "intra",
          "slow_links",
          "host_memory",
          "racks",
          "uplink",
          "nccl",
          "hosts_per_leaf",
          "spines",
          "k",
          "oversubscription",
          "nodes",
          "links",
          "emulated_on_cores",
          "inside",
          "trunk",
          "global",
          "extents",
          "groups",
          "routers_per_group",
          "hosts_per_router",
          "hosts_per_group",
          "hosts_per_rack",
          "ecmp",
          "failed_links",
          "degraded_links"});
}

void read_host_fields(const Reader& r, Cluster& c) {
  if (r.has("devices_per_host")) c.devices_per_host = r.at("devices_per_host").small(-1, 1 << 20);
  if (r.has("nics_per_host")) c.nics_per_host = r.at("nics_per_host").small(-1, 1 << 20);
  Reader device = r.at("device");
  device.only({"kind", "profile"});
  c.device = device.at("kind").choice({"cpu", "gpu"}) == 0 ? DeviceKind::Cpu : DeviceKind::Gpu;
  c.profile = device.at("profile").text();
  if (r.has("nccl")) c.nccl = read_nccl_facts(r.at("nccl"));
  if (r.has("emulated_on_cores"))
    c.emulated_on_cores = r.at("emulated_on_cores").small(-1, 1 << 20);
  if (r.has("intra")) c.intra = read_link(r.at("intra"));
  if (r.has("host_memory")) c.host_memory = r.at("host_memory").bandwidth();
  if (r.has("inside"))
    read_inside(r.at("inside"), c, r.has("devices_per_host"), r.has("nics_per_host"));
}

// Keys that only some patterns have.
void check_pattern_keys(const Reader& r, const Cluster& c) {
  auto belongs = [&](const char* key, std::initializer_list<Pattern> patterns) {
    if (!r.has(key) || std::find(patterns.begin(), patterns.end(), c.pattern) != patterns.end())
      return;
    std::string names;
    for (Pattern p : patterns)
      names += (names.empty() ? "\"" : " or \"") + std::string(name_of(p)) + "\"";
    r.at(key).fail("belongs to pattern " + names + ", not \"" + name_of(c.pattern) + "\"");
  };
  belongs("nodes", {Pattern::Graph});
  belongs("links", {Pattern::Graph});
  belongs("racks", {Pattern::Racks});
  belongs("uplink", {Pattern::Racks});
  belongs("hosts_per_leaf", {Pattern::FatTree});
  belongs("k", {Pattern::FatTree});
  belongs("spines", {Pattern::FatTree, Pattern::RailOptimised});
  belongs("oversubscription", {Pattern::FatTree, Pattern::RailOptimised});
  belongs("hosts_per_group", {Pattern::RailOptimised});
  belongs("trunk", {Pattern::Ring, Pattern::Torus, Pattern::Dragonfly});
  belongs("extents", {Pattern::Torus});
  for (const char* key : {"groups", "routers_per_group", "hosts_per_router", "global"})
    belongs(key, {Pattern::Dragonfly});
  belongs("hosts_per_rack", {Pattern::Nvl72});
  belongs("ecmp", {Pattern::FatTree, Pattern::RailOptimised, Pattern::Graph});
}

void check_graph_keys(const Reader& r, const Cluster& c) {
  if (r.has("hosts"))
    r.at("hosts").fail("a graph's hosts are its nodes of kind \"host\"; leave \"hosts\" out");
  if (r.has("link")) r.at("link").fail("a graph has \"links\", not \"link\"");
  if (r.has("slow_links"))
    r.at("slow_links").fail("in a graph, give the slow link its own bandwidth in \"links\"");
  if (c.nics_per_host != 1)
    r.at("nics_per_host").fail("a graph has one NIC a host; draw others as links");
}

void read_hosts_of_pattern(const Reader& r, Cluster& c) {
  std::int64_t made = hosts_of_pattern(c);
  c.hosts =
      made > 0 && !r.has("hosts") ? static_cast<int>(made) : r.at("hosts").small(-1, INT32_MAX);
}

void read_slow_links(const Reader& r, Cluster& c) {
  for (const Reader& s : r.items()) {
    s.only({"host", "bandwidth"});
    c.slow_links.push_back(
        {HostId::at(s.at("host").small(-1, INT32_MAX)), s.at("bandwidth").bandwidth()});
  }
}

}  // namespace

Cluster read_cluster(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema("ddpsim.cluster/1");
  check_cluster_keys(r);
  Cluster c;
  c.name = r.at("name").text();
  if (r.has("description")) c.description = r.at("description").text();
  c.pattern = static_cast<Pattern>(
      r.at("pattern").choice({"star", "racks", "fat_tree", "graph", "ring", "torus", "dragonfly",
                              "rail_optimised", "nvl72"}));
  read_host_fields(r, c);
  check_pattern_keys(r, c);
  if (r.has("ecmp")) c.ecmp = static_cast<Ecmp>(r.at("ecmp").choice({"source", "hash"}));
  if (c.pattern == Pattern::Graph) {
    check_graph_keys(r, c);
    read_graph(r, c);
  } else {
    c.link = read_link(r.at("link"));
    read_pattern(r, c);
    read_hosts_of_pattern(r, c);
  }
  read_faults(r, c);
  if (r.has("slow_links")) read_slow_links(r.at("slow_links"), c);
  if (auto p = validate(c)) r.fail_at(p.path, p.message);
  check_fault_names(r, c);
  return c;
}

}  // namespace ddpsim::io
