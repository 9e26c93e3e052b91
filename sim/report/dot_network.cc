#include "sim/report/dot_parts.h"

namespace ddpsim::report {

void draw_switches(Drawing& dot) {
  for (int s = 0; s < dot.fabric().network().switches(); ++s)
    if (!dot.is_host(s)) dot.switch_node(s);
}

// Routers stand in a row, and their cables arch over it; other switches have the hosts' side below.
void draw_trunks(Drawing& dot) {
  const topology::Network& network = dot.fabric().network();
  Pattern pattern = dot.cluster().pattern;
  bool routers =
      pattern == Pattern::Ring || pattern == Pattern::Torus || pattern == Pattern::Dragonfly;
  if (routers) {
    std::vector<std::string> ids;
    for (int s = 0; s < network.switches(); ++s) ids.push_back(dot.switch_id(s));
    dot.row(ids);
  }
  for (std::uint32_t t = 0; t < network.trunks().size(); ++t) {
    const auto& k = network.trunks()[t];
    bool up = std::string(network.role_of(k.from)) != network.role_of(k.to) &&
              pattern != Pattern::Graph;  // leaf to spine: the spine on top
    dot.edge(dot.switch_id(up ? k.to : k.from), dot.switch_id(up ? k.from : k.to),
             dot.fabric().trunk_link(t), "", !routers, routers ? ":n" : "");
  }
}

}  // namespace ddpsim::report
