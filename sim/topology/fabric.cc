#include "sim/topology/fabric.h"

#include <algorithm>
#include <unordered_map>

namespace ddpsim::topology {
namespace {

constexpr std::size_t kMaxTable = std::size_t{1} << 26;

// "host0 up" and "host0 down" are directions of the cable "host0".
std::string cable_of(const std::string& name) {
  for (const char* way : {" up", " down"})
    if (name.ends_with(way))
      return name.substr(0, name.size() - std::char_traits<char>::length(way));
  return name;
}

}  // namespace

Fabric::Fabric(const Cluster& cluster) : cluster_(cluster), network_(cluster) {
  const Cluster& c = cluster_;
  if (c.inside) {
    host_graph_ = expand(*c.inside, c.devices_per_host, c.nics_per_host);
    hosts_.emplace_back(host_graph_);
    host_links_ = static_cast<LinkId>(2 * host_graph_.links.size());
    for (int h = 0; h < c.hosts; ++h)
      for (const auto& l : host_graph_.links) add(l.link, topology::kind_of(l.link.transport));
  }
  if (c.intra) {
    intra_transport_ = transport_id(c.intra->transport);
    for (int d = 0; d < c.devices(); ++d) add(*c.intra, topology::kind_of(c.intra->transport));
  }
  if (has_nic_links()) {
    net_transport_ = transport_id(c.link.transport);
    nic_base_ = static_cast<LinkId>(links_.size());
    for (HostId h : each<HostId>(c.hosts)) {
      LinkSpec nic = c.link;
      for (const SlowLink& s : c.slow_links)
        if (s.host == h) nic.bandwidth = s.bandwidth;
      for (int k = 0; k < c.nics_per_host; ++k) add(nic, LinkKind::Net);
    }
  }
  trunk_base_ = static_cast<LinkId>(links_.size());
  for (const Trunk& t : network_.trunks()) add(network_.specs()[t.spec], LinkKind::Net);
  if (!has_nic_links() && trunk_base_ < links_.size())
    net_transport_ = links_[trunk_base_].transport;
  if (!c.failed_links.empty() || !c.degraded_links.empty()) apply_faults();
}

std::uint8_t Fabric::transport_id(const std::string& name) {
  auto it = std::find(transports_.begin(), transports_.end(), name);
  if (it == transports_.end()) it = transports_.insert(transports_.end(), name);
  return static_cast<std::uint8_t>(it - transports_.begin());
}

LinkId Fabric::add(const LinkSpec& spec, LinkKind kind) {
  Link l{spec.bandwidth, spec.latency, spec.burst, spec.peak, transport_id(spec.transport),
         spec.eager,     spec.staging, kind};
  links_.push_back(l);
  links_.push_back(l);
  return static_cast<LinkId>(links_.size() - 2);
}

int Fabric::group_of(HostId host) const {
  const Cluster& c = cluster_;
  switch (c.pattern) {
    case Pattern::Racks:
      return host.number / ((c.hosts + c.racks - 1) / c.racks);
    case Pattern::FatTree:
      return host.number / c.hosts_per_leaf;
    case Pattern::RailOptimised:
      return host.number / c.hosts_per_group;
    case Pattern::Dragonfly:
      return host.number / (c.routers_per_group * c.hosts_per_router);
    case Pattern::Nvl72:
      return host.number / c.hosts_per_rack;
    case Pattern::Star:
    case Pattern::Graph:
    case Pattern::Ring:
    case Pattern::Torus:
      return 0;
  }
  return 0;
}

void Fabric::apply_faults() {
  const Cluster& c = cluster_;
  std::unordered_map<std::string, LinkId> by_name;
  for (LinkId l = 0; l < links_.size(); ++l) {
    std::string name = link_name(l);
    by_name.emplace(cable_of(name), l / 2);
    by_name.emplace(std::move(name), l / 2);
  }
  for (std::size_t i = 0; i < c.degraded_links.size(); ++i) {
    const DegradedLink& d = c.degraded_links[i];
    std::string path = "/degraded_links/" + std::to_string(i);
    auto it = by_name.find(d.link);
    if (it == by_name.end()) {
      ignored_.push_back({path + "/link", d.link, ""});
      continue;
    }
    for (LinkId l : {2 * it->second, 2 * it->second + 1}) {
      std::int64_t had = links_[l].bandwidth.bits_per_s;
      std::int64_t left =
          d.bandwidth.bits_per_s > 0
              ? d.bandwidth.bits_per_s
              : std::max<std::int64_t>(
                    1, static_cast<std::int64_t>(static_cast<double>(had) * d.fraction));
      if (left > had) {
        ignored_.push_back({path + "/bandwidth", d.link,
                            "more than the link has when it is whole (" +
                                to_string(Bandwidth{had}) + "); a degraded link carries less"});
        break;
      }
      links_[l].bandwidth.bits_per_s = left;
    }
  }
  std::vector<std::uint32_t> trunks;
  std::map<HostId, std::vector<bool>> inside_failed;
  if (!c.failed_links.empty()) failed_cables_.assign(links_.size() / 2, false);
  for (std::size_t i = 0; i < c.failed_links.size(); ++i) {
    std::string path = "/failed_links/" + std::to_string(i);
    auto it = by_name.find(c.failed_links[i]);
    if (it == by_name.end()) {
      ignored_.push_back({path, c.failed_links[i], ""});
      continue;
    }
    LinkId l = 2 * it->second;
    if (l >= trunk_base_) {
      trunks.push_back((l - trunk_base_) / 2);
    } else if (has_nic_links() && l >= nic_base_) {
      dead_nics_.resize(static_cast<std::size_t>(c.hosts) * c.nics_per_host, false);
      dead_nics_[(l - nic_base_) / 2] = true;
    } else if (drawn()) {
      auto& failed = inside_failed[HostId::at(static_cast<int>(l / host_links_))];
      failed.resize(host_graph_.links.size(), false);
      failed[l % host_links_ / 2] = true;
    } else {
      ignored_.push_back({path, c.failed_links[i],
                          "a device's only link inside its host cannot fail; draw the host with "
                          "\"inside\", where there may be another way"});
      continue;
    }
    failed_cables_[it->second] = true;
  }
  for (const auto& [host, failed] : inside_failed) {
    other_hosts_[host] = hosts_.size();
    hosts_.emplace_back(host_graph_, failed);
  }
  std::size_t n = network_.switches();
  if (!trunks.empty() && n * n > kMaxTable)
    ignored_.push_back(
        {"/failed_links", "",
         "ways around a failed link are found in networks of up to 8,192 switches; this one has " +
             std::to_string(n)});
  else
    network_.fail(trunks);
}

std::size_t Fabric::kind_of_host(HostId host) const {
  auto it = other_hosts_.find(host);
  return it == other_hosts_.end() ? 0 : it->second;
}

int Fabric::usable_nic(HostId host, int nic) const {
  int n = cluster_.nics_per_host;
  if (dead_nics_.empty()) return nic;
  for (int k = 0; k < n; ++k)
    if (!dead_nics_[host.number * n + (nic + k) % n]) return (nic + k) % n;
  return nic;
}

bool Fabric::reaches_nic(DeviceId device, int nic) const {
  const HostId host = host_of(device);
  if (!dead_nics_.empty() && dead_nics_[host.number * cluster_.nics_per_host + nic]) return false;
  return !drawn() || !hosts_.front().draws_nics() ||
         inside(host).to_nic(local_of(device), nic).type != PathType::Dis;
}

bool Fabric::in_rack(DeviceId a, DeviceId b) const {
  if (!same_rack(host_of(a), host_of(b))) return false;
  return !drawn() || (inside(host_of(a)).to_nvswitch(local_of(a)) != UINT32_MAX &&
                      inside(host_of(b)).to_nvswitch(local_of(b)) != UINT32_MAX);
}

bool Fabric::reachable(DeviceId from, DeviceId to) const {
  const HostId a = host_of(from);
  const HostId b = host_of(to);
  if (a == b)
    return !drawn() || inside(a).between(local_of(from), local_of(to)).type != PathType::Dis;
  if (in_rack(from, to)) return true;
  int nic_a = nic_of(from);
  int nic_b = nic_of(to);
  return reaches_nic(from, nic_a) && reaches_nic(to, nic_b) &&
         network_.reachable(a, nic_a, b, nic_b);
}

void Fabric::append_local(HostId host, const LocalPath& path, std::vector<LinkId>& links) const {
  for (std::uint32_t l : path.links) links.push_back(inside_link(host, l));
}

LinkId Fabric::nvlink_up(DeviceId device) const {
  return drawn()
             ? inside_link(host_of(device), inside(host_of(device)).to_nvswitch(local_of(device)))
             : intra_link(device);
}

LinkId Fabric::nvlink_down(DeviceId device) const {
  return drawn()
             ? inside_link(host_of(device), inside(host_of(device)).from_nvswitch(local_of(device)))
             : intra_link(device) + 1;
}

LinkId Fabric::append_inside(DeviceId from, DeviceId to, std::vector<LinkId>& links) const {
  const HostId host = host_of(from);
  if (host == host_of(to) && drawn()) {
    const LocalPath& path = inside(host).between(local_of(from), local_of(to));
    append_local(host, path, links);
    return inside_link(host, path.decides);
  }
  links.push_back(nvlink_up(from));
  links.push_back(nvlink_down(to));
  return links[links.size() - 2];
}

void Fabric::finish(Route& route) const {
  route.latency = {};
  for (LinkId l : route.links) route.latency += links_[l].latency;
}

void Fabric::find_route(DeviceId from, DeviceId to, Route& route) const {
  if (host_of(from) != host_of(to) && !in_rack(from, to))
    return find_route_by_nics(from, nic_of(from), to, nic_of(to), route);
  route.links.clear();
  route.transport = links_[append_inside(from, to, route.links)].transport;
  finish(route);
}

void Fabric::find_links(DeviceId from, DeviceId to, std::vector<LinkId>& links) const {
  if (host_of(from) != host_of(to) && !in_rack(from, to))
    return find_links_by_nics(from, nic_of(from), to, nic_of(to), links);
  links.clear();
  append_inside(from, to, links);
}

void Fabric::append_exit(DeviceId device, int nic, std::vector<LinkId>& links) const {
  const HostId host = host_of(device);
  if (drawn() && hosts_.front().draws_nics())
    append_local(host, inside(host).to_nic(local_of(device), nic), links);
  if (has_nic_links()) links.push_back(nic_link(host, nic));
}

std::uint8_t Fabric::append_crossing(HostId from_host, int from_nic, HostId to_host, int to_nic,
                                     std::vector<LinkId>& links) const {
  std::size_t first = links.size();
  network_.find_way(from_host, from_nic, to_host, to_nic, links);
  for (std::size_t i = first; i < links.size(); ++i) links[i] += trunk_base_;
  return has_nic_links() ? net_transport_ : links_[links[first]].transport;
}

void Fabric::append_entry(int nic, DeviceId device, std::vector<LinkId>& links) const {
  const HostId host = host_of(device);
  if (has_nic_links()) links.push_back(nic_link(host, nic) + 1);
  if (drawn() && hosts_.front().draws_nics())
    append_local(host, inside(host).from_nic(nic, local_of(device)), links);
}

std::uint8_t Fabric::append_by_nics(DeviceId from, int from_nic, DeviceId to, int to_nic,
                                    std::vector<LinkId>& links) const {
  const HostId a = host_of(from);
  const HostId b = host_of(to);
  from_nic = usable_nic(a, from_nic);
  to_nic = usable_nic(b, to_nic);
  append_exit(from, from_nic, links);
  std::uint8_t transport = append_crossing(a, from_nic, b, to_nic, links);
  append_entry(to_nic, to, links);
  return transport;
}

void Fabric::find_route_by_nics(DeviceId from, int from_nic, DeviceId to, int to_nic,
                                Route& route) const {
  route.links.clear();
  route.transport = append_by_nics(from, from_nic, to, to_nic, route.links);
  finish(route);
}

void Fabric::find_links_by_nics(DeviceId from, int from_nic, DeviceId to, int to_nic,
                                std::vector<LinkId>& links) const {
  links.clear();
  append_by_nics(from, from_nic, to, to_nic, links);
}

PathType Fabric::path_type_by_cpu(DeviceId from, DeviceId to) const {
  const HostId host = host_of(from);
  if (host != host_of(to)) return PathType::Dis;
  if (drawn()) return inside(host).by_cpu(local_of(from), local_of(to)).type;
  return links_[intra_link(from)].kind == LinkKind::Nvlink ? PathType::Dis : PathType::Phb;
}

void Fabric::find_route_by_cpu(DeviceId from, DeviceId to, Route& route) const {
  if (!drawn()) return find_route(from, to, route);
  const HostId host = host_of(from);
  const LocalPath& path = inside(host).by_cpu(local_of(from), local_of(to));
  route.links.clear();
  append_local(host, path, route.links);
  route.transport = links_[inside_link(host, path.decides)].transport;
  finish(route);
}

PathType Fabric::path_type(DeviceId from, DeviceId to) const {
  if (from == to) return PathType::Loc;
  const HostId a = host_of(from);
  if (a != host_of(to))
    return in_rack(from, to) ? PathType::Nvl : reachable(from, to) ? PathType::Net : PathType::Dis;
  if (drawn()) return inside(a).between(local_of(from), local_of(to)).type;
  switch (links_[intra_link(from)].kind) {
    case LinkKind::Nvlink:
      return PathType::Nvl;
    case LinkKind::C2c:
      return PathType::C2c;
    case LinkKind::Pcie:
      return PathType::Pix;
    default:
      return PathType::Phb;
  }
}

PathType Fabric::nic_path_type(DeviceId device, int nic) const {
  const HostId host = host_of(device);
  if (drawn() && hosts_.front().draws_nics())
    return inside(host).to_nic(local_of(device), nic).type;
  if (nic == nic_of(device)) return PathType::Pix;
  for (DeviceId d : devices_of(host))
    if (nic_of(d) == nic && path_type(device, d) == PathType::Nvl) return PathType::Pxn;
  return PathType::Phb;
}

PathType Fabric::nic_back_path_type(DeviceId device, int nic) const {
  if (drawn() && hosts_.front().draws_nics())
    return inside(host_of(device)).from_nic(nic, local_of(device)).type;
  return nic == nic_of(device) ? PathType::Pix : PathType::Phb;
}

bool Fabric::nvlink_domain(DeviceId a, DeviceId b) const {
  if (a == b) return true;
  if (host_of(a) != host_of(b)) return in_rack(a, b);
  return drawn() ? inside(host_of(a)).nvlink_domain(local_of(a), local_of(b))
                 : links_[intra_link(a)].kind == LinkKind::Nvlink;
}

std::string Fabric::link_name(LinkId link) const {
  const Cluster& c = cluster_;
  auto way = [](LinkId offset) { return std::string(offset % 2 == 0 ? " up" : " down"); };
  LinkId inside_end = has_nic_links() ? nic_base_ : trunk_base_;
  if (link < inside_end && c.intra) {
    LinkId d = link / 2;
    const LinkId per_host = c.devices_per_host;
    return "host" + std::to_string(d / per_host) + ".dev" + std::to_string(d % per_host) + " " +
           c.intra->transport + way(link);
  }
  if (link < inside_end) {
    const auto& l = host_graph_.links[link % host_links_ / 2];
    const std::string& from = host_graph_.vertices[link % 2 == 0 ? l.from : l.to].name;
    const std::string& to = host_graph_.vertices[link % 2 == 0 ? l.to : l.from].name;
    return "host" + std::to_string(link / host_links_) + "." + from + "->" + to + " " +
           l.link.transport;
  }
  if (link >= trunk_base_)
    return network_.trunk_name((link - trunk_base_) / 2, static_cast<int>(link % 2));
  LinkId offset = link - nic_base_;
  const LinkId nics = c.nics_per_host;
  std::string nic =
      c.nics_per_host > 1 ? ".nic" + std::to_string(offset / 2 % nics) : std::string();
  return "host" + std::to_string(offset / 2 / nics) + nic + way(offset);
}

bool Fabric::nics_reach(HostId host_a, HostId host_b) const {
  for (int k = 0; k < cluster_.nics_per_host; ++k)
    if (!network_.reachable(host_a, usable_nic(host_a, 0), host_b, usable_nic(host_b, k)) ||
        !network_.reachable(host_b, usable_nic(host_b, 0), host_a, usable_nic(host_a, k)))
      return false;
  return true;
}

bool on_one_host(const Fabric& f, const std::vector<DeviceId>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [&](DeviceId d) { return f.host_of(d) == f.host_of(devices.front()); });
}

