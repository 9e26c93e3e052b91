// NCCL_TOPO_DUMP_FILE (NCCL 2.28.9, src/graph/topo.cc, xml.cc) as one host's wiring:
//   system  cpu(numaid, arch, vendor, familyid, modelid, host_hash)  pci(busid, class, link_speed,
//           link_width) nested gpu(dev, sm, rank): nvlink(target, count, tclass), c2c(bw, count)
//             nic: net(name, dev, speed)
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "sim/io/nccl_topo_rates.h"
#include "sim/io/nccl_xml.h"
#include "sim/io/reference_gpu.h"
#include "sim/io/schema/known_fields.h"
#include "sim/io/xml_reader.h"
#include "sim/units/convert.h"

namespace ddpsim::io {
namespace {

using Node = pugi::xml_node;

constexpr int kSmOtherwise = 80;

std::string gb(double v) {
  std::string s = fmt::format("{:.3f}", v);
  while (s.back() == '0') s.pop_back();
  if (s.back() == '.') s.pop_back();
  return s + "GB/s";
}

struct Gpu {
  Node xml;  // <gpu>, or the <pci> that has none
  std::string busid;
  std::int64_t rank = -1;
  std::int64_t dev = -1;
  int sm = 0;      // 0 = not said
  int parent = 0;  // vertex of its switch or CPU
  double pcie = 0;
  int cpu = 0;
  std::string name;
};
struct Nic {
  std::int64_t dev = -1;
  std::string net;
  double rate = 0;        // GB/s
  double latency_us = 0;  // that the network's plugin says; 0 = not said
  int parent = 0;
  double pcie = 0;
  std::string name;
};
struct Vertex {
  std::string name;
  const char* kind;
  int parent = -1;  // of a switch; CPUs have none
  double uplink = 0;
  Node xml;
};

class Host {
 public:
  Host(const XmlFile& xml, std::vector<std::string>& notes) : xml_(xml), notes_(notes) {}

  void read() {
    std::string hash;
    bool first = true;
    for (Node cpu : xml_.root().children()) {
      if (std::string(cpu.name()) != "cpu") continue;
      std::string here = xml_.text(cpu, "host_hash");
      if (first) hash = here;
      first = false;
      if (here != hash) {
        note("it holds several hosts; the first is taken");
        continue;
      }
      int at = static_cast<int>(middle_.size());
      middle_.push_back({fmt::format("cpu{}", cpus_.size()), "cpu", -1, 0, cpu});
      cpus_.push_back(at);
      for (Node child : cpu.children()) {
        std::string kind = child.name();
        if (kind == "pci")
          pci(child, at, at);
        else if (kind == "nic")
          nics_of(child, at, 0);
      }
    }
    if (cpus_.empty())
      xml_.fail(xml_.root(), "holds no <cpu>; expected what NCCL writes to NCCL_TOPO_DUMP_FILE");
    if (gpus_.empty())
      xml_.fail(xml_.root(), "holds no GPU; expected what NCCL writes to NCCL_TOPO_DUMP_FILE");
    if (gpus_.size() > 64 || nics_.size() > 64 || middle_.size() > 300)
      xml_.fail(xml_.root(),
                "describes more than a host: at most 64 GPUs, 64 NICs and 300 switches and CPUs "
                "are read");
    order();
  }

  // What a cluster's `nccl` says: the CPUs' make, and the latency that the network's plugin states.
  OrderedJson facts() const {
    OrderedJson j = OrderedJson::object();
    std::set<std::string> makes;
    for (int c : cpus_) makes.insert(cpu_make(xml_, middle_[c].xml));
    if (makes.size() > 1)
      j["cpu"] = "mixed";
    else if (!makes.empty() && !makes.begin()->empty())
      j["cpu"] = *makes.begin();
    double latency = 0;
    for (const Nic& n : nics_) latency = std::max(latency, n.latency_us);
    if (latency > 0) j["net_latency"] = fmt::format("{}us", latency);
    return j;
  }

