// What NCCL says of itself (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING): its version,
// how it counts ranks and nodes, which way data goes, and which algorithm, protocol and channels it
// chose for which size. Lines of 2.18 to 2.30; those of other programs, prefixes and colours are
// passed over.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddpsim::calib::gpu {

// In NCCL's numbering.
inline constexpr std::array<std::string_view, 7> kNcclAlgorithms{
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
inline constexpr std::array<std::string_view, 3> kNcclProtocols{"LL", "LL128", "Simple"};

struct NcclChoice {
  std::string collective;  // "AllReduce", ...; "" where the version does not say
  std::int64_t bytes = 0;
  std::string algorithm;   // one of kNcclAlgorithms
  std::string protocol;    // one of kNcclProtocols
  int channels = 0;        // 0 = the version does not say
  double estimate_us = 0;  // NCCL's own, where the version says it (2.20 to 2.23); 0 = not said
  bool operator==(const NcclChoice&) const = default;
};

struct NcclLog {
  std::string version;  // "2.28.9+cuda13.0"; "" = not said
  int ranks = 0;
  int nodes = 0;  // as NCCL counts them: by NCCL_HOSTID where that is set
  int local_ranks = 0;
  int channels = 0;  // of rings; 0 = not said
  std::map<std::string, int>
      via;  // "NET/Socket", "P2P/CUMEM", "SHM/direct/direct", ... -> connections
  std::vector<NcclChoice> choices;    // in order of appearance; equal neighbours once
  std::vector<std::string> warnings;  // NCCL WARN lines, without prefix
};

NcclLog parse_nccl_log(std::string_view text);

}  // namespace ddpsim::calib::gpu
