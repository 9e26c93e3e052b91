#include "sim/report/topology_dot.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "sim/topology/survey.h"

namespace ddpsim::report {
namespace {

using topology::Fabric;
using topology::Link;
using topology::LinkId;
using topology::LinkKind;

constexpr int kMostHosts = 8;
constexpr std::size_t kMostVertices = 200;
constexpr int kMostSwitches = 16;
constexpr std::size_t kMostTrunks = 24;

struct Style {
  const char* colour;
  const char* name;
};
Style style_of(LinkKind k) {
  switch (k) {
    case LinkKind::Nvlink:
      return {"#4c9a2a", "NVLink"};
    case LinkKind::C2c:
      return {"#00897b", "C2C"};
    case LinkKind::Pcie:
      return {"#d9822b", "PCIe"};
    case LinkKind::Upi:
      return {"#7e57c2", "CPU to CPU"};
    case LinkKind::Net:
      break;
  }
  return {"#1f6fb2", "network"};
}

const char* fill_of(VertexKind k) {
  switch (k) {
    case VertexKind::Gpu:
      return "#d8efc8";
    case VertexKind::Nic:
      return "#cfe3f5";
    case VertexKind::PcieSwitch:
      return "#fbe3c6";
    case VertexKind::Cpu:
      return "#e6dcf5";
    case VertexKind::Nvswitch:
      break;
  }
  return "#b7dfa0";
}

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s) out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out;
}
std::string html(const std::string& s) {
  std::string out;
  for (char c : s)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

// "8,192"
std::string thousands(std::int64_t n) {
  std::string digits = std::to_string(n);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

class Picture {
 public:
  explicit Picture(const Fabric& f) : f_(f), c_(f.cluster()) {}

  std::string draw() {
    out_ = fmt::format("graph \"{}\" {{\n", escaped(c_.name));
    out_ +=
        "  graph [fontname=\"Helvetica\", fontsize=14, rankdir=TB, nodesep=0.25, ranksep=0.7, "
        "labelloc=t, compound=true];\n";
    out_ +=
        "  node [fontname=\"Helvetica\", fontsize=12, shape=box, style=\"rounded,filled\", "
        "fillcolor=\"#f2f2f2\", color=\"#666666\", margin=\"0.12,0.06\"];\n";
    out_ += "  edge [fontname=\"Helvetica\", fontsize=11];\n";
    out_ +=
        fmt::format("  label=\"{}\\n \";\n",
                    escaped(fmt::format("{}: {} host{} x {} {}, {}", c_.name, thousands(c_.hosts),
                                        c_.hosts == 1 ? "" : "s", c_.devices_per_host,
                                        c_.device == DeviceKind::Gpu ? "GPU" : "process",
                                        name_of(c_.pattern))));
    std::size_t inside = f_.drawn()
                             ? f_.host_graph().vertices.size()
                             : static_cast<std::size_t>(c_.devices_per_host + c_.nics_per_host + 1);
    bool whole = c_.hosts <= kMostHosts &&
                 inside * static_cast<std::size_t>(c_.hosts) <= kMostVertices &&
                 f_.network().switches() <= 4 * kMostSwitches;
    if (whole)
      draw_whole();
    else
      draw_summary();
    legend();
    return out_ + "}\n";
  }

 private:
  // ---- every host

  void draw_whole() {
    for (int h = 0; h < c_.hosts; ++h) host(h, fmt::format("host {}", h));
    if (c_.hosts == 1) return;
    for (int s = 0; s < f_.network().switches(); ++s)
      if (!is_host(s)) switch_node(s);
    trunks();
    racks();
    if (!f_.has_nic_links()) return;
    for (int h = 0; h < c_.hosts; ++h)
      for (int k = 0; k < c_.nics_per_host; ++k)
        edge(fmt::format("s{}", f_.network().switch_of(h, k)), nic_id(h, k), f_.nic_link(h, k), "");
  }

  // Hosts of one NVLink rack hang from one more switch.
  void racks() {
    if (c_.pattern != Pattern::Nvl72) return;
    for (int h = 0; h < c_.hosts; ++h) {
      int rack = h / c_.hosts_per_rack;
      if (h % c_.hosts_per_rack == 0)
        out_ +=
            fmt::format("  rack{} [label=\"NVLink switches\\nof rack {}\", fillcolor=\"{}\"];\n",
                        rack, rack, fill_of(VertexKind::Nvswitch));
      out_ += fmt::format("  {} -- rack{} [color=\"{}\", penwidth=3, label=\"\"];\n",
                          f_.drawn() ? nvswitch_id(h) : fmt::format("h{}sw", h), rack,
                          style_of(LinkKind::Nvlink).colour);
    }
  }

  std::string vertex_id(int h, int v) const { return fmt::format("h{}v{}", h, v); }
  std::string nic_id(int h, int k) const {
    if (f_.drawn() && static_cast<int>(f_.host_graph().nics.size()) > k)
      return vertex_id(h, f_.host_graph().nics[static_cast<std::size_t>(k)]);
    return fmt::format("h{}nic{}", h, k);
  }
  std::string nvswitch_id(int h) const {
    const auto& v = f_.host_graph().vertices;
    for (std::size_t i = 0; i < v.size(); ++i)
      if (v[i].kind == VertexKind::Nvswitch) return vertex_id(h, static_cast<int>(i));
    return vertex_id(h, 0);
  }
  bool is_host(int s) const {
    return c_.pattern == Pattern::Graph && c_.nodes[static_cast<std::size_t>(s)].host;
  }
  std::string switch_id(int s) const {
    if (is_host(s))
      for (int h = 0; h < c_.hosts; ++h)
        if (f_.network().switch_of(h, 0) == s) return nic_id(h, 0);
    return fmt::format("s{}", s);
  }

  void node(const std::string& id, const std::string& label, const char* fill) {
    out_ += fmt::format("    {} [label=\"{}\", fillcolor=\"{}\"];\n", id, escaped(label), fill);
  }
  void switch_node(int s) {
    out_ += fmt::format("  s{} [label=\"{}\", fillcolor=\"#dfe7ee\"];\n", s,
                        escaped(f_.network().switch_name(s)));
  }

  // An edge above -- below; `label` may be empty.
  void edge(const std::string& above, const std::string& below, LinkId l, const std::string& label,
            bool ranks = true, const char* port = "") {
    const Link& link = f_.links()[l];
    std::string more = f_.failed(l) ? ", style=dashed, color=\"#cc0000\""
                                    : fmt::format(", color=\"{}\"", style_of(link.kind).colour);
    bool degraded = !f_.failed(l) && std::any_of(c_.degraded_links.begin(), c_.degraded_links.end(),
                                                 [&](const DegradedLink& d) {
                                                   return f_.link_name(l).starts_with(d.link);
                                                 });
    std::string text = f_.failed(l) ? "failed" : degraded ? to_string(link.bandwidth) : label;
    if (!text.empty()) more += fmt::format(", label=\" {} \"", escaped(text));
    if (!ranks) more += ", constraint=false";
    out_ += fmt::format("    {}{} -- {}{} [penwidth={}{}];\n", above, port, below, port,
                        width(link), more);
  }
  // Side by side, in this order.
  void row(const std::vector<std::string>& ids) {
    if (ids.size() < 2) return;
    out_ += "    { rank=same; ";
    for (std::size_t i = 0; i < ids.size(); ++i) out_ += (i > 0 ? " -- " : "") + ids[i];
    out_ += " [style=invis, weight=10]; }\n";
  }
  // Thickness by bandwidth, in steps, beside the thinnest link of the same kind.
  std::string width(const Link& link) {
    if (thinnest_.empty())
      for (const Link& l : f_.links()) {
        auto [it, fresh] = thinnest_.emplace(l.kind, l.bandwidth.bits_per_s);
        if (!fresh) it->second = std::min(it->second, l.bandwidth.bits_per_s);
      }
    double times =
        static_cast<double>(link.bandwidth.bits_per_s) / static_cast<double>(thinnest_[link.kind]);
    return times < 1.5 ? "1.3" : times < 3 ? "2.6" : "4";
  }

  void host(int h, const std::string& label) {
    const HostGraph& g = f_.host_graph();
    auto is_gpu = [&](int v) {
      return g.vertices[static_cast<std::size_t>(v)].kind == VertexKind::Gpu;
    };
    bool arcs = std::any_of(g.links.begin(), g.links.end(), [&](const HostGraph::Edge& l) {
      return is_gpu(l.from) && is_gpu(l.to);
    });
    out_ += fmt::format(
        "  subgraph cluster_host{} {{\n    label=\"{}\"; {} style=rounded; color=\"#999999\"; "
        "bgcolor=\"#fafafa\"; fontsize=14;\n",
        h, escaped(label),
        arcs ? "labeljust=l;" : "labelloc=b;");  // out of the way of NVLinks
    if (f_.drawn())
      inside(h);
    else
      plain(h);
    out_ += "  }\n";
  }

  // A host with `intra`, or with one device: its switch, devices and NICs.
  void plain(int h) {
    const char* device = c_.device == DeviceKind::Gpu ? "GPU" : "process";
    for (int k = 0; k < c_.nics_per_host && c_.hosts > 1; ++k)
      node(fmt::format("h{}nic{}", h, k), c_.nics_per_host > 1 ? fmt::format("NIC {}", k) : "NIC",
           fill_of(VertexKind::Nic));
    std::vector<std::string> nics;
    std::vector<std::string> devices;
    for (int k = 0; k < c_.nics_per_host && c_.hosts > 1; ++k)
      nics.push_back(fmt::format("h{}nic{}", h, k));
    for (int d = 0; d < c_.devices_per_host; ++d) {
      std::string id = fmt::format("h{}dev{}", h, d);
      devices.push_back(id);
      node(id, fmt::format("{} {}", device, d), fill_of(VertexKind::Gpu));
      if (c_.hosts > 1)
        out_ += fmt::format("    h{}nic{} -- {} [style=invis];\n", h,
                            f_.nic_of(h * c_.devices_per_host + d), id);
    }
    row(nics);
    row(devices);
    if (!c_.intra) return;
    node(
        fmt::format("h{}sw", h),
        f_.transports()[f_.links()[f_.intra_link(0)].transport] == "nvlink" ? "NVSwitch" : "switch",
        fill_of(VertexKind::Nvswitch));
    for (int d = 0; d < c_.devices_per_host; ++d)
      edge(fmt::format("h{}dev{}", h, d), fmt::format("h{}sw", h),
           f_.intra_link(h * c_.devices_per_host + d), "");
  }

  // Top to bottom: CPUs and NICs, PCIe switches, GPUs, NVSwitch; left to right by the GPUs below.
  // NVLinks from GPU to GPU hang below them.
  void inside(int h) {
    const HostGraph& g = f_.host_graph();
    for (std::size_t v = 0; v < g.vertices.size(); ++v)
      node(vertex_id(h, static_cast<int>(v)), g.vertices[v].name, fill_of(g.vertices[v].kind));
    bool switches = std::any_of(g.vertices.begin(), g.vertices.end(), [](const HostVertex& v) {
      return v.kind == VertexKind::PcieSwitch;
    });
    auto kind = [&](int v) { return g.vertices[static_cast<std::size_t>(v)].kind; };
    auto level = [&](int v) {
      constexpr int kLevels[] = {3, 1, 2, 1, 4};  // gpu, nic, pcie switch, cpu, nvswitch
      return kind(v) == VertexKind::Cpu && !switches ? 2
                                                     : kLevels[static_cast<std::size_t>(kind(v))];
    };
    auto place = places(g);
    for (int l = 1; l <= 3; ++l) {
      std::vector<std::pair<double, int>> order;
      for (std::size_t v = 0; v < g.vertices.size(); ++v)
        if (level(static_cast<int>(v)) == l) order.emplace_back(place[v], static_cast<int>(v));
      std::sort(order.begin(), order.end());
      std::vector<std::string> ids;
      for (const auto& [at, v] : order) ids.push_back(vertex_id(h, v));
      row(ids);
    }
    for (std::uint32_t i = 0; i < g.links.size(); ++i) {
      int a = g.links[i].from;
      int b = g.links[i].to;
      if (level(a) > level(b)) std::swap(a, b);
      bool flat = level(a) == level(b);
      edge(vertex_id(h, a), vertex_id(h, b), f_.inside_link(h, 2 * i), "", !flat,
           !flat           ? ""
           : level(a) == 3 ? ":s"
                           : ":n");
    }
    if (!f_.inside(h).draws_nics() && c_.hosts > 1 && !g.nics.empty())
      for (int d = 0; d < c_.devices_per_host; ++d)
        out_ += fmt::format("    {} -- {} [style=invis];\n",
                            nic_id(h, f_.nic_of(h * c_.devices_per_host + d)),
                            vertex_id(h, g.gpus[static_cast<std::size_t>(d)]));
    if (c_.hosts > 1 && g.nics.empty())
      for (int k = 0; k < c_.nics_per_host; ++k)
        node(fmt::format("h{}nic{}", h, k), fmt::format("nic{}", k), fill_of(VertexKind::Nic));
  }

  // Where each vertex stands from left to right: GPUs in order, each other one over the mean of
  // what hangs from it.
  std::vector<double> places(const HostGraph& g) const {
    std::vector<double> at(g.vertices.size(), -1);
    for (std::size_t i = 0; i < g.gpus.size(); ++i)
      at[static_cast<std::size_t>(g.gpus[i])] = static_cast<double>(i);
    for (VertexKind k : {VertexKind::PcieSwitch, VertexKind::Cpu, VertexKind::Nic})
      for (std::size_t v = 0; v < g.vertices.size(); ++v) {
        if (g.vertices[v].kind != k) continue;
        double sum = 0;
        int n = 0;
        for (const auto& l : g.links) {
          int other = l.from == static_cast<int>(v) ? l.to
                      : l.to == static_cast<int>(v) ? l.from
                                                    : -1;
          if (other < 0 || at[static_cast<std::size_t>(other)] < 0 ||
              g.vertices[static_cast<std::size_t>(other)].kind == k)
            continue;
          sum += at[static_cast<std::size_t>(other)];
          ++n;
        }
        at[v] = n > 0 ? sum / n : static_cast<double>(v);
      }
    return at;
  }

  // Routers stand in a row, and their cables arch over it; other switches have the hosts' side
  // below.
  void trunks() {
    bool routers = c_.pattern == Pattern::Ring || c_.pattern == Pattern::Torus ||
                   c_.pattern == Pattern::Dragonfly;
    if (routers) {
      std::vector<std::string> ids;
      for (int s = 0; s < f_.network().switches(); ++s) ids.push_back(switch_id(s));
      row(ids);
    }
    for (std::uint32_t t = 0; t < f_.network().trunks().size(); ++t) {
      const auto& k = f_.network().trunks()[t];
      bool up = std::string(f_.network().role_of(k.from)) != f_.network().role_of(k.to) &&
                c_.pattern != Pattern::Graph;  // leaf to spine: the spine on top
      edge(switch_id(up ? k.to : k.from), switch_id(up ? k.from : k.to), f_.trunk_link(t), "",
           !routers, routers ? ":n" : "");
    }
  }

  // ---- many hosts

  struct Group {
    int first = 0;
    int count = 0;
  };

  void draw_summary() {
    host(0, fmt::format("inside each of {} hosts", thousands(c_.hosts)));
    bool by_role = switches_without_hosts() > kMostSwitches ||
                   (f_.has_nic_links() && f_.network().trunks().size() > kMostTrunks);
    // Hosts on the same switches.
    std::map<std::vector<int>, Group> groups;
    for (int h = 0; h < c_.hosts; ++h) {
      std::vector<int> key;
      if (!by_role) key = switches_of(h);
      auto& g = groups[key];
      if (g.count++ == 0) g.first = h;
    }
    for (const auto& [key, g] : groups) {
      std::string label = by_role ? fmt::format("host\n× {}", thousands(c_.hosts))
                          : g.count == 1
                              ? fmt::format("host {}", g.first)
                              : fmt::format("hosts from {}\n× {}", g.first, thousands(g.count));
      out_ += fmt::format("  g{} [label=\"{}\", shape=box3d, fillcolor=\"#fafafa\"];\n", g.first,
                          label_text(label));
    }
    if (by_role) {
      roles();
      return;
    }
    for (int s = 0; s < f_.network().switches(); ++s)
      if (!is_host(s)) switch_node(s);
    if (f_.has_nic_links()) {
      trunks();
      for (const auto& [key, g] : groups) {
        std::map<int, int> nics;
        for (int k = 0; k < c_.nics_per_host; ++k) ++nics[f_.network().switch_of(g.first, k)];
        for (const auto& [s, n] : nics)
          edge(fmt::format("s{}", s), fmt::format("g{}", g.first), f_.nic_link(g.first, 0),
               g.count * n > 1 ? fmt::format("× {}", thousands(g.count * n)) : "");
      }
    } else {
      graph_edges(groups);
    }
    rack_groups();
  }

  static std::string label_text(const std::string& s) {
    std::string out;
    for (char c : escaped(s)) out += c == '\n' ? std::string("\\n") : std::string(1, c);
    return out;
  }

  int switches_without_hosts() const {
    int n = 0;
    for (int s = 0; s < f_.network().switches() && n <= kMostSwitches; ++s) n += is_host(s) ? 0 : 1;
    return n;
  }

  // The switches that a host's cables end at; in a graph, those and the other hosts that it is
  // joined to.
  std::vector<int> switches_of(int h) {
    std::set<int> out;
    if (f_.has_nic_links()) {
      for (int k = 0; k < c_.nics_per_host; ++k) out.insert(f_.network().switch_of(h, k));
    } else {
      if (neighbours_.empty())
        for (const auto& t : f_.network().trunks())
          neighbours_[t.from].insert(t.to), neighbours_[t.to].insert(t.from);
      out = neighbours_[f_.network().switch_of(h, 0)];
    }
    return {out.begin(), out.end()};
  }

  void graph_edges(const std::map<std::vector<int>, Group>& groups) {
    std::map<int, const Group*> group_of;  // node of a host -> its group
    std::map<std::vector<int>, const Group*> by_key;
    for (const auto& [key, g] : groups) by_key[key] = &g;
    for (int h = 0; h < c_.hosts; ++h)
      group_of[f_.network().switch_of(h, 0)] = by_key[switches_of(h)];
    auto id = [&](int s) {
      return group_of.count(s) ? fmt::format("g{}", group_of[s]->first) : fmt::format("s{}", s);
    };
    std::map<std::tuple<std::string, std::string, std::int64_t>, std::pair<std::uint32_t, int>>
        bundles;
    for (std::uint32_t t = 0; t < f_.network().trunks().size(); ++t) {
      const auto& k = f_.network().trunks()[t];
      auto [it, fresh] = bundles.emplace(
          std::tuple(id(k.from), id(k.to), f_.links()[f_.trunk_link(t)].bandwidth.bits_per_s),
          std::pair(t, 0));
      ++it->second.second;
    }
    for (const auto& [key, bundle] : bundles)
      edge(std::get<1>(key), std::get<0>(key), f_.trunk_link(bundle.first),
           bundle.second > 1 ? fmt::format("× {}", bundle.second) : "");
  }

  // One box a role.
  void roles() {
    std::map<std::string, std::int64_t> count;
    std::vector<std::string> order;
    for (int s = 0; s < f_.network().switches(); ++s) {
      if (is_host(s)) continue;
      std::string role = f_.network().role_of(s);
      if (count[role]++ == 0) order.push_back(role);
    }
    auto id = [&](const std::string& role) {
      auto at = std::find(order.begin(), order.end(), role) - order.begin();
      return at < static_cast<std::ptrdiff_t>(order.size()) ? fmt::format("r{}", at)
                                                            : std::string("g0");
    };
    for (const std::string& role : order)
      out_ += fmt::format("  {} [label=\"{}\\n× {}\", shape=box3d, fillcolor=\"#dfe7ee\"];\n",
                          id(role), escaped(role), thousands(count[role]));
    std::map<std::tuple<std::string, std::string, std::int64_t>,
             std::pair<std::uint32_t, std::int64_t>>
        bundles;
    for (std::uint32_t t = 0; t < f_.network().trunks().size(); ++t) {
      const auto& k = f_.network().trunks()[t];
      auto it = bundles
                    .emplace(std::tuple(f_.network().role_of(k.from), f_.network().role_of(k.to),
                                        f_.links()[f_.trunk_link(t)].bandwidth.bits_per_s),
                             std::pair(t, 0))
                    .first;
      ++it->second.second;
    }
    auto cables = [&](const std::pair<std::uint32_t, std::int64_t>& bundle) {
      return fmt::format("{} cable{} of {}", thousands(bundle.second),
                         bundle.second == 1 ? "" : "s",
                         to_string(f_.links()[f_.trunk_link(bundle.first)].bandwidth));
    };
    std::map<std::string, std::string> loops;  // cables between switches of one role: one loop
    for (const auto& [key, bundle] : bundles)
      if (std::get<0>(key) == std::get<1>(key))
        loops[id(std::get<0>(key))] += " " + cables(bundle) + " \\l";
    for (const auto& [role, label] : loops)
      out_ += fmt::format("  {} -- {} [color=\"{}\", penwidth=2.6, label=\"{}\"];\n", role, role,
                          style_of(LinkKind::Net).colour, label);
    for (const auto& [key, bundle] : bundles)
      if (std::get<0>(key) != std::get<1>(key))
        edge(id(std::get<1>(key)), id(std::get<0>(key)), f_.trunk_link(bundle.first),
             cables(bundle));
    if (f_.has_nic_links())
      edge(id(f_.network().role_of(f_.network().switch_of(0, 0))), "g0", f_.nic_link(0, 0),
           fmt::format("{} NIC{} of {} a host", c_.nics_per_host, c_.nics_per_host == 1 ? "" : "s",
                       to_string(f_.links()[f_.nic_link(0, 0)].bandwidth)));
    rack_groups();
  }

  void rack_groups() {
    if (c_.pattern != Pattern::Nvl72) return;
    int racks = (c_.hosts - 1) / c_.hosts_per_rack + 1;
    out_ += fmt::format(
        "  racks [label=\"NVLink switches of a rack\\n{} hosts, {} GPUs: one NVLink domain\\n× "
        "{}\", shape=box3d, fillcolor=\"{}\"];\n",
        c_.hosts_per_rack, c_.hosts_per_rack * c_.devices_per_host, racks,
        fill_of(VertexKind::Nvswitch));
    out_ += fmt::format("  g0 -- racks [color=\"{}\", penwidth=4];\n",
                        style_of(LinkKind::Nvlink).colour);
  }

  void legend() {
    out_ +=
        "  legend [shape=plain, style=\"\", label=<<table border=\"0\" cellborder=\"0\" "
        "cellspacing=\"3\">";
    for (const auto& g : topology::link_groups(f_)) {
      if (g.kind == LinkKind::Net && c_.hosts == 1) continue;
      out_ += fmt::format(
          "<tr><td bgcolor=\"{}\" width=\"26\"> </td><td align=\"left\">{} {}</td><td "
          "align=\"left\">{}</td><td align=\"right\">× {}</td></tr>",
          style_of(g.kind).colour,
          g.kind == LinkKind::Net ? html(g.transport) : style_of(g.kind).name,
          html(to_string(g.bandwidth)), html(g.what), thousands(g.cables));
    }
    out_ += "<tr><td></td><td align=\"left\"> </td></tr></table>>];\n";
  }

  const Fabric& f_;
  const Cluster& c_;
  std::string out_;
  std::map<LinkKind, std::int64_t> thinnest_;
  std::map<int, std::set<int>> neighbours_;
};

}  // namespace

std::string topology_dot(const Fabric& f) {
  return Picture(f).draw();
}

}  // namespace ddpsim::report
