// How near two devices, or a device and a NIC, are: NCCL's path types (src/graph/topo.h, PATH_*),
// in its order: a smaller one is nearer.
#pragma once

#include <cstdint>
#include <string>

#include "sim/units/by.h"

namespace ddpsim::topology {

// Loc: itself. Nvl: NVLink, direct or through an NVSwitch. Nvb: NVLink through another GPU. C2c:
// chip to chip. Pix: one PCIe switch. Pxb: several. P2c: GPU to NIC by C2C and the CPU's PCIe. Pxn:
// GPU to NIC by NVLink and another GPU's PCIe. Phb: the CPU's host bridge. Sys: between CPUs. Net:
// the network. Dis: no way.
enum class PathType : std::uint8_t { Loc, Nvl, Nvb, C2c, Pix, Pxb, P2c, Pxn, Phb, Sys, Net, Dis };
inline constexpr By<PathType, const char*, 12> kPathTypes{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                          "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
inline const char* name_of(PathType t) {
  return kPathTypes[t];
}

enum class LinkKind : std::uint8_t { Nvlink, C2c, Pcie, Upi, Net };
const char* name_of(LinkKind k);
// By a link's transport: its own name inside a host, Net for every other.
LinkKind kind_of(const std::string& transport);

}  // namespace ddpsim::topology
