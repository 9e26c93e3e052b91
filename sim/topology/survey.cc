#include "sim/topology/survey.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace ddpsim::topology {
namespace {

std::string number(std::int64_t n) {
  return std::to_string(n);
}

std::string what_inside(const HostGraph& g, const HostGraph::Edge& e) {
  auto name = [&](int v) {
    std::string k = name_of(g.vertices[v].kind);
    return k == "nic"                 ? std::string("NIC")
           : k == "gpu" || k == "cpu" ? k == "gpu" ? std::string("GPU") : std::string("CPU")
           : k == "nvswitch" ? std::string("NVSwitch")
                                      : std::string("PCIe switch");
  };
  return name(e.from) + " - " + name(e.to);
}

std::vector<DeviceId> spread(int count, int most) {
  std::vector<DeviceId> out;
  int n = std::min(count, most);
  for (int i = 0; i < n; ++i)
    out.push_back(DeviceId::at(static_cast<int>(std::int64_t{i} * count / n)));
  return out;
}

void check_nics(const Fabric& f, std::vector<Finding>& out) {
  const Cluster& c = f.cluster();
  if (!f.has_nic_links() || c.hosts < 2) return;
  const std::int64_t unused = unused_nics(f);
  if (unused > 0)
    out.push_back(
        {Severity::Note,
         number(unused) + " of " + number(f.nics_per_host()) +
             " NICs of a host are no GPU's nearest: only what is sent by a chosen NIC uses them"});
  if (!f.drawn() || !f.inside(HostId{}).draws_nics()) {
    if (c.device == DeviceKind::Gpu)
      out.push_back(
          {Severity::Note,
           "no ways from GPUs to NICs are drawn: they cost nothing and are never the bottleneck"});
    return;
  }
  for (DeviceId d : f.devices_of(HostId{})) {
    const LocalPath& p = f.inside(HostId{}).to_nic(f.local_of(d), f.nic_of(d));
    Bandwidth nic = f.links()[f.nic_link(HostId{}, f.nic_of(d))].bandwidth;
    if (p.type != PathType::Dis && p.bits_per_s < nic.bits_per_s) {
      out.push_back({Severity::Warning, "the way from GPU " + number(f.local_of(d)) +
                                            " to its NIC carries " +
                                            to_string(Bandwidth{p.bits_per_s}) +
                                            ", less than the NIC's " + to_string(nic)});
      break;
    }
  }
  for (DeviceId d : f.devices_of(HostId{}))
    if (PathType t = f.nic_path_type(d, f.nic_of(d)); t == PathType::Phb || t == PathType::Sys) {
      out.push_back(
          {Severity::Note, "GPU " + number(f.local_of(d)) + " reaches its NIC by " + name_of(t) +
                               ", farther than NCCL sends from GPU memory by default (PXB)"});
      break;
    }
}

void check_network(const Fabric& f, std::vector<Finding>& out) {
  const Cluster& c = f.cluster();
  if (c.hosts < 2 || !f.has_nic_links()) return;
  std::int64_t nic = c.link.bandwidth.bits_per_s;
  std::int64_t thin = 0;
  std::uint32_t first = 0;
  for (std::uint32_t t = 0; t < f.network().trunks().size(); ++t)
    if (f.links()[f.trunk_link(t)].bandwidth.bits_per_s < nic && thin++ == 0) first = t;
  if (thin > 0)
    out.push_back({Severity::Warning, number(thin) + " trunk" + (thin == 1 ? " is" : "s are") +
                                          " slower than one NIC (" + to_string(Bandwidth{nic}) +
                                          "), for example " + f.link_name(f.trunk_link(first)) +
                                          " with " +
                                          to_string(f.links()[f.trunk_link(first)].bandwidth)});
  if (double over = oversubscription(f); over > 1.0001) {
    auto hundredths = static_cast<std::int64_t>(over * 100 + 0.5);
    std::string text = number(hundredths / 100);
    if (hundredths % 100 != 0)
      text += "." + number(hundredths % 100 / 10) +
              (hundredths % 10 != 0 ? number(hundredths % 10) : "");
    out.push_back({Severity::Warning,
                   "oversubscribed " + text +
                       ":1: the NICs below a switch can send more than its uplinks carry"});
  }
}

}  // namespace

