// Facts of the hardware that a topology dump of NCCL names. NCCL's own bandwidths are less than the
// hardware's (20.6 GB/s for an NVLink of 25); here are the hardware's. PCIe: lanes x GT/s x coding.
// Between CPUs: NCCL's. All of them GB/s, one direction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/io/xml_reader.h"

namespace ddpsim::io {

inline constexpr std::int64_t kNetOtherwise = 10'000;  // Mb/s

void note_once(std::vector<std::string>& notes, const std::string& text);

// A doubt that a person should look into; "" = none. `speed`: Mb/s, above 0.
std::string doubt_of_speed(const std::string& nic, std::int64_t speed);
double nvlink_gb(int sm);  // of one link
double pcie_gb(const XmlFile& xml, pugi::xml_node at, std::vector<std::string>& notes);
double cpu_gb(const XmlFile& xml, pugi::xml_node cpu, std::vector<std::string>& notes);
// As a cluster's `nccl` has it; "" = not said.
std::string cpu_make(const XmlFile& xml, pugi::xml_node cpu);
// Two levels of one Broadcom switch, which goes at full rate between all its ports.
bool same_switch(const XmlFile& xml, pugi::xml_node outer, pugi::xml_node inner);

}  // namespace ddpsim::io
