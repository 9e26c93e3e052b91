// Cluster: hosts, devices and links, as a pattern with parameters or as a graph. File format:
// docs/formats.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/model/ids.h"
#include "sim/model/inside.h"
#include "sim/model/link.h"
#include "sim/model/workload.h"
#include "sim/units/by.h"
#include "sim/units/units.h"

namespace ddpsim {

// What NCCL would read off the system and its network plugin.
enum class HostCpu : std::uint8_t { Intel, Amd, Arm, Power, Mixed };
inline constexpr By<HostCpu, const char*, 5> kHostCpus{"intel", "amd", "arm", "power", "mixed"};
constexpr const auto& names_of(HostCpu) {
  return kHostCpus;
}
enum class NicVendor : std::uint8_t { Other, Aws, Google };  // whose sockets NCCL gives threads
inline constexpr By<NicVendor, const char*, 3> kNicVendors{"other", "aws", "google"};
constexpr const auto& names_of(NicVendor) {
  return kNicVendors;
}
struct NcclFacts {
  HostCpu cpu = HostCpu::Intel;
  Duration net_latency;  // that the network plugin states; NCCL (from 2.13) adds it to its own when
                         // it chooses
  bool ll = true;        // the network delivers 8-byte stores whole: LL may be used between hosts
  bool ll128 = true;     // ... and 128-byte stores
  bool collnet = false;  // switches that add (SHARP), and NCCL_COLLNET_ENABLE=1
  bool multicast = true;    // NVSwitch multicast: NVLS
  bool peer_access = true;  // GPUs reach one another's memory over PCIe (over NVLink they do);
                            // GeForce cards and many virtual machines do not
  NicVendor nic_vendor = NicVendor::Other;
  bool rccl = false;  // AMD's RCCL runs in NCCL's place (sim/nccl/rccl.h)
};

struct GraphNode {
  std::string name;
  bool host = false;
};
struct GraphLink {
  std::string from;
  std::string to;
  LinkSpec link;
};
struct SlowLink {
  HostId host;
  Bandwidth bandwidth;
};

// A cable that carries less than it should: to `bandwidth`, or to `fraction` of what it had
// (bandwidth 0).
struct DegradedLink {
  std::string link;
  Bandwidth bandwidth;
  double fraction = 0;
};

enum class Pattern : std::uint8_t {
  Star,
  Racks,
  FatTree,
  Graph,
  Ring,
  Torus,
  Dragonfly,
  RailOptimised,
  Nvl72
};
inline constexpr By<Pattern, const char*, 9> kPatterns{
    "star", "racks", "fat_tree", "graph", "ring", "torus", "dragonfly", "rail_optimised", "nvl72"};
constexpr const auto& names_of(Pattern) {
  return kPatterns;
}

// Which of several equal paths a message takes: by the sender's NIC alone, or by a hash of both
// NICs (topology::ecmp_hash).
enum class Ecmp : std::uint8_t { Source, Hash };
inline constexpr By<Ecmp, const char*, 2> kEcmps{"source", "hash"};
constexpr const auto& names_of(Ecmp) {
  return kEcmps;
}

struct Cluster {
  std::string name;
  std::string description;
  Pattern pattern = Pattern::Star;
  int hosts = 1;
  int devices_per_host = 1;
  int nics_per_host = 1;
  DeviceKind device = DeviceKind::Gpu;
  std::string profile;
  LinkSpec link;
  std::optional<LinkSpec> intra;  // each device to the host's one switch; or `inside`; or neither,
                                  // with one device a host
  std::optional<Inside> inside;
  // racks
  int racks = 1;
  LinkSpec uplink;
  // fat tree
  int hosts_per_leaf = 1;
  int spines = 1;
  double oversubscription = 1;
  // ring, torus: between routers, one a host; dragonfly: inside a group
  LinkSpec trunk;
  std::vector<int> extents;  // torus: hosts along each dimension, the first varies fastest
  // dragonfly
  int groups = 1;
  int routers_per_group = 1;
  int hosts_per_router = 1;
  LinkSpec global;
  // rail_optimised: leaf k of a group joins NIC k of its hosts; spines and oversubscription as in a
  // fat tree
  int hosts_per_group = 1;
  // nvl72: hosts whose GPUs are one NVLink domain
  int hosts_per_rack = 18;
  Ecmp ecmp = Ecmp::Source;
  // Cables by name (Fabric::link_name, with or without its direction); both directions fail or
  // degrade.
  std::vector<std::string> failed_links;
  std::vector<DegradedLink> degraded_links;
  // graph
  std::vector<GraphNode> nodes;
  std::vector<GraphLink> links;
  std::vector<SlowLink> slow_links;
  Bandwidth host_memory;  // what all cores of a host read and write together, as STREAM measures
                          // it; 0 = not known: needed where a plan offloads
  NcclFacts nccl;
  int emulated_on_cores = 0;  // all hosts are namespaces of one machine with this many cores, which
                              // they share; 0 = hosts of their own
  int devices() const { return hosts * devices_per_host; }
};

inline constexpr int kMaxDevices = 1 << 20;

// Structure only; whether hosts reach one another is topology's to say.
Problem validate(const Cluster& c);

}  // namespace ddpsim
