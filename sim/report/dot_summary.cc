#include <algorithm>
#include <map>
#include <set>

#include "sim/report/dot_parts.h"

namespace ddpsim::report {
namespace {

using topology::Fabric;
using topology::LinkKind;

constexpr std::size_t kMostTrunks = 24;

class Summary {
 public:
  explicit Summary(Drawing& dot) : dot_(dot), f_(dot.fabric()), c_(dot.cluster()) {}

  void draw() {
    draw_host(dot_, 0, fmt::format("inside each of {} hosts", thousands(c_.hosts)));
    bool by_role = switches_without_hosts() > kMostSwitches ||
                   (f_.has_nic_links() && f_.network().trunks().size() > kMostTrunks);
    // Hosts on the same switches.
    std::map<std::vector<int>, Group> groups;
    for (HostId h : each<HostId>(c_.hosts)) {
      std::vector<int> key;
      if (!by_role) key = switches_of(h);
      auto& g = groups[key];
      if (g.count++ == 0) g.first = h;
    }
    for (const auto& [key, g] : groups) {
      std::string label =
          by_role        ? fmt::format("host\n× {}", thousands(c_.hosts))
          : g.count == 1 ? fmt::format("host {}", g.first.number)
                         : fmt::format("hosts from {}\n× {}", g.first.number, thousands(g.count));
      dot_.add("  g{} [label=\"{}\", shape=box3d, fillcolor=\"#fafafa\"];\n", g.first.number,
               label_text(label));
    }
    if (by_role) {
      roles();
      return;
    }
    draw_switches(dot_);
    if (f_.has_nic_links()) {
      draw_trunks(dot_);
      for (const auto& [key, g] : groups) {
        std::map<int, int> nics;
        for (int k = 0; k < c_.nics_per_host; ++k) ++nics[f_.network().switch_of(g.first, k)];
        for (const auto& [s, n] : nics)
          dot_.edge(fmt::format("s{}", s), fmt::format("g{}", g.first.number),
                    f_.nic_link(g.first, 0),
                    g.count * n > 1 ? fmt::format("× {}", thousands(g.count * n)) : "");
      }
    } else {
      graph_edges(groups);
    }
    rack_groups();
  }

 private:
  // Hosts that are one box.
  struct Group {
    HostId first;
    int count = 0;
  };

  static std::string label_text(const std::string& s) {
    std::string out;
    for (char c : escaped(s)) out += c == '\n' ? std::string("\\n") : std::string(1, c);
    return out;
  }

  int switches_without_hosts() const {
    int n = 0;
    for (int s = 0; s < f_.network().switches() && n <= kMostSwitches; ++s)
      n += dot_.is_host(s) ? 0 : 1;
    return n;
  }

  // The switches that a host's cables end at; in a graph, those and the other hosts that it is
  // joined to.
  std::vector<int> switches_of(HostId h) {
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
    for (HostId h : each<HostId>(c_.hosts))
      group_of[f_.network().switch_of(h, 0)] = by_key[switches_of(h)];
    auto id = [&](int s) {
      return group_of.count(s) ? fmt::format("g{}", group_of[s]->first.number)
                               : fmt::format("s{}", s);
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
      dot_.edge(std::get<1>(key), std::get<0>(key), f_.trunk_link(bundle.first),
                bundle.second > 1 ? fmt::format("× {}", bundle.second) : "");
  }

  // One box a role.
  void roles() {
    std::map<std::string, std::int64_t> count;
    std::vector<std::string> order;
    for (int s = 0; s < f_.network().switches(); ++s) {
      if (dot_.is_host(s)) continue;
      std::string role = f_.network().role_of(s);
      if (count[role]++ == 0) order.push_back(role);
    }
    auto id = [&](const std::string& role) {
      auto at = std::find(order.begin(), order.end(), role) - order.begin();
      return at < static_cast<std::ptrdiff_t>(order.size()) ? fmt::format("r{}", at)
                                                            : std::string("g0");
    };
    for (const std::string& role : order)
      dot_.add("  {} [label=\"{}\\n× {}\", shape=box3d, fillcolor=\"#dfe7ee\"];\n", id(role),
               escaped(role), thousands(count[role]));
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
      dot_.add("  {} -- {} [color=\"{}\", penwidth=2.6, label=\"{}\"];\n", role, role,
               style_of(LinkKind::Net).colour, label);
    for (const auto& [key, bundle] : bundles)
      if (std::get<0>(key) != std::get<1>(key))
        dot_.edge(id(std::get<1>(key)), id(std::get<0>(key)), f_.trunk_link(bundle.first),
                  cables(bundle));
    if (f_.has_nic_links())
      dot_.edge(
          id(f_.network().role_of(f_.network().switch_of(0, 0))), "g0", f_.nic_link(0, 0),
          fmt::format("{} NIC{} of {} a host", c_.nics_per_host, c_.nics_per_host == 1 ? "" : "s",
                      to_string(f_.links()[f_.nic_link(0, 0)].bandwidth)));
    rack_groups();
  }

  void rack_groups() {
    if (c_.pattern != Pattern::Nvl72) return;
    int racks = (c_.hosts - 1) / c_.hosts_per_rack + 1;
    dot_.add(
        "  racks [label=\"NVLink switches of a rack\\n{} hosts, {} GPUs: one NVLink domain\\n× "
        "{}\", shape=box3d, fillcolor=\"{}\"];\n",
        c_.hosts_per_rack, c_.hosts_per_rack * c_.devices_per_host, racks,
        fill_of(VertexKind::Nvswitch));
    dot_.add("  g0 -- racks [color=\"{}\", penwidth=4];\n", style_of(LinkKind::Nvlink).colour);
  }

  Drawing& dot_;
  const Fabric& f_;
  const Cluster& c_;
  std::map<int, std::set<int>> neighbours_;
};

}  // namespace

void draw_summary(Drawing& dot) {
  Summary(dot).draw();
}

}  // namespace ddpsim::report
