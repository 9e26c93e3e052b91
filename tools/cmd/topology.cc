// ddpsim topology: what a cluster's links are, whether it can be used, and what it looks like.
#include <map>
#include <ostream>

#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/report/topology_dot.h"
#include "sim/topology/survey.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/graphviz.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

using topology::Fabric;
using topology::Severity;

struct TopologyFlags {
  std::string what;
  std::string cluster;
  std::string cluster_flag;
  std::vector<std::string> sets;
  OutputFlags output;
};

const char* name_of_severity(Severity s) {
  return s == Severity::Error ? "error" : s == Severity::Warning ? "warning" : "note";
}

std::string with_commas(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string bisection_text(std::int64_t bits) {
  return bits < 0    ? "not computed (more than 200,000 trunks)"
         : bits == 0 ? "none: there is one"
                     : to_string(Bandwidth{bits});
}

// Rows and columns GPU0.., NIC0..; NCCL's path types.
std::vector<std::vector<std::string>> path_matrix(const Fabric& f) {
  int n = f.cluster().devices_per_host;
  int nics = f.has_nic_links() ? f.nics_per_host() : 0;
  std::string device = f.cluster().device == DeviceKind::Gpu ? "GPU" : "CPU";
  std::vector<std::vector<std::string>> out(1, std::vector<std::string>{""});
  for (int b = 0; b < n; ++b) out[0].push_back(device + std::to_string(b));
  for (int k = 0; k < nics; ++k) out[0].push_back("NIC" + std::to_string(k));
  const auto devices = f.devices_of(HostId{});
  for (DeviceId a : devices) {
    out.push_back({device + to_string(a)});
    for (DeviceId b : devices) out.back().push_back(a == b ? "X" : name_of(f.path_type(a, b)));
    for (int k = 0; k < nics; ++k)
      out.back().push_back(name_of(f.nic_path_type(a, k)) +
                           std::string(k == f.nic_of(a) ? "*" : ""));
  }
  return out;
}

std::string show_table(const Fabric& f) {
  const Cluster& c = f.cluster();
  std::string out = report::wrapped(fmt::format("{}: {}{}\n", c.name, name_of(c.pattern),
                                                c.description.empty() ? "" : "; " + c.description));
  out += fmt::format(
      "  hosts {}, devices {} ({} a host), NICs {} a host, switches {}\n", with_commas(c.hosts),
      with_commas(c.devices()), c.devices_per_host, c.nics_per_host,
      with_commas(f.has_nic_links() ? f.network().switches() : f.network().switches() - c.hosts));
  out += fmt::format("  inside a host: {}\n", c.inside  ? name_of(c.inside->pattern)
                                              : c.intra ? "one switch (intra)"
                                                        : "one device");
  out += fmt::format("\n  {:<28} {:<8} {:<12} {:>14} {:>10} {:>12}\n", "link", "kind", "transport",
                     "one direction", "latency", "cables");
  for (const auto& g : topology::link_groups(f))
    out += fmt::format("  {:<28} {:<8} {:<12} {:>14} {:>10} {:>12}\n", g.what, name_of(g.kind),
                       g.transport, to_string(g.bandwidth), to_string(g.latency),
                       with_commas(g.cables));
  auto d = topology::diameter(f);
  out += fmt::format(
      "\n  diameter                     {} links, {} of wire latency at most{}\n", d.links,
      to_string(d.latency),
      d.sources < c.devices() ? fmt::format(" (from {} devices spread evenly)", d.sources) : "");
  out += fmt::format("  bisection between hosts      {}\n",
                     bisection_text(topology::bisection_between_hosts(f)));
  out += fmt::format("  bisection inside a host      {}\n",
                     bisection_text(topology::bisection_inside(f, 0)));
  if (double over = topology::oversubscription(f); over > 0)
    out += fmt::format("  oversubscription             {:.4g}:1\n", over);
  if (c.devices_per_host + c.nics_per_host <= 64) {
    out += "\n  one host, NCCL's path types (* = the NIC that the device uses)\n";
    for (const auto& row : path_matrix(f)) {
      out += "  ";
      for (std::size_t i = 0; i < row.size(); ++i) out += fmt::format("{:<6}", row[i]);
      while (out.back() == ' ') out.pop_back();
      out += "\n";
    }
    out +=
        "  NVL NVLink, NVB NVLink by another GPU, C2C chip to chip, PIX one PCIe switch, PXB "
        "several, P2C C2C and PCIe,\n"
        "  PXN NVLink and another GPU's PCIe, PHB by the CPU, SYS between CPUs, NET the network, "
        "DIS no way\n";
  }
  return out;
}

std::string show_json(const Fabric& f) {
  const Cluster& c = f.cluster();
  io::OrderedJson j{{"name", c.name},
                    {"pattern", name_of(c.pattern)},
                    {"hosts", c.hosts},
                    {"devices", c.devices()},
                    {"devices_per_host", c.devices_per_host},
                    {"nics_per_host", c.nics_per_host}};
  j["inside"] = c.inside ? name_of(c.inside->pattern) : c.intra ? "switch" : "one device";
  j["links"] = io::OrderedJson::array();
  for (const auto& g : topology::link_groups(f))
    j["links"].push_back({{"what", g.what},
                          {"kind", name_of(g.kind)},
                          {"transport", g.transport},
                          {"bits_per_s", g.bandwidth.bits_per_s},
                          {"latency_ps", g.latency.ps},
                          {"cables", g.cables}});
  auto d = topology::diameter(f);
  j["diameter"] = {{"links", d.links}, {"latency_ps", d.latency.ps}, {"sources", d.sources}};
  auto cut = [](std::int64_t bits) { return bits < 0 ? io::OrderedJson() : io::OrderedJson(bits); };
  j["bisection"] = {{"between_hosts_bits_per_s", cut(topology::bisection_between_hosts(f))},
                    {"inside_host_bits_per_s", cut(topology::bisection_inside(f, 0))}};
  double over = topology::oversubscription(f);
  j["oversubscription"] = over > 0 ? io::OrderedJson(over) : io::OrderedJson();
  const auto devices = f.devices_of(HostId{});
  auto matrix = [&](int columns, auto type) {
    io::OrderedJson rows = io::OrderedJson::array();
    for (DeviceId a : devices) {
      io::OrderedJson row = io::OrderedJson::array();
      for (int b = 0; b < columns; ++b) row.push_back(name_of(type(a, b)));
      rows.push_back(std::move(row));
    }
    return rows;
  };
  j["path_types"] = matrix(c.devices_per_host, [&](DeviceId a, int b) {
    return f.path_type(a, f.device_of(HostId{}, b));
  });
  j["nic_path_types"] = matrix(f.has_nic_links() ? c.nics_per_host : 0,
                               [&](DeviceId a, int k) { return f.nic_path_type(a, k); });
  j["nic_of"] = io::OrderedJson::array();
  for (DeviceId a : devices) j["nic_of"].push_back(f.nic_of(a));
  return j.dump(1) + "\n";
}

void check(Terminal& t, const TopologyFlags& flags, const Fabric& f) {
  auto found = topology::findings(f);
  io::Home home = home_of(t);
  try {
    Profile p = load_profile(home, f.cluster().profile);
    for (const std::string& transport : f.transports())
      if (!p.transports.count(transport))
        found.push_back(
            {Severity::Error, "profile \"" + p.name + "\" has no transport \"" + transport +
                                  "\": nothing can be predicted with it on this cluster"});
  } catch (const InputError& e) {
    found.push_back({Severity::Warning,
                     "the profile of its devices cannot be read: " + e.where + ": " + e.what});
  }
  std::map<Severity, int> count;
  for (const auto& x : found) ++count[x.severity];
  bool usable = count[Severity::Error] == 0;
  if (flags.output.format == "json") {
    io::OrderedJson j{
        {"name", f.cluster().name}, {"usable", usable}, {"findings", io::OrderedJson::array()}};
    for (const auto& x : found)
      j["findings"].push_back({{"severity", name_of_severity(x.severity)}, {"text", x.text}});
    write_answer(t, flags.output, j.dump(1) + "\n");
  } else {
    std::string out =
        fmt::format("{}: {}\n", f.cluster().name,
                    usable ? "usable: every device reaches every other" : "NOT usable");
    for (Severity s : {Severity::Error, Severity::Warning, Severity::Note})
      for (const auto& x : found)
        if (x.severity == s) out += fmt::format("  {:<8} {}\n", name_of_severity(s), x.text);
    write_answer(t, flags.output, out);
  }
  if (usable) return;
  for (const auto& x : found)
    if (x.severity == Severity::Error)
      t.err << "ddpsim: " << f.cluster().name << ": " << x.text << "\n";
  throw GateFailed{};
}

void topology_command(Terminal& t, TopologyFlags flags) {
  const std::vector<std::string> known{"show", "check", "draw"};
  if (std::find(known.begin(), known.end(), flags.what) == known.end()) {
    std::string hint = io::nearest(flags.what, known);
    throw InputError{
        "topology " + flags.what,
        hint.empty()
            ? "expected show, check or draw, and then the cluster: ddpsim topology show NAME"
            : "unknown (did you mean \"" + hint + "\"?)"};
  }
  if (!flags.cluster.empty() && !flags.cluster_flag.empty())
    throw InputError{"--cluster " + flags.cluster_flag,
                     "a cluster is named already: \"" + flags.cluster + "\"; keep one"};
  const std::string& name = flags.cluster.empty() ? flags.cluster_flag : flags.cluster;
  if (name.empty())
    throw InputError{"topology " + flags.what, "name a cluster: ddpsim topology " + flags.what +
                                                   " NAME (ddpsim list clusters)"};
  bool draws = flags.what == "draw";
  std::string& format = flags.output.format;
  if (format.empty()) format = draws ? "dot" : "table";
  bool picture = format == "dot" || format == "svg";
  if (picture != draws)
    throw InputError{"--format " + format,
                     draws ? "a picture is dot or svg"
                           : "topology " + flags.what +
                                 " answers as table or json; dot and svg are of topology draw"};
  Fabric fabric(load_cluster(t, name, flags.sets));
  if (flags.what == "check") return check(t, flags, fabric);
  if (flags.what == "show")
    return write_answer(t, flags.output, format == "json" ? show_json(fabric) : show_table(fabric));
  std::string dot = report::topology_dot(fabric);
  write_answer(t, flags.output, format == "svg" ? graphviz_svg(dot) : dot);
}

}  // namespace

void add_topology(Command& app, Terminal& t) {
  auto flags = std::make_shared<TopologyFlags>();
  Command* c = app.add_subcommand("topology",
                                  "Show, check or draw a cluster's links: kinds, capacities, path "
                                  "types, single points of failure");
  c->add_option("what", flags->what, "show, check (exit 1 if the cluster cannot be used) or draw")
      ->required();
  c->add_option("name", flags->cluster,
                "cluster: a file, or the name of a shipped one (ddpsim list clusters)");
  c->add_option("--cluster", flags->cluster_flag, "the same, as a flag");
  c->add_option("--set", flags->sets,
                "cluster.PATH=VALUE, repeatable: cluster.hosts=16, cluster.link.bandwidth=40Gb/s")
      ->allow_extra_args(false);
  add_output_flags(*c, flags->output, {"table", "json", "dot", "svg"},
                   "show and check: table (default) or json; draw: dot (default) or svg");
  flags->output.format.clear();
  c->callback([&t, flags] { topology_command(t, *flags); });
}

}  // namespace ddpsim::cli
