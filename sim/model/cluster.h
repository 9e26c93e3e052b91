// Cluster: hosts, devices and links, as a pattern with parameters or as a graph. File format: sim/FORMATS.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/model/workload.h"
#include "sim/units/units.h"

namespace ddpsim {

// One direction of a cable; links are full duplex with equal directions. burst > 0: a token bucket (see engine::Resource).
struct LinkSpec {
  Bandwidth bandwidth;
  Duration latency;
  Bytes burst;
  Bandwidth peak;
  std::string transport = "tcp";
  Bytes eager;        // the network asks the receiver before it sends messages of this many bytes or more; 0 = it never asks
  Bandwidth staging;  // no GPUDirect: what one thread copies between GPU and network, both directions together; 0 = nothing is copied
};

// What NCCL would read off the system and its network plugin.
enum class HostCpu : std::uint8_t { Intel, Amd, Arm, Power, Mixed };
struct NcclFacts {
  HostCpu cpu = HostCpu::Intel;
  Duration net_latency;   // that the network plugin states; NCCL adds it to its own when it chooses
  bool ll = true;         // the network delivers 8-byte stores whole: LL may be used between hosts
  bool ll128 = true;      // ... and 128-byte stores
  bool collnet = false;   // switches that add (SHARP), and NCCL_COLLNET_ENABLE=1
  bool multicast = true;  // NVSwitch multicast: NVLS
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
  int host = 0;
  Bandwidth bandwidth;
};

enum class Pattern : std::uint8_t { Star, Racks, FatTree, Graph };
const char* name_of(Pattern p);

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
  std::optional<LinkSpec> intra;
  // racks
  int racks = 1;
  LinkSpec uplink;
  // fat tree
  int hosts_per_leaf = 1;
  int spines = 1;
  double oversubscription = 1;
  // graph
  std::vector<GraphNode> nodes;
  std::vector<GraphLink> links;
  std::vector<SlowLink> slow_links;
  NcclFacts nccl;
  int emulated_on_cores = 0;  // all hosts are namespaces of one machine with this many cores, which they share; 0 = hosts of their own
  int devices() const { return hosts * devices_per_host; }
};

inline constexpr int kMaxDevices = 1 << 20;

// Structure only; whether hosts reach one another is topology's to say.
Problem validate(const Cluster& c);

}  // namespace ddpsim
