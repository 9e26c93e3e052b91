// Keys of a cluster's file (ddpsim.cluster/1).
#pragma once

#include "sim/io/schema/fields.h"
#include "sim/model/cluster.h"

namespace ddpsim::io {

inline constexpr const char* kClusterSchema = "ddpsim.cluster/1";

// ---- spellings

// A member of type bool as one of two words; the first one means kFirst.
template <const auto& kWords, bool kFirst>
struct AsTruth {
  bool& value;
};
template <const auto& kWords, bool kFirst>
struct Codec<AsTruth<kWords, kFirst>> {
  static std::vector<const char*> words() { return {std::begin(kWords), std::end(kWords)}; }
  static void read(const Reader& r, AsTruth<kWords, kFirst> into) {
    into.value = (r.choice(words()) == 0) == kFirst;
  }
  static OrderedJson write(AsTruth<kWords, kFirst> v) { return kWords[v.value == kFirst ? 0 : 1]; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    f.choices.assign(std::begin(kWords), std::end(kWords));
  }
};
// An enumeration, of which a file has kSome, an array of enumerators.
template <const auto& kSome>
struct AsSome {
  typename std::remove_cvref_t<decltype(kSome)>::value_type& value;
};
template <const auto& kSome>
struct Codec<AsSome<kSome>> {
  static std::vector<const char*> words() {
    std::vector<const char*> out;
    for (auto e : kSome) out.push_back(name_of(e));
    return out;
  }
  static void read(const Reader& r, AsSome<kSome> into) { into.value = kSome[r.choice(words())]; }
  static OrderedJson write(AsSome<kSome> v) { return name_of(v.value); }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    for (const char* word : words()) f.choices.push_back(word);
  }
};
struct AsRatio {
  double& value;
};
template <>
struct Codec<AsRatio> {
  static void read(const Reader& r, AsRatio into);  // read_cluster.cc
  static OrderedJson write(AsRatio v) { return v.value; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Ratio; }
};
template <class Kind>
struct Codec<PlaceId<Kind>> {
  static void read(const Reader& r, PlaceId<Kind>& into) {
    into = PlaceId<Kind>::at(r.small(-1, INT32_MAX));
  }
  static OrderedJson write(PlaceId<Kind> v) { return v.number; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.least = 0;
    f.most = INT32_MAX;
  }
};

// ---- links

template <class V>
void fields(V& v, LinkSpec& l) {
  v.required("bandwidth", l.bandwidth, "in each direction");
  v.field("latency", l.latency, "of a message, besides its bytes");
  v.field("burst", l.burst, "token bucket: bytes that go at `peak`");
  v.field("peak", l.peak, "token bucket: the rate of a burst");
  v.field("transport", l.transport, "the profile's transport that prices it");
  v.field("eager", l.eager, "bytes from which the network asks the receiver before it sends");
  v.field("staging", l.staging,
          "no GPUDirect: what one thread copies between GPU and network, both directions together");
}
template <class V>
void fields(V& v, GraphLink& l) {
  v.required("from", l.from, "a node");
  v.required("to", l.to, "a node");
  fields(v, l.link);
}
inline constexpr std::array<const char*, 4> kInsideTransports{"nvlink", "c2c", "pcie", "upi"};
template <class V>
void fields(V& v, HostLink& l) {
  v.required("from", l.from, "a vertex");
  v.required("to", l.to, "a vertex");
  v.required("bandwidth", l.link.bandwidth, "in each direction");
  v.field("latency", l.link.latency, "of a message, besides its bytes");
  v.required("transport", AsWord<kInsideTransports>{l.link.transport}, "upi: between CPUs");
}
// A link of a pattern inside a host: the key decides its transport. Member: LinkSpec, or an
// optional one.
template <int kTransport, class Member>
struct InsideLink {
  Member* to = &nothing<Member>();
};
template <int kTransport>
struct InsideLinkSpec {
  LinkSpec link;
  InsideLinkSpec() { link.transport = kInsideTransports[kTransport]; }
};
template <class V, int kTransport>
void fields(V& v, InsideLinkSpec<kTransport>& l) {
  const char* const own = kInsideTransports[kTransport];
  static const std::string sentence =
      std::string("this link is \"") + own +
      "\"; leave it out, or draw the host with \"vertices\" and \"links\"";
  v.required("bandwidth", l.link.bandwidth, "in each direction");
  v.field("latency", l.link.latency, "of a message, besides its bytes");
  v.field("transport", AsWord<kInsideTransports>{l.link.transport}, "follows from the key")
      .must(l.link.transport == own, sentence.c_str());
}
template <int kTransport, class Member>
struct Codec<InsideLink<kTransport, Member>> {
  static void read(const Reader& r, InsideLink<kTransport, Member> into) {
    InsideLinkSpec<kTransport> read;
    read_fields(r, read);
    *into.to = std::move(read.link);
  }
  static OrderedJson write(InsideLink<kTransport, Member>) { return {}; }
  static void list(FieldRecord& f) { Codec<InsideLinkSpec<kTransport>>::list(f); }
};
template <int kTransport, class Member>
InsideLink<kTransport, Member> inside_link(Member& m) {
  return {&m};
}

