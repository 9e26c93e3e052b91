#include "sim/report/dot_drawing.h"

#include <algorithm>

namespace ddpsim::report {

using topology::Link;
using topology::LinkId;
using topology::LinkKind;

LinkStyle style_of(LinkKind k) {
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

std::string thousands(std::int64_t n) {
  std::string digits = std::to_string(n);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string Drawing::vertex_id(HostId host, int vertex) const {
  return fmt::format("h{}v{}", host.number, vertex);
}
std::string Drawing::nic_id(HostId host, int nic) const {
  if (f_.drawn() && std::ssize(f_.host_graph().nics) > nic)
    return vertex_id(host, f_.host_graph().nics[nic]);
  return fmt::format("h{}nic{}", host.number, nic);
}
std::string Drawing::nvswitch_id(HostId host) const {
  const auto& v = f_.host_graph().vertices;
  for (std::size_t i = 0; i < v.size(); ++i)
    if (v[i].kind == VertexKind::Nvswitch) return vertex_id(host, static_cast<int>(i));
  return vertex_id(host, 0);
}
bool Drawing::is_host(int s) const {
  return c_.pattern == Pattern::Graph && c_.nodes[s].host;
}
std::string Drawing::switch_id(int s) const {
  if (is_host(s))
    for (HostId h : each<HostId>(c_.hosts))
      if (f_.network().switch_of(h, 0) == s) return nic_id(h, 0);
  return fmt::format("s{}", s);
}

void Drawing::node(const std::string& id, const std::string& label, const char* fill) {
  add("    {} [label=\"{}\", fillcolor=\"{}\"];\n", id, escaped(label), fill);
}
void Drawing::switch_node(int s) {
  add("  s{} [label=\"{}\", fillcolor=\"#dfe7ee\"];\n", s, escaped(f_.network().switch_name(s)));
}

void Drawing::edge(const std::string& above, const std::string& below, LinkId l,
                   const std::string& label, bool ranks, const char* port) {
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
  add("    {}{} -- {}{} [penwidth={}{}];\n", above, port, below, port, width(link), more);
}

void Drawing::row(const std::vector<std::string>& ids) {
  if (ids.size() < 2) return;
  out_ += "    { rank=same; ";
  for (std::size_t i = 0; i < ids.size(); ++i) out_ += (i > 0 ? " -- " : "") + ids[i];
  out_ += " [style=invis, weight=10]; }\n";
}

// Thickness by bandwidth, in steps, beside the thinnest link of the same kind.
std::string Drawing::width(const Link& link) {
  if (thinnest_.empty())
    for (const Link& l : f_.links()) {
      auto [it, fresh] = thinnest_.emplace(l.kind, l.bandwidth.bits_per_s);
      if (!fresh) it->second = std::min(it->second, l.bandwidth.bits_per_s);
    }
  double times = fraction(link.bandwidth.bits_per_s, thinnest_[link.kind]);
  return times < 1.5 ? "1.3" : times < 3 ? "2.6" : "4";
}

}  // namespace ddpsim::report
