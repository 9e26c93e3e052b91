// Vertices: GPUs, NICs, then switches and CPUs. GPU g of n on switch g * S / n of S (in order,
// evenly), NIC likewise; switch s on socket s * sockets / S.
#include "sim/model/inside.h"

#include <array>
#include <map>
#include <set>

#include "sim/units/by.h"

namespace ddpsim {
namespace {

bool has_nvlink(InsidePattern p) {
  return p != InsidePattern::PcieTree && p != InsidePattern::Drawn;
}

Problem check_drawn(const Inside& in, int devices, int nics) {
  if (in.vertices.size() > static_cast<std::size_t>(kMaxHostVertices))
    return {"/inside/vertices", "more than 512 vertices in a host"};
  std::map<std::string, VertexKind> kinds;
  int gpus = 0;
  int drawn_nics = 0;
  for (std::size_t i = 0; i < in.vertices.size(); ++i) {
    const HostVertex& v = in.vertices[i];
    std::string path = "/inside/vertices/" + std::to_string(i) + "/name";
    if (v.name.empty()) return {path, "a vertex needs a name"};
    if (!kinds.emplace(v.name, v.kind).second) return {path, "\"" + v.name + "\" appears twice"};
    gpus += v.kind == VertexKind::Gpu ? 1 : 0;
    drawn_nics += v.kind == VertexKind::Nic ? 1 : 0;
  }
  if (gpus != devices)
    return {"/devices_per_host",
            "the drawing has " + std::to_string(gpus) +
                " vertices of kind \"gpu\"; leave \"devices_per_host\" out, or give that number"};
  if (drawn_nics > 0 && drawn_nics != nics)
    return {"/nics_per_host",
            "the drawing has " + std::to_string(drawn_nics) +
                " vertices of kind \"nic\"; leave \"nics_per_host\" out, or give that number"};
  std::set<std::array<std::string, 3>> seen;
  for (std::size_t i = 0; i < in.links.size(); ++i) {
    const HostLink& l = in.links[i];
    std::string path = "/inside/links/" + std::to_string(i);
    for (const auto& [key, name] : {std::pair{"/from", &l.from}, {"/to", &l.to}})
      if (!kinds.count(*name)) return {path + key, "no vertex is named \"" + *name + "\""};
    if (l.from == l.to) return {path, "a link joins two different vertices"};
    if (!seen.insert({std::min(l.from, l.to), std::max(l.from, l.to), l.link.transport}).second)
      return {path, "\"" + l.from + "\" and \"" + l.to + "\" are already joined by " +
                        l.link.transport + "; give one link with the bandwidth of both"};
    bool gpu_end = kinds[l.from] == VertexKind::Gpu || kinds[l.to] == VertexKind::Gpu;
    if (l.link.transport == "upi" &&
        (kinds[l.from] != VertexKind::Cpu || kinds[l.to] != VertexKind::Cpu))
      return {path + "/transport", "\"upi\" joins two vertices of kind \"cpu\""};
    if (l.link.transport == "nvlink" && !gpu_end)
      return {path + "/transport", "\"nvlink\" has a GPU at one end or both"};
    if (auto p = check_link(l.link, path)) return p;
  }
  return {};
}

Problem check_tree(const Inside& in, int devices) {
  if (in.pcie && in.c2c)
    return {"/inside/c2c", "a GPU is joined to its CPU by \"pcie\" or by \"c2c\"; keep one"};
  if (!in.pcie && !in.c2c) {
    if (in.pattern == InsidePattern::PcieTree || in.pattern == InsidePattern::Pairs)
      return {"/inside/pcie",
              "this pattern needs \"pcie\", the link from each GPU to its PCIe switch or CPU"};
    for (const auto& [key, given] : {std::pair{"pcie_uplink", in.pcie_uplink.has_value()},
                                     {"nic_link", in.nic_link.has_value()},
                                     {"cpu_link", in.cpu_link.has_value()}})
      if (given)
        return {std::string("/inside/") + key,
                "needs \"pcie\" (or \"c2c\") beside it, the link from each GPU to its PCIe switch "
                "or CPU"};
  }
  if (in.c2c && in.switches_per_socket > 0)
    return {"/inside/switches_per_socket",
            "with \"c2c\" GPUs are on the CPU itself; leave the switches out"};
  if (in.c2c && !in.nic_link)
    return {"/inside/nic_link",
            "with \"c2c\" the NICs need \"nic_link\", their PCIe link to the CPU"};
  if (in.sockets < 1 || in.sockets > 16) return {"/inside/sockets", "1 to 16 sockets"};
  if (in.switches_per_socket < 0 || in.switches_per_socket > 16)
    return {"/inside/switches_per_socket", "0 (GPUs straight on the CPU) to 16 switches"};
  if (in.sockets > 1 && (in.pcie || in.c2c) && !in.cpu_link)
    return {"/inside/cpu_link", "more than one socket needs \"cpu_link\", the link between CPUs"};
  int ends = in.sockets * std::max(1, in.switches_per_socket);
  if (in.gpus_per_switch > 0 && ends * in.gpus_per_switch != devices)
    return {"/inside/gpus_per_switch", std::to_string(in.sockets) + " sockets of " +
                                           std::to_string(std::max(1, in.switches_per_socket)) +
                                           " make " + std::to_string(ends * in.gpus_per_switch) +
                                           " GPUs, but \"devices_per_host\" is " +
                                           std::to_string(devices)};
  if ((in.pcie || in.c2c) && devices % ends != 0)
    return {"/inside/sockets", std::to_string(devices) + " GPUs cannot be spread evenly over " +
                                   std::to_string(ends) +
                                   (in.switches_per_socket > 0 ? " PCIe switches" : " sockets")};
  return {};
}

class Builder {
 public:
  int add(std::string name, VertexKind kind) {
    g_.vertices.push_back({std::move(name), kind});
    int v = static_cast<int>(g_.vertices.size()) - 1;
    if (kind == VertexKind::Gpu) g_.gpus.push_back(v);
    if (kind == VertexKind::Nic) g_.nics.push_back(v);
    return v;
  }
  std::vector<int> add_many(const std::string& stem, VertexKind kind, int count) {
    std::vector<int> out;
    for (int i = 0; i < count; ++i)
      out.push_back(add(stem + (count > 1 || kind == VertexKind::Gpu || kind == VertexKind::Nic
                                    ? std::to_string(i)
                                    : ""),
                        kind));
    return out;
  }
  void join(int from, int to, const LinkSpec& link, int times = 1) {
    LinkSpec l = link;
    l.bandwidth.bits_per_s *= times;
    g_.links.push_back({from, to, l});
  }
  HostGraph take() { return std::move(g_); }