// ---- inside a host

template <class V>
void fields(V& v, HostVertex& h) {
  v.required("name", h.name, "as links say it");
  v.required("kind", h.kind, "gpu: a device of the host; nic: one of its NICs, in this order");
}
// The host drawn.
struct DrawnInside {
  std::vector<HostVertex> vertices;
  std::vector<HostLink> links;
};
template <class V>
void fields(V& v, DrawnInside& in) {
  v.required("vertices", in.vertices, "GPUs, NICs, switches and CPUs");
  v.required("links", in.links, "full duplex");
}
inline constexpr std::array<InsidePattern, 5> kInsideFilePatterns{
    InsidePattern::Nvswitch, InsidePattern::AllToAll, InsidePattern::HybridCubeMesh,
    InsidePattern::PcieTree, InsidePattern::Pairs};
template <class V>
void fields(V& v, Inside& in) {
  v.required("pattern", AsSome<kInsideFilePatterns>{in.pattern}, "how the GPUs are joined");
  v.required("link", inside_link<0>(in.link),
             "NVLink: a GPU to the NVSwitch, one pair, or (hybrid_cube_mesh) one single NVLink",
             unless("pattern", "pcie_tree")
                 .say("is NVLink, which a \"pcie_tree\" has none of; its links are \"pcie\", "
                      "\"pcie_uplink\", \"nic_link\" and \"cpu_link\""));
  v.field("pcie", inside_link<2>(in.pcie), "a GPU to its PCIe switch, or to its CPU");
  v.field("c2c", inside_link<1>(in.c2c), "a GPU to its CPU, in place of `pcie`");
  v.field("pcie_uplink", inside_link<2>(in.pcie_uplink), "a PCIe switch to its CPU; as `pcie`");
  v.field("nic_link", inside_link<2>(in.nic_link), "a NIC to its switch or CPU; as `pcie`");
  v.field("cpu_link", inside_link<3>(in.cpu_link), "each two CPUs; needed with several sockets");
  v.field("sockets", in.sockets, "CPUs; GPUs and NICs are spread over them in order")
      .range(-1, 1 << 20);
  v.field("switches_per_socket", in.switches_per_socket, "PCIe switches; 0: GPUs on the CPU")
      .range(-1, 1 << 20);
  v.field("gpus_per_switch", in.gpus_per_switch, "checked; it follows from the others")
      .range(1, 1 << 20);
}
// Either of them.
struct InsideFile {
  std::optional<Inside>* to = &nothing<std::optional<Inside>>();
};
template <>
struct Codec<InsideFile> {
  static void read(const Reader& r, InsideFile into);  // read_cluster.cc
  static OrderedJson write(InsideFile) { return {}; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::OneOf;
    Codec<Inside>::list(f.fields.emplace_back());
    Codec<DrawnInside>::list(f.fields.emplace_back());
    f.fields[0].help = "a pattern";
    f.fields[1].help = "a drawing";
  }
};

// ---- the cluster

inline constexpr std::array<const char*, 2> kLibraries{"nccl", "rccl"};
template <class V>
void fields(V& v, NcclFacts& f) {
  v.field("cpu", f.cpu, "of the hosts");
  v.field("net_latency", f.net_latency, "that the network's plugin states");
  v.field("ll", f.ll, "the network delivers 8-byte stores whole: LL between hosts");
  v.field("ll128", f.ll128, "and 128-byte stores: LL128");
  v.field("collnet", f.collnet, "switches that add (SHARP), and NCCL_COLLNET_ENABLE=1");
  v.field("multicast", f.multicast, "NVSwitch's: NVLS");
  v.field("peer_access", f.peer_access,
          "GPUs reach one another's memory over PCIe (over NVLink they do)");
  v.field("nic_vendor", f.nic_vendor, "whose sockets NCCL gives threads");
  v.field("library", AsTruth<kLibraries, false>{f.rccl}, "rccl: AMD's, in NCCL's place");
}
inline constexpr std::array<const char*, 2> kNodeKinds{"host", "switch"};
template <class V>
void fields(V& v, GraphNode& n) {
  v.required("name", n.name, "as links say it");
  v.required("kind", AsTruth<kNodeKinds, true>{n.host}, "a host has devices");
}
template <class V>
void fields(V& v, SlowLink& s) {
  v.required("host", s.host, "counted from 0");
  v.required("bandwidth", s.bandwidth, "of its link");
}
template <class V>
void fields(V& v, DegradedLink& d) {
  v.required("link", d.link, "its name, as ddpsim topology prints it");
  v.field("bandwidth", d.bandwidth, "that is left");
  v.field("fraction", d.fraction, "that is left");
}