  OrderedJson inside() {
    OrderedJson j{{"vertices", OrderedJson::array()}, {"links", OrderedJson::array()}};
    std::set<int> used = used_middle();
    for (const Gpu& g : gpus_) j["vertices"].push_back({{"name", g.name}, {"kind", "gpu"}});
    for (const Nic& n : nics_) j["vertices"].push_back({{"name", n.name}, {"kind", "nic"}});
    int switches = 0;
    for (std::size_t i = 0; i < middle_.size(); ++i) {
      if (!used.count(static_cast<int>(i))) continue;
      if (middle_[i].parent >= 0) middle_[i].name = fmt::format("pcie{}", switches++);
      j["vertices"].push_back({{"name", middle_[i].name}, {"kind", middle_[i].kind}});
    }
    auto link = [&](const std::string& from, const std::string& to, double bandwidth,
                    const char* transport) {
      j["links"].push_back(
          {{"from", from}, {"to", to}, {"bandwidth", gb(bandwidth)}, {"transport", transport}});
    };
    nvlinks(j, link);
    for (const Gpu& g : gpus_) link(g.name, middle_[g.parent].name, g.pcie, "pcie");
    for (const Nic& n : nics_) link(n.name, middle_[n.parent].name, n.pcie, "pcie");
    for (int i : used)
      if (const Vertex& v = middle_[i]; v.parent >= 0)
        link(v.name, middle_[v.parent].name, v.uplink, "pcie");
    for (std::size_t a = 0; a < cpus_.size(); ++a)
      for (std::size_t b = a + 1; b < cpus_.size(); ++b)
        link(middle_[cpus_[a]].name, middle_[cpus_[b]].name,
             cpu_gb(xml_, middle_[cpus_[a]].xml, notes_), "upi");
    return j;
  }

  const std::vector<Gpu>& gpus() const { return gpus_; }
  const std::vector<Nic>& nics() const { return nics_; }

 private:
  void note(const std::string& text) { note_once(notes_, text); }

  void pci(Node at, int parent, int cpu) {
    std::string kind = xml_.text(at, "class");
    Node gpu = at.child("gpu");
    Node nic = at.child("nic");
    if (gpu || (kind.starts_with("0x03") && !nic)) {
      Gpu g;
      g.xml = gpu ? gpu : at;
      g.busid = xml_.text(at, "busid");
      if (gpu) {
        g.rank = xml_.integer(gpu, "rank", -1, 1 << 20).value_or(-1);
        g.dev = xml_.integer(gpu, "dev", -1, 1 << 20).value_or(-1);
        g.sm = static_cast<int>(xml_.integer(gpu, "sm", 10, 1000).value_or(0));
      } else {
        note("where a GPU's own element is missing, its NVLinks are not known");
      }
      g.parent = parent;
      g.cpu = cpu;
      g.pcie = pcie_gb(xml_, at, notes_);
      gpus_.push_back(std::move(g));
      return;
    }
    if (nic || kind.starts_with("0x02"))
      return nics_of(nic ? nic : at, parent, pcie_gb(xml_, at, notes_));
    if (kind.starts_with("0x0680") || !(kind.empty() || kind.starts_with("0x0604")))
      return;  // an NVSwitch's own function, a disk, ...
    int here = parent;
    bool inside_one = middle_[parent].parent >= 0 && same_switch(xml_, middle_[parent].xml, at);
    if (!inside_one) {
      here = static_cast<int>(middle_.size());
      middle_.push_back({"", "pcie_switch", parent, pcie_gb(xml_, at, notes_), at});
    }
    for (Node child : at.children()) {
      if (std::string(child.name()) == "pci")
        pci(child, here, cpu);
      else if (std::string(child.name()) == "pcilink")
        note("links between PCIe switches (pcilink) are left out");
    }
  }

  // `at`: <nic>, or a <pci> of a NIC without one. Ports of one card share its slot.
  void nics_of(Node at, int parent, double pcie) {
    std::vector<Nic> ports;
    bool named = false;
    for (Node net : at.children("net")) {
      named = true;
      if (xml_.integer(net, "keep", 0, 1).value_or(1) == 0) continue;
      Nic n;
      n.dev = xml_.integer(net, "dev", -1, INT32_MAX).value_or(-1);
      n.net = xml_.text(net, "name");
      std::int64_t speed = xml_.integer(net, "speed", -1, 100'000'000).value_or(0);
      if (speed <= 0) {
        speed = kNetOtherwise;
        note("where a NIC's speed is not said, 10 Gb/s are taken, as NCCL does");
      } else if (std::string doubt = doubt_of_speed(n.net, speed); !doubt.empty()) {
        note(doubt);
      }
      n.rate = static_cast<double>(speed) / 8000;
      n.latency_us = xml_.number(net, "latency", 0, 1e6).value_or(0);
      ports.push_back(std::move(n));
    }
    if (!named && std::string(at.name()) == "nic")
      note("a <nic> without a <net> is left out, as NCCL does");
    if (!named && std::string(at.name()) == "pci") {
      note("where a NIC's speed is not said, 10 Gb/s are taken, as NCCL does");
      ports.push_back({-1, "", kNetOtherwise / 8000.0, 0, 0, 0, ""});
    }
    for (Nic& n : ports) {
      n.parent = parent;
      n.pcie = pcie > 0 ? pcie / static_cast<double>(ports.size()) : n.rate;
      nics_.push_back(std::move(n));
    }
  }