Problem check_reachable(const Fabric& f, const std::vector<DeviceId>& devices) {
  auto host = [&](DeviceId d) { return to_string(f.host_of(d)); };
  auto sentence = [&](DeviceId from, DeviceId to) -> Problem {
    if (f.host_of(from) == f.host_of(to))
      return {"/inside", "no way inside host " + host(from) + " from GPU " +
                             std::to_string(f.local_of(from)) + " to GPU " +
                             std::to_string(f.local_of(to)) +
                             "; messages pass through switches and CPUs, and by NVLink through one "
                             "GPU: draw another link"};
    bool failed = !f.cluster().failed_links.empty();
    return {failed                                  ? "/failed_links"
            : f.cluster().pattern == Pattern::Graph ? "/links"
                                                    : "/inside",
            "no path from host " + host(from) + " to host " + host(to) +
                (failed ? ": every way crosses a failed link" : "") +
                "; every host that has a rank needs a route to the others"};
  };
  std::map<HostId, std::vector<DeviceId>>
      local;  // of hosts some of whose GPUs do not reach one another
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const DeviceId to = devices[(i + 1) % devices.size()];
    if (devices[i] != to && !f.reachable(devices[i], to)) return sentence(devices[i], to);
    if (f.drawn() && f.inside(f.host_of(devices[i])).split())
      local[f.host_of(devices[i])].push_back(devices[i]);
  }
  for (const auto& [h, members] : local)
    for (DeviceId a : members)
      for (DeviceId b : members)
        if (a != b && !f.reachable(a, b)) return sentence(a, b);
  // NCCL's channels are spread over all NICs of a host, whichever GPU is nearest to them.
  if (f.cluster().failed_links.empty() || f.nics_per_host() < 2) return {};
  const DeviceId first = devices.empty() ? DeviceId{} : devices.front();
  for (DeviceId to : devices)
    if (f.host_of(to) != f.host_of(first) && !f.nics_reach(f.host_of(first), f.host_of(to)))
      return {"/failed_links",
              "not every NIC of host " + host(first) + " reaches every NIC of host " + host(to) +
                  ": every way crosses a failed link, and NCCL uses all NICs of a host"};
  return {};
}

}  // namespace ddpsim::topology