template <class V>
void fields(V& v, Cluster& c) {
  const Where fat_or_rail = where("pattern", "fat_tree", "rail_optimised");
  const Where dragonfly = where("pattern", "dragonfly");
  v.schema(kClusterSchema);
  v.required("name", c.name, "as --cluster takes it");
  v.field("description", c.description, "for people");
  v.other("source", FieldKind::Any, "where its numbers are from");
  v.required("pattern", c.pattern, "how switches join the hosts");
  v.field("hosts", c.hosts, "their number; of a torus and a dragonfly it follows",
          unless("pattern", "graph")
              .say("a graph's hosts are its nodes of kind \"host\"; leave \"hosts\" out"))
      .needed(where("pattern", "star", "racks", "fat_tree", "ring", "rail_optimised", "nvl72"));
  v.field("devices_per_host", c.devices_per_host, "GPUs, or CPUs").range(-1, 1 << 20);
  v.field("nics_per_host", c.nics_per_host, "`link` is one of them").range(-1, 1 << 20);
  v.section("device", true, "the devices", [&](auto& s) {
    s.required("kind", c.device, "CPUs or GPUs");
    s.required("profile", c.profile, "the profile that prices them, by name or file");
  });
  v.required("link", c.link, "a NIC to the network",
             unless("pattern", "graph").say("a graph has \"links\", not \"link\""));
  v.field("intra", c.intra, "each device to the host's one switch; or `inside`");
  v.field("inside", InsideFile{&c.inside}, "the links between GPUs, CPUs and NICs of a host");
  v.field("slow_links", c.slow_links, "hosts whose link is slower",
          unless("pattern", "graph")
              .say("in a graph, give the slow link its own bandwidth in \"links\""));
  v.field("host_memory", c.host_memory, "what all cores of a host read and write together");
  v.field("nccl", c.nccl, "what NCCL reads off the system");
  v.field("emulated_on_cores", c.emulated_on_cores,
          "hosts are namespaces of one machine of so many cores; 0: hosts of their own")
      .range(-1, 1 << 20);
  v.required("racks", c.racks, "their number", where("pattern", "racks"));
  v.required("uplink", c.uplink, "a rack to the core switch", where("pattern", "racks"));
  v.field("oversubscription", AsRatio{c.oversubscription}, "of a leaf's links: down to up",
          fat_or_rail);
  v.template elsewhere<int>("k", "ports of a switch: hosts_per_leaf and spines follow",
                            where("pattern", "fat_tree"))
      .range(2, 1 << 20);
  v.field("hosts_per_leaf", c.hosts_per_leaf, "hosts on a leaf switch",
          where("pattern", "fat_tree"));
  v.field("spines", c.spines, "switches above the leaves", fat_or_rail)
      .needed(where("pattern", "rail_optimised"));
  v.required("hosts_per_group", c.hosts_per_group, "NIC k of each is on leaf k of the group",
             where("pattern", "rail_optimised"));
  v.required("extents", c.extents, "hosts along each dimension, the first varies fastest",
             where("pattern", "torus"));
  v.field("trunk", c.trunk, "between routers; of a ring and a torus as `link`",
          where("pattern", "ring", "torus", "dragonfly"))
      .needed(dragonfly);
  v.required("groups", c.groups, "of routers", dragonfly).range(-1, 1 << 20);
  v.required("routers_per_group", c.routers_per_group, "each two are joined by `trunk`", dragonfly)
      .range(-1, 1 << 20);
  v.required("hosts_per_router", c.hosts_per_router, "on `link`", dragonfly).range(-1, 1 << 20);
  v.field("global", c.global, "each two groups; as `trunk`", dragonfly);
  v.field("hosts_per_rack", c.hosts_per_rack, "whose GPUs are one NVLink domain",
          where("pattern", "nvl72"));
  v.field("ecmp", c.ecmp, "of equal paths: by the sender's NIC, or a hash of both",
          where("pattern", "fat_tree", "rail_optimised", "graph"));
  v.required("nodes", c.nodes, "hosts and switches", where("pattern", "graph"));
  v.required("links", c.links, "full duplex", where("pattern", "graph"));
  v.field("failed_links", c.failed_links, "names of cables that fail, in both directions");
  v.field("degraded_links", c.degraded_links, "cables that carry less, in both directions");
}

}  // namespace ddpsim::io
