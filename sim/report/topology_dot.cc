#include "sim/report/topology_dot.h"

#include "sim/report/dot_parts.h"
#include "sim/topology/survey.h"

namespace ddpsim::report {
namespace {

using topology::Fabric;
using topology::LinkKind;

constexpr int kMostHosts = 8;
constexpr std::size_t kMostVertices = 200;

std::string html(const std::string& s) {
  std::string out;
  for (char c : s)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

// Hosts of one NVLink rack hang from one more switch.
void draw_racks(Drawing& dot) {
  const Fabric& f = dot.fabric();
  const Cluster& c = dot.cluster();
  if (c.pattern != Pattern::Nvl72) return;
  for (HostId h : each<HostId>(c.hosts)) {
    const int rack = f.group_of(h);
    if (h.number % c.hosts_per_rack == 0)
      dot.add("  rack{} [label=\"NVLink switches\\nof rack {}\", fillcolor=\"{}\"];\n", rack, rack,
              fill_of(VertexKind::Nvswitch));
    dot.add("  {} -- rack{} [color=\"{}\", penwidth=3, label=\"\"];\n",
            f.drawn() ? dot.nvswitch_id(h) : fmt::format("h{}sw", h.number), rack,
            style_of(LinkKind::Nvlink).colour);
  }
}

// Every host.
void draw_whole(Drawing& dot) {
  const Fabric& f = dot.fabric();
  const Cluster& c = dot.cluster();
  for (HostId h : each<HostId>(c.hosts)) draw_host(dot, h, fmt::format("host {}", h.number));
  if (c.hosts == 1) return;
  draw_switches(dot);
  draw_trunks(dot);
  draw_racks(dot);
  if (!f.has_nic_links()) return;
  for (HostId h : each<HostId>(c.hosts))
    for (int k = 0; k < c.nics_per_host; ++k)
      dot.edge(fmt::format("s{}", f.network().switch_of(h, k)), dot.nic_id(h, k), f.nic_link(h, k),
               "");
}

void draw_legend(Drawing& dot) {
  dot.add(
      "  legend [shape=plain, style=\"\", label=<<table border=\"0\" cellborder=\"0\" "
      "cellspacing=\"3\">");
  for (const auto& g : topology::link_groups(dot.fabric())) {
    if (g.kind == LinkKind::Net && dot.cluster().hosts == 1) continue;
    dot.add(
        "<tr><td bgcolor=\"{}\" width=\"26\"> </td><td align=\"left\">{} {}</td><td "
        "align=\"left\">{}</td><td align=\"right\">× {}</td></tr>",
        style_of(g.kind).colour,
        g.kind == LinkKind::Net ? html(g.transport) : style_of(g.kind).name,
        html(to_string(g.bandwidth)), html(g.what), thousands(g.cables));
  }
  dot.add("<tr><td></td><td align=\"left\"> </td></tr></table>>];\n");
}

}  // namespace

std::string topology_dot(const Fabric& f) {
  const Cluster& c = f.cluster();
  Drawing dot(f);
  dot.add("graph \"{}\" {{\n", escaped(c.name));
  dot.add(
      "  graph [fontname=\"Helvetica\", fontsize=14, rankdir=TB, nodesep=0.25, ranksep=0.7, "
      "labelloc=t, compound=true];\n");
  dot.add(
      "  node [fontname=\"Helvetica\", fontsize=12, shape=box, style=\"rounded,filled\", "
      "fillcolor=\"#f2f2f2\", color=\"#666666\", margin=\"0.12,0.06\"];\n");
  dot.add("  edge [fontname=\"Helvetica\", fontsize=11];\n");
  dot.add(
      "  label=\"{}\\n \";\n",
      escaped(fmt::format("{}: {} host{} x {} {}, {}", c.name, thousands(c.hosts),
                          c.hosts == 1 ? "" : "s", c.devices_per_host,
                          c.device == DeviceKind::Gpu ? "GPU" : "process", name_of(c.pattern))));
  std::size_t inside = f.drawn()
                           ? f.host_graph().vertices.size()
                           : static_cast<std::size_t>(c.devices_per_host + c.nics_per_host + 1);
  bool whole = c.hosts <= kMostHosts && inside * c.hosts <= kMostVertices &&
               f.network().switches() <= 4 * kMostSwitches;
  if (whole)
    draw_whole(dot);
  else
    draw_summary(dot);
  draw_legend(dot);
  dot.add("}}\n");
  return dot.take();
}

}  // namespace ddpsim::report