std::vector<LinkGroup> link_groups(const Fabric& f, std::vector<std::uint32_t>* group_of_cable) {
  std::vector<LinkGroup> out;
  if (group_of_cable) group_of_cable->assign(f.links().size() / 2, 0);
  std::map<std::tuple<std::string, int, std::string, std::int64_t, std::int64_t>, std::size_t>
      index;
  auto add = [&](LinkId l, const std::string& what) {
    const Link& link = f.links()[l];
    const std::string& transport = f.transports()[link.transport];
    auto [it, fresh] = index.emplace(std::tuple(what, static_cast<int>(link.kind), transport,
                                                link.bandwidth.bits_per_s, link.latency.ps),
                                     out.size());
    if (fresh) out.push_back({what, link.kind, transport, link.bandwidth, link.latency, 0});
    ++out[it->second].cables;
    if (group_of_cable) (*group_of_cable)[l / 2] = static_cast<std::uint32_t>(it->second);
  };
  const Cluster& c = f.cluster();
  if (f.drawn())
    for (HostId h : each<HostId>(c.hosts))
      for (std::uint32_t i = 0; i < f.host_graph().links.size(); ++i)
        add(f.inside_link(h, 2 * i), what_inside(f.host_graph(), f.host_graph().links[i]));
  if (c.intra)
    for (DeviceId d : each<DeviceId>(c.devices())) add(f.intra_link(d), "device - host's switch");
  if (f.has_nic_links())
    for (HostId h : each<HostId>(c.hosts))
      for (int k = 0; k < c.nics_per_host; ++k)
        add(f.nic_link(h, k),
            std::string("NIC - ") + f.network().role_of(f.network().switch_of(h, k)));
  for (std::uint32_t t = 0; t < f.network().trunks().size(); ++t) {
    const Trunk& k = f.network().trunks()[t];
    add(f.trunk_link(t),
        std::string(f.network().role_of(k.from)) + " - " + f.network().role_of(k.to));
  }
  return out;
}

Diameter diameter(const Fabric& f) {
  Diameter out;
  auto sources = spread(f.devices(), f.devices() <= 1024 ? 1024 : 64);
  out.sources = static_cast<int>(sources.size());
  Route route;
  for (DeviceId from : sources)
    for (DeviceId to : each<DeviceId>(f.devices())) {
      if (from == to || !f.reachable(from, to)) continue;
      f.find_route(from, to, route);
      out.latency = std::max(out.latency, route.latency);
      if (std::ssize(route.links) <= out.links) continue;
      out.links = static_cast<int>(route.links.size());
      out.from = from;
      out.to = to;
    }
  return out;
}

double oversubscription(const Fabric& f) {
  const Cluster& c = f.cluster();
  if (c.pattern != Pattern::Racks && c.pattern != Pattern::FatTree &&
      c.pattern != Pattern::RailOptimised)
    return 0;
  std::size_t n = f.network().switches();
  std::vector<double> below(n, 0);
  std::vector<double> up(n, 0);
  for (HostId h : each<HostId>(c.hosts))
    for (int k = 0; k < c.nics_per_host; ++k)
      if (LinkId l = f.nic_link(h, k); !f.failed(l))
        below[f.network().switch_of(h, k)] +=
            static_cast<double>(f.links()[l].bandwidth.bits_per_s);
  for (std::uint32_t t = 0; t < f.network().trunks().size(); ++t)
    if (LinkId l = f.trunk_link(t); !f.failed(l))
      up[f.network().trunks()[t].from] += static_cast<double>(f.links()[l].bandwidth.bits_per_s);
  double worst = 0;
  for (std::size_t s = 0; s < n; ++s)
    if (below[s] > 0 && up[s] > 0) worst = std::max(worst, below[s] / up[s]);
  return worst;
}

std::vector<Finding> findings(const Fabric& f) {
  std::vector<Finding> out;
  const Cluster& c = f.cluster();
  if (auto p = check_reachable(f, first_devices(c.devices())))
    out.push_back({Severity::Error, p.message});
  check_network(f, out);
  check_nics(f, out);
  if (!c.failed_links.empty())
    out.push_back({Severity::Warning,
                   number(std::ssize(c.failed_links)) + " failed link(s): routes go round them"});
  if (!c.degraded_links.empty() || !c.slow_links.empty())
    out.push_back(
        {Severity::Warning, number(std::ssize(c.degraded_links) + std::ssize(c.slow_links)) +
                                " degraded or slow link(s)"});
  auto points = single_points_of_failure(f);
  for (const std::string& p : points)
    out.push_back({Severity::Note, "single point of failure: " + p});
  return out;
}

int unused_nics(const Fabric& f) {
  const Cluster& c = f.cluster();
  if (!f.has_nic_links() || c.hosts < 2) return 0;
  std::vector<int> serves(f.nics_per_host(), 0);
  for (DeviceId d : f.devices_of(HostId{})) ++serves[f.nic_of(d)];
  return static_cast<int>(std::count(serves.begin(), serves.end(), 0));
}

std::string unused_nics_sentence(const Fabric& f, const std::vector<DeviceId>& devices) {
  const Cluster& c = f.cluster();
  const int unused = unused_nics(f);
  if (unused == 0 || c.device != DeviceKind::Gpu) return "";
  if (on_one_host(f, devices)) return "";
  const int used = f.nics_per_host() - unused;
  return number(unused) + " of the " + number(f.nics_per_host()) +
         " NICs of a host carry nothing here: each GPU sends by its nearest NIC alone, and they "
         "are no GPU's nearest. NCCL spreads channels over all NICs that are as near, so that this "
         "may "
         "be too slow by up to " +
         number(f.nics_per_host()) + "/" + number(used) +
         " where the network limits; to reckon with all of them, say as many NICs as GPUs with the "
         "bandwidth of what each GPU has";
}

}  // namespace ddpsim::topology
