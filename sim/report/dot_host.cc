#include <algorithm>

#include "sim/report/dot_parts.h"

namespace ddpsim::report {
namespace {

using topology::Fabric;

// A host with `intra`, or with one device: its switch, devices and NICs.
void plain(Drawing& dot, HostId host) {
  const int h = host.number;
  const Fabric& f = dot.fabric();
  const Cluster& c = dot.cluster();
  const char* device = c.device == DeviceKind::Gpu ? "GPU" : "process";
  for (int k = 0; k < c.nics_per_host && c.hosts > 1; ++k)
    dot.node(fmt::format("h{}nic{}", h, k), c.nics_per_host > 1 ? fmt::format("NIC {}", k) : "NIC",
             fill_of(VertexKind::Nic));
  std::vector<std::string> nics;
  std::vector<std::string> devices;
  for (int k = 0; k < c.nics_per_host && c.hosts > 1; ++k)
    nics.push_back(fmt::format("h{}nic{}", h, k));
  for (int d = 0; d < c.devices_per_host; ++d) {
    std::string id = fmt::format("h{}dev{}", h, d);
    devices.push_back(id);
    dot.node(id, fmt::format("{} {}", device, d), fill_of(VertexKind::Gpu));
    if (c.hosts > 1)
      dot.add("    h{}nic{} -- {} [style=invis];\n", h, f.nic_of(f.device_of(host, d)), id);
  }
  dot.row(nics);
  dot.row(devices);
  if (!c.intra) return;
  dot.node(fmt::format("h{}sw", h),
           f.transports()[f.links()[f.intra_link(0)].transport] == "nvlink" ? "NVSwitch" : "switch",
           fill_of(VertexKind::Nvswitch));
  for (int d = 0; d < c.devices_per_host; ++d)
    dot.edge(fmt::format("h{}dev{}", h, d), fmt::format("h{}sw", h),
             f.intra_link(f.device_of(host, d)), "");
}

// Where each vertex stands from left to right: GPUs in order, each other one over the mean of
// what hangs from it.
std::vector<double> places(const HostGraph& g) {
  std::vector<double> at(g.vertices.size(), -1);
  for (std::size_t i = 0; i < g.gpus.size(); ++i) at[g.gpus[i]] = static_cast<double>(i);
  for (VertexKind k : {VertexKind::PcieSwitch, VertexKind::Cpu, VertexKind::Nic})
    for (int v = 0; v < std::ssize(g.vertices); ++v) {
      if (g.vertices[v].kind != k) continue;
      double sum = 0;
      int n = 0;
      for (const auto& l : g.links) {
        int other = l.from == v ? l.to : l.to == v ? l.from : -1;
        if (other < 0 || at[other] < 0 || g.vertices[other].kind == k) continue;
        sum += at[other];
        ++n;
      }
      at[v] = n > 0 ? sum / n : static_cast<double>(v);
    }
  return at;
}

// Top to bottom: CPUs and NICs, PCIe switches, GPUs, NVSwitch; left to right by the GPUs below.
// NVLinks from GPU to GPU hang below them.
void inside(Drawing& dot, HostId h) {
  const Fabric& f = dot.fabric();
  const Cluster& c = dot.cluster();
  const HostGraph& g = f.host_graph();
  for (int v = 0; v < std::ssize(g.vertices); ++v)
    dot.node(dot.vertex_id(h, v), g.vertices[v].name, fill_of(g.vertices[v].kind));
  bool switches = std::any_of(g.vertices.begin(), g.vertices.end(),
                              [](const HostVertex& v) { return v.kind == VertexKind::PcieSwitch; });
  auto kind = [&](int v) { return g.vertices[v].kind; };
  auto level = [&](int v) {
    // A GPU, a NIC, a PCIe switch, a CPU, an NVSwitch.
    constexpr By<VertexKind, int, 5> kLevels{3, 1, 2, 1, 4};
    return kind(v) == VertexKind::Cpu && !switches ? 2 : kLevels[kind(v)];
  };
  auto place = places(g);
  for (int l = 1; l <= 3; ++l) {
    std::vector<std::pair<double, int>> order;
    for (int v = 0; v < std::ssize(g.vertices); ++v)
      if (level(v) == l) order.emplace_back(place[v], v);
    std::sort(order.begin(), order.end());
    std::vector<std::string> ids;
    for (const auto& [at, v] : order) ids.push_back(dot.vertex_id(h, v));
    dot.row(ids);
  }
  for (std::uint32_t i = 0; i < g.links.size(); ++i) {
    int a = g.links[i].from;
    int b = g.links[i].to;
    if (level(a) > level(b)) std::swap(a, b);
    bool flat = level(a) == level(b);
    dot.edge(dot.vertex_id(h, a), dot.vertex_id(h, b), f.inside_link(h, 2 * i), "", !flat,
             !flat           ? ""
             : level(a) == 3 ? ":s"
                             : ":n");
  }
  if (!f.inside(h).draws_nics() && c.hosts > 1 && !g.nics.empty())
    for (int d = 0; d < c.devices_per_host; ++d)
      dot.add("    {} -- {} [style=invis];\n", dot.nic_id(h, f.nic_of(f.device_of(h, d))),
              dot.vertex_id(h, g.gpus[d]));
  if (c.hosts > 1 && g.nics.empty())
    for (int k = 0; k < c.nics_per_host; ++k)
      dot.node(dot.nic_id(h, k), fmt::format("nic{}", k), fill_of(VertexKind::Nic));
}

}  // namespace

void draw_host(Drawing& dot, HostId h, const std::string& label) {
  const HostGraph& g = dot.fabric().host_graph();
  auto is_gpu = [&](int v) { return g.vertices[v].kind == VertexKind::Gpu; };
  bool arcs = std::any_of(g.links.begin(), g.links.end(),
                          [&](const HostGraph::Edge& l) { return is_gpu(l.from) && is_gpu(l.to); });
  dot.add(
      "  subgraph cluster_host{} {{\n    label=\"{}\"; {} style=rounded; color=\"#999999\"; "
      "bgcolor=\"#fafafa\"; fontsize=14;\n",
      h.number, escaped(label),
      arcs ? "labeljust=l;" : "labelloc=b;");  // out of the way of NVLinks
  if (dot.fabric().drawn())
    inside(dot, h);
  else
    plain(dot, h);
  dot.add("  }}\n");
}

}  // namespace ddpsim::report
