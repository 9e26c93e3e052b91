// A fabric for the page's picture: every GPU, NIC and switch of few hosts; groups of equal cables
// of any.
#include <algorithm>

#include "sim/io/write_page.h"
#include "sim/topology/survey.h"

namespace ddpsim::io {
namespace {

using topology::Fabric;
using topology::LinkId;

// As report/topology_dot draws hosts one by one.
constexpr int kMostHosts = 8;
constexpr std::size_t kMostVertices = 200;

class Picture {
 public:
  Picture(const Fabric& f, const std::vector<double>& busy) : f_(f), c_(f.cluster()), busy_(busy) {}

  void draw(OrderedJson& out) {
    std::vector<int> switches;
    for (int s = 0; c_.hosts > 1 && s < f_.network().switches(); ++s)
      switches.push_back(is_host(s) ? -1
                                    : vertex(f_.network().switch_name(s), "switch", HostId::at(-1),
                                             f_.network().role_of(s)));
    for (HostId h : each<HostId>(c_.hosts)) {
      std::vector<int> nics = host(h);
      if (c_.hosts == 1) continue;
      if (f_.has_nic_links())
        for (int k = 0; k < c_.nics_per_host; ++k)
          cable(nics[k], switches[f_.network().switch_of(h, k)], f_.nic_link(h, k));
      else
        switches[f_.network().switch_of(h, 0)] = nics.front();
    }
    const auto& trunks = f_.network().trunks();
    for (std::uint32_t t = 0; c_.hosts > 1 && t < trunks.size(); ++t)
      cable(switches[trunks[t].from], switches[trunks[t].to], f_.trunk_link(t));
    out["vertices"] = std::move(vertices_);
    out["cables"] = std::move(cables_);
  }

 private:
  bool is_host(int s) const { return c_.pattern == Pattern::Graph && c_.nodes[s].host; }

  int vertex(const std::string& name, const std::string& kind, HostId h,
             const std::string& role = {}) {
    vertices_.push_back({{"name", name}, {"kind", kind}, {"host", h.number}});
    if (!role.empty()) vertices_.back()["role"] = role;
    return static_cast<int>(vertices_.size()) - 1;
  }

  void cable(int a, int b, LinkId l) {
    const topology::Link& link = f_.links()[l];
    cables_.push_back({{"from", a},
                       {"to", b},
                       {"kind", topology::name_of(link.kind)},
                       {"names", {f_.link_name(l), f_.link_name(l + 1)}},
                       {"bandwidth_bits_per_s",
                        {link.bandwidth.bits_per_s, f_.links()[l + 1].bandwidth.bits_per_s}},
                       {"busy", {busy_[l], busy_[l + 1]}}});
    if (f_.failed(l)) cables_.back()["failed"] = true;
  }

  // The vertices of its NICs.
  std::vector<int> host(HostId h) {
    if (!f_.drawn()) return plain_host(h);
    const HostGraph& g = f_.host_graph();
    std::vector<int> at;
    for (const HostVertex& v : g.vertices) at.push_back(vertex(v.name, ddpsim::name_of(v.kind), h));
    for (std::uint32_t i = 0; i < g.links.size(); ++i)
      cable(at[g.links[i].from], at[g.links[i].to], f_.inside_link(h, 2 * i));
    std::vector<int> nics;
    for (int v : g.nics) nics.push_back(at[v]);
    for (int k = static_cast<int>(nics.size()); k < c_.nics_per_host; ++k)
      nics.push_back(vertex("nic" + std::to_string(k), "nic", h));
    return nics;
  }

  // `intra`, or one device.
  std::vector<int> plain_host(HostId h) {
    std::vector<int> nics;
    for (int k = 0; k < c_.nics_per_host && c_.hosts > 1; ++k)
      nics.push_back(vertex(c_.nics_per_host > 1 ? "NIC " + std::to_string(k) : "NIC", "nic", h));
    const char* device = c_.device == DeviceKind::Gpu ? "GPU" : "process";
    std::vector<int> boxes;
    for (int d = 0; d < c_.devices_per_host; ++d)
      boxes.push_back(vertex(std::string(device) + " " + std::to_string(d), "device", h));
    if (!c_.intra) return nics;
    int hub = vertex(
        f_.links()[f_.intra_link(0)].kind == topology::LinkKind::Nvlink ? "NVSwitch" : "switch",
        "nvswitch", h);
    for (int d = 0; d < c_.devices_per_host; ++d)
      cable(boxes[d], hub, f_.intra_link(f_.device_of(h, d)));
    return nics;
  }

  const Fabric& f_;
  const Cluster& c_;
  const std::vector<double>& busy_;
  OrderedJson vertices_ = OrderedJson::array();
  OrderedJson cables_ = OrderedJson::array();
};

}  // namespace

OrderedJson page_topology(const Fabric& f, const std::vector<predict::LinkBusy>& use) {
  const Cluster& c = f.cluster();
  std::vector<double> busy(f.links().size(), 0);
  for (const predict::LinkBusy& u : use) busy[u.link] = u.busy;
  OrderedJson j{{"name", c.name},
                {"description", c.description},
                {"pattern", ddpsim::name_of(c.pattern)},
                {"hosts", c.hosts},
                {"devices_per_host", c.devices_per_host},
                {"nics_per_host", c.nics_per_host}};
  std::size_t inside = f.drawn()
                           ? f.host_graph().vertices.size()
                           : static_cast<std::size_t>(c.devices_per_host + c.nics_per_host + 1);
  if (c.hosts <= kMostHosts && inside * c.hosts <= kMostVertices) Picture(f, busy).draw(j);

  std::vector<std::uint32_t> group;
  auto groups = topology::link_groups(f, &group);
  struct Use {
    std::int64_t carrying = 0;
    double sum = 0, most = 0;
    LinkId busiest = 0;
  };
  std::vector<Use> of(groups.size());
  for (const predict::LinkBusy& u : use) {
    Use& g = of[group[u.link / 2]];
    ++g.carrying;
    g.sum += u.busy;
    if (u.busy > g.most) g.most = u.busy, g.busiest = u.link;
  }
  j["groups"] = OrderedJson::array();
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const topology::LinkGroup& g = groups[k];
    j["groups"].push_back({{"what", g.what},
                           {"kind", topology::name_of(g.kind)},
                           {"transport", g.transport},
                           {"bandwidth_bits_per_s", g.bandwidth.bits_per_s},
                           {"latency_ps", g.latency.ps},
                           {"links", 2 * g.cables},
                           {"carrying", of[k].carrying}});
    if (of[k].carrying == 0) continue;
    j["groups"].back()["busy_mean"] = of[k].sum / static_cast<double>(of[k].carrying);
    j["groups"].back()["busy_max"] = of[k].most;
    j["groups"].back()["busiest"] = f.link_name(of[k].busiest);
  }
  return j;
}

}  // namespace ddpsim::io