  // GPUs by rank, then dev, then as they stand; NICs by dev.
  void order() {
    auto later = [](std::int64_t x) { return x < 0 ? INT64_MAX : x; };
    std::stable_sort(gpus_.begin(), gpus_.end(), [&](const Gpu& a, const Gpu& b) {
      return std::pair(later(a.rank), later(a.dev)) < std::pair(later(b.rank), later(b.dev));
    });
    std::stable_sort(nics_.begin(), nics_.end(),
                     [&](const Nic& a, const Nic& b) { return later(a.dev) < later(b.dev); });
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      gpus_[i].name = fmt::format("gpu{}", i);
      if (i > 0 && gpus_[i].rank >= 0 && gpus_[i].rank == gpus_[i - 1].rank)
        xml_.fail(gpus_[i].xml, fmt::format("rank {} appears twice", gpus_[i].rank));
      if (gpus_[i].sm == 0)
        note(fmt::format("where a GPU's sm is not said, {} is taken", kSmOtherwise));
    }
    for (std::size_t i = 0; i < nics_.size(); ++i) nics_[i].name = fmt::format("nic{}", i);
  }

  // CPUs, and switches on the way to a GPU or NIC.
  std::set<int> used_middle() const {
    std::set<int> used(cpus_.begin(), cpus_.end());
    auto up = [&](int at) {
      for (; at >= 0 && used.insert(at).second; at = middle_[at].parent) {
      }
    };
    for (const Gpu& g : gpus_) up(g.parent);
    for (const Nic& n : nics_) up(n.parent);
    return used;
  }

  template <class Link>
  void nvlinks(OrderedJson& j, const Link& link) {
    std::map<std::pair<std::size_t, std::size_t>, double>
        pairs;  // GB/s from the first to the second
    std::map<std::size_t, double> to_switch;
    std::map<std::size_t, double> to_cpu;
    std::map<std::size_t, double> c2c;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      const Gpu& g = gpus_[i];
      if (std::string(g.xml.name()) != "gpu") continue;
      double each = nvlink_gb(g.sm ? g.sm : kSmOtherwise);
      for (Node x : g.xml.children("nvlink")) {
        double here = each * static_cast<double>(xml_.integer(x, "count", 1, 256).value_or(1));
        std::string target = xml_.text(x, "target");
        std::string kind = xml_.text(x, "tclass");
        auto peer = std::find_if(gpus_.begin(), gpus_.end(), [&](const Gpu& p) {
          return !target.empty() && p.busid == target;
        });
        if (kind.empty()) kind = peer != gpus_.end() ? "0x030200" : "0x068000";
        if (kind.starts_with("0x03")) {
          if (peer == gpus_.end()) {
            note("an NVLink to a GPU that is not in the file is left out");
            continue;
          }
          std::size_t k = peer - gpus_.begin();
          if (k == i) xml_.fail(x, "is an NVLink of a GPU to itself");
          pairs[{i, k}] += here;
        } else if (kind.starts_with("0x068001")) {
          to_cpu[i] += here;
        } else {
          to_switch[i] += here;
        }
      }
      for (Node x : g.xml.children("c2c")) {
        double count = static_cast<double>(xml_.integer(x, "count", 1, 256).value_or(1));
        auto bw = xml_.number(x, "bw", 1, 1e7);
        if (!bw) xml_.fail(x, "bw is missing: MB/s of a link");
        c2c[i] += *bw * count / kMegaPerGiga;
      }
    }
    if (!to_switch.empty()) j["vertices"].push_back({{"name", "nvswitch"}, {"kind", "nvswitch"}});
    for (const auto& [ends, rate] : pairs) {
      auto [a, b] = ends;
      auto back = pairs.find({b, a});
      if (back != pairs.end() && b < a) continue;  // written with the other end
      if (back != pairs.end() && back->second != rate)
        xml_.fail(gpus_[a].xml,
                  fmt::format("{} names {} of NVLink to {}, which names {}", gpus_[a].name,
                              gb(rate), gpus_[b].name, gb(back->second)));
      link(gpus_[a].name, gpus_[b].name, rate, "nvlink");
    }
    for (const auto& [g, rate] : to_switch) link(gpus_[g].name, "nvswitch", rate, "nvlink");
    for (const auto& [g, rate] : to_cpu)
      link(gpus_[g].name, middle_[gpus_[g].cpu].name, rate, "nvlink");
    for (const auto& [g, rate] : c2c) link(gpus_[g].name, middle_[gpus_[g].cpu].name, rate, "c2c");
  }

