// Inside: what is between the GPUs and NICs of a host. File format: docs/formats.md, key `inside`.
//
// A pattern or a drawing; expand() makes a HostGraph of either, and nothing after it asks which it
// was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/link.h"
#include "sim/units/by.h"

namespace ddpsim {

enum class VertexKind : std::uint8_t { Gpu, Nic, PcieSwitch, Cpu, Nvswitch };
inline constexpr By<VertexKind, const char*, 5> kVertexKinds{"gpu", "nic", "pcie_switch", "cpu",
                                                             "nvswitch"};
constexpr const auto& names_of(VertexKind) {
  return kVertexKinds;
}

// Vertices of kind Gpu are the host's devices in this order, those of kind Nic its NICs.
struct HostVertex {
  std::string name;
  VertexKind kind = VertexKind::Gpu;
};
// Full duplex. transport: "nvlink", "c2c", "pcie" or "upi".
struct HostLink {
  std::string from;
  std::string to;
  LinkSpec link;
};

enum class InsidePattern : std::uint8_t {
  Nvswitch,
  AllToAll,
  HybridCubeMesh,
  PcieTree,
  Pairs,
  Drawn
};
inline constexpr By<InsidePattern, const char*, 6> kInsidePatterns{
    "nvswitch", "all_to_all", "hybrid_cube_mesh", "pcie_tree", "pairs", "drawn"};
constexpr const auto& names_of(InsidePattern) {
  return kInsidePatterns;
}

struct Inside {
  InsidePattern pattern = InsidePattern::Nvswitch;
  LinkSpec link;  // NVLink: of a GPU to the NVSwitch, of one pair (all_to_all, pairs), one single
                  // NVLink (hybrid_cube_mesh)
  std::optional<LinkSpec> pcie;  // of a GPU to its PCIe switch, or to its CPU where there is none;
                                 // absent = no way from GPU to NIC is drawn
  std::optional<LinkSpec> c2c;   // of a GPU to its CPU, in place of `pcie`
  std::optional<LinkSpec> pcie_uplink;  // of a PCIe switch to its CPU; absent = pcie
  std::optional<LinkSpec> nic_link;     // of a NIC to its PCIe switch or CPU; absent = pcie
  std::optional<LinkSpec> cpu_link;     // between each two CPUs; needed with more than one socket
  int sockets = 1;  // CPUs; GPUs and NICs are spread over them, and over their switches, in order
  int switches_per_socket = 0;  // 0: GPUs straight on the CPU
  int gpus_per_switch =
      0;  // (of a socket without switches) 0: whatever the host's devices give; else checked
  // drawn
  std::vector<HostVertex> vertices;
  std::vector<HostLink> links;
};

// Links by index of their vertices; `gpus` and `nics`: their vertices in order.
struct HostGraph {
  struct Edge {
    int from = 0;
    int to = 0;
    LinkSpec link;
  };
  std::vector<HostVertex> vertices;
  std::vector<Edge> links;
  std::vector<int> gpus;
  std::vector<int> nics;
};

inline constexpr int kMaxHostVertices = 512;

// `path` of the problem begins with "/inside", or is the count of the host that does not fit.
Problem validate(const Inside& inside, int devices_per_host, int nics_per_host);
// REQUIRES: validate found nothing.
HostGraph expand(const Inside& inside, int devices_per_host, int nics_per_host);

// NVLinks between each two GPUs of a DGX-1 with V100 (0, 1 or 2; six a GPU), as `nvidia-smi topo
// -m` prints them there.
extern const std::uint8_t kHybridCubeMesh[8][8];

}  // namespace ddpsim
