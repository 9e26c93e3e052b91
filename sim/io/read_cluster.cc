#include <algorithm>

#include "sim/io/schema/cluster_fields.h"
#include "sim/topology/fabric.h"
#include "sim/units/number.h"

namespace ddpsim::io {

void Codec<AsRatio>::read(const Reader& r, AsRatio into) {
  into.value = [&] {
    if (r.json().is_number()) return r.number();
    std::string t = r.text();
    auto colon = t.find(':');
    auto a = parse_number(t.substr(0, colon));
    auto b = colon == std::string::npos ? std::nullopt : parse_number(t.substr(colon + 1));
    if (a && b && *b > 0) return *a / *b;
    r.fail("\"" + t.substr(0, 40) + "\" is not a ratio such as \"1:1\" or \"2:1\"");
  }();
}

void Codec<InsideFile>::read(const Reader& r, InsideFile into) {
  Inside in;
  if (r.has("vertices")) {
    DrawnInside drawn;
    read_fields(r, drawn);
    in.pattern = InsidePattern::Drawn;
    in.vertices = std::move(drawn.vertices);
    in.links = std::move(drawn.links);
  } else {
    if (!r.has("pattern"))
      r.fail(
          "give a \"pattern\", or draw the host with \"vertices\" and "
          "\"links\"");
    read_fields(r, in);
  }
  *into.to = std::move(in);
}

namespace {

// A host's drawing says how many devices and NICs it has.
void count_drawn(const Reader& r, Cluster& c) {
  if (!c.inside || c.inside->pattern != InsidePattern::Drawn) return;
  auto count = [&](VertexKind kind) {
    return static_cast<int>(std::count_if(c.inside->vertices.begin(), c.inside->vertices.end(),
                                          [&](const HostVertex& h) { return h.kind == kind; }));
  };
  const int gpus = count(VertexKind::Gpu);
  const int nics = count(VertexKind::Nic);
  if (gpus == 0)
    r.at("inside").at("vertices").fail("a host has at least one vertex of kind \"gpu\"");
  if (!r.has("devices_per_host")) c.devices_per_host = gpus;
  if (!r.has("nics_per_host") && nics > 0) c.nics_per_host = nics;
}

// Switches of k ports each: as many of them down as the ratio asks for, the
// rest up.
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

// Members that follow from the keys of a pattern.
void complete_pattern(const Reader& r, Cluster& c) {
  if (c.pattern == Pattern::Graph) {
    if (c.nics_per_host != 1)
      r.at("nics_per_host").fail("a graph has one NIC a host; draw others as links");
    c.hosts = static_cast<int>(
        std::count_if(c.nodes.begin(), c.nodes.end(), [](const GraphNode& n) { return n.host; }));
    return;
  }
  if (c.pattern == Pattern::FatTree) {
    if (r.has("k")) return read_k(r, c);
    for (const char* key : {"hosts_per_leaf", "spines"}) r.at(key);
  }
  const bool ring = c.pattern == Pattern::Torus || c.pattern == Pattern::Ring;
  if (ring && !r.has("trunk")) c.trunk = c.link;
  if (c.pattern == Pattern::Dragonfly && !r.has("global")) c.global = c.trunk;
  const std::int64_t made = hosts_of_pattern(c);
  if (!r.has("hosts") && made > 0) c.hosts = static_cast<int>(made);
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

}  // namespace

Cluster read_cluster(const Json& j, const std::string& file) {
  Reader r(j, file);
  Cluster c;
  read_file_fields(r, c, kClusterSchema);
  count_drawn(r, c);
  complete_pattern(r, c);
  if (auto p = validate(c)) r.fail_at(p.path, p.message);
  check_fault_names(r, c);
  return c;
}

}  // namespace ddpsim::io