 private:
  HostGraph g_;
};

void join_nvlinks(Builder& b, const Inside& in, const std::vector<int>& gpus) {
  std::size_t n = gpus.size();
  if (in.pattern == InsidePattern::Nvswitch) {
    int s = b.add("nvswitch", VertexKind::Nvswitch);
    for (int g : gpus) b.join(g, s, in.link);
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j < n; ++j) {
      if (in.pattern == InsidePattern::AllToAll ||
          (in.pattern == InsidePattern::Pairs && j == (i ^ 1)))
        b.join(gpus[i], gpus[j], in.link);
      if (in.pattern == InsidePattern::HybridCubeMesh && kHybridCubeMesh[i][j] > 0)
        b.join(gpus[i], gpus[j], in.link, kHybridCubeMesh[i][j]);
    }
}

}  // namespace

const std::uint8_t kHybridCubeMesh[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0},
                                            {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
                                            {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                                            {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};

Problem validate(const Inside& in, int devices, int nics) {
  if (in.pattern == InsidePattern::Drawn) return check_drawn(in, devices, nics);
  if (devices + nics > 256)
    return {"/inside", "a host with an inside has at most 256 GPUs and NICs"};
  if (in.pattern == InsidePattern::HybridCubeMesh && devices != 8)
    return {"/devices_per_host", "a hybrid cube mesh has 8 GPUs"};
  if (in.pattern == InsidePattern::Pairs && devices % 2 != 0)
    return {"/devices_per_host", "NVLink bridges join pairs: an even number of GPUs"};
  if (has_nvlink(in.pattern))
    if (auto p = check_link(in.link, "/inside/link")) return p;
  for (const auto& [key, link] : {std::pair{"pcie", &in.pcie},
                                  {"c2c", &in.c2c},
                                  {"pcie_uplink", &in.pcie_uplink},
                                  {"nic_link", &in.nic_link},
                                  {"cpu_link", &in.cpu_link}})
    if (*link)
      if (auto p = check_link(**link, std::string("/inside/") + key)) return p;
  return check_tree(in, devices);
}

HostGraph expand(const Inside& in, int devices, int nics) {
  Builder b;
  if (in.pattern == InsidePattern::Drawn) {
    std::map<std::string, int> index;
    for (const HostVertex& v : in.vertices) index[v.name] = b.add(v.name, v.kind);
    for (const HostLink& l : in.links) b.join(index.at(l.from), index.at(l.to), l.link);
    return b.take();
  }
  auto gpus = b.add_many("gpu", VertexKind::Gpu, devices);
  auto nic = b.add_many("nic", VertexKind::Nic, nics);
  join_nvlinks(b, in, gpus);
  if (!in.pcie && !in.c2c) return b.take();
  const LinkSpec& down = in.pcie ? *in.pcie : *in.c2c;
  const LinkSpec& nic_link = in.nic_link ? *in.nic_link : down;
  auto cpus = b.add_many("cpu", VertexKind::Cpu, in.sockets);
  std::vector<int> ends = cpus;
  if (in.switches_per_socket > 0) {
    ends = b.add_many("pcie", VertexKind::PcieSwitch, in.sockets * in.switches_per_socket);
    for (std::size_t s = 0; s < ends.size(); ++s)
      b.join(ends[s], cpus[s / in.switches_per_socket], in.pcie_uplink ? *in.pcie_uplink : down);
  }
  for (std::size_t g = 0; g < gpus.size(); ++g)
    b.join(gpus[g], ends[g * ends.size() / gpus.size()], down);
  for (std::size_t k = 0; k < nic.size(); ++k)
    b.join(nic[k], ends[k * ends.size() / nic.size()], nic_link);
  for (std::size_t i = 0; i < cpus.size(); ++i)
    for (std::size_t j = i + 1; j < cpus.size(); ++j) b.join(cpus[i], cpus[j], *in.cpu_link);
  return b.take();
}

}  // namespace ddpsim