  const XmlFile& xml_;
  std::vector<std::string>& notes_;
  std::vector<Gpu> gpus_;
  std::vector<Nic> nics_;
  std::vector<Vertex> middle_;  // CPUs and PCIe switches
  std::vector<int> cpus_;
};

// The shipped profile of GPUs of that compute capability.
std::string profile_of(const XmlFile& xml, const std::vector<Gpu>& gpus,
                       const NcclTopoSetting& setting) {
  if (!setting.profile.empty()) return setting.profile;
  int sm = gpus.front().sm ? gpus.front().sm : kSmOtherwise;
  const Json table = parse_json(kGpus, "calib/gpus.json");
  GpusFile named;
  read_file_fields(Reader(table, "calib/gpus.json"), named, kGpusSchema);
  for (const NamedGpu& gpu : named.gpus)
    if (gpu.capability == sm) return gpu.profile;
  xml.fail(
      gpus.front().xml,
      fmt::format("sm=\"{}\": no shipped profile stands for it; name one with --profile (ddpsim "
                  "list profiles)",
                  sm));
}

bool is_rdma(const std::string& net) {
  for (const char* prefix :
       {"mlx", "ib", "efa", "rdma", "rocep", "bnxt", "irdma", "cxi", "hfi", "hsi"})
    if (net.starts_with(prefix)) return true;
  return false;
}

}  // namespace

NcclTopoCluster read_nccl_topo(const std::string& text, const NcclTopoSetting& setting) {
  XmlFile xml(text, setting.file, "system");
  if (auto version = xml.integer(xml.root(), "version", 0, INT32_MAX); version && *version != 1)
    xml.fail(xml.root(), fmt::format("version {}; ddpsim reads version 1", *version));
  NcclTopoCluster out;
  Host host(xml, out.notes);
  host.read();
  const auto& nics = host.nics();
  if (nics.empty() && setting.hosts > 1)
    xml.fail(xml.root(), "holds no NIC, so its hosts cannot be joined; leave --hosts out");
  double rate = nics.empty() ? static_cast<double>(kNetOtherwise) / 8000 : nics.front().rate;
  for (const Nic& n : nics) {
    if (n.rate != rate)
      out.notes.push_back("its NICs differ in speed; the slowest is taken for all");
    rate = std::min(rate, n.rate);
  }
  if (nics.empty())
    out.notes.push_back("it names no NIC: one of 10 Gb/s, which one host does not use");
  out.notes.push_back(
      "it tells no latencies: every link gets 0 ps (NCCL's own latency of a step remains); to set "
      "them, write \"latency\" into \"link\" and the links of \"inside\", or --set "
      "cluster.link.latency=600ns");
  OrderedJson& j = out.cluster;
  j["schema"] = "ddpsim.cluster/1";
  j["name"] = setting.name;
  j["description"] = fmt::format("{} GPUs and {} NICs a host, wired as NCCL found them",
                                 host.gpus().size(), nics.size());
  j["source"] = fmt::format(
      "NCCL's topology dump {}; bandwidths are the hardware's, latencies of links are not in it "
      "(0)",
      setting.file.substr(setting.file.find_last_of('/') + 1));
  j["pattern"] = "star";
  j["hosts"] = setting.hosts;
  j["devices_per_host"] = host.gpus().size();
  j["device"] = {{"kind", "gpu"}, {"profile", profile_of(xml, host.gpus(), setting)}};
  j["nics_per_host"] = std::max<std::size_t>(1, nics.size());
  j["link"] = {{"bandwidth", gb(rate)},
               {"transport", !nics.empty() && is_rdma(nics.front().net) ? "ib" : "tcp"}};
  j["inside"] = host.inside();
  if (OrderedJson facts = host.facts(); !facts.empty()) j["nccl"] = std::move(facts);
  std::sort(out.notes.begin(), out.notes.end());
  out.notes.erase(std::unique(out.notes.begin(), out.notes.end()), out.notes.end());
  return out;
}

}  // namespace ddpsim::io
