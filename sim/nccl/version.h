// What differs between NCCL's versions, a row a difference; nothing else compares versions. Read
// from the tags v2.19.3 to v2.28.9: older ones behave as 2.19, newer ones as 2.28, but for the rows
// that say an older version.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddpsim::nccl {

// Named after what is so since the row's version.
enum class Change : std::uint8_t {
  Ll128,
  SocketsByProxyThread,
  PeersNotThroughIntel,
  NetworkLatencyOfPlugin,
  CollnetDirectGathers,
  CrossingRingsNeedNoMargin,
  HopperNvlinkRate,
  TreeKeepsItsChunk,
  LlTakesHalf,
  HopperLlLimit,
  NvlsStepLatency,
  NvlsTreeHasNvlsBuffers,
  LlThresholdForEachBlock,
  CrossingRingsExchangeNics,
  LoneGpusRunTrees,
  Ll128OfLoneGpus,
  NvlsGathersAtFullRate,
  Pat,
  PeersOfOneSwitch,
  RingsLastHopIsInside,
  SimpleTreeLatency,
  NothingAllowedIsAnError,
  PatBandwidth,
  BlackwellRows,
  Ll128OnBlackwell,
  NvlsOfAtMost32Heads,
  SapphireRapidsRate,
  TwoRingsOfTwoDomains,
  CollnetGathersAtNetworkRate,
  C2cPathsToNics,
  Ll128OnAnyGpu,
  NvlsGathersAtNetworkRate,
  BlackwellNumbers,
  NvlsCostModel,
  NvlsTreeNumbers,
  PxnBeyondC2c,
};
struct Difference {
  Change change;
  int since;  // 2.x
  std::string_view before_and_now;
  std::string_view source;  // in NCCL's tree
};
inline constexpr std::string_view kTuningFile = "src/graph/tuning.cc";
inline constexpr std::array kDifferences{
    Difference{Change::Ll128, 5, "no protocol LL128 | it is there", kTuningFile},
    Difference{Change::SocketsByProxyThread, 5,
               "a connection's socket has a thread | a rank's proxy thread serves all sockets",
               "src/transport/net_socket.cc"},
    Difference{Change::PeersNotThroughIntel, 9,
               "P2P through a CPU, not between CPUs | through no CPU of Intel and Arm, any other",
               "src/graph/paths.cc"},
    Difference{Change::NetworkLatencyOfPlugin, 13,
               "a network adds no latency of its own | what its plugin says",
               "src/graph/search.cc"},
    Difference{Change::CollnetDirectGathers, 20,
               "CollnetDirect reduces to all only | it gathers and scatters, too", kTuningFile},
    Difference{Change::CrossingRingsNeedNoMargin, 20,
               "rings that cross NICs have to be 15 % faster than those that do not | faster",
               "src/graph/search.cc"},
    Difference{Change::HopperNvlinkRate, 20, "NVLink of SM90: 20 GB/s | 20.6 GB/s",
               "src/graph/topo.h"},
    Difference{Change::TreeKeepsItsChunk, 20,
               "a Simple tree halves its chunk where the operation is small | the chunk stays",
               "src/enqueue.cc"},
    Difference{Change::LlTakesHalf, 21,
               "LL's share of a ring's bandwidth: 1/4, of gathers in one node 1/3 | 1/2",
               kTuningFile},
    Difference{Change::HopperLlLimit, 21, "llMaxBws of Hopper in one node: Ampere's | its own",
               kTuningFile},
    Difference{Change::NvlsStepLatency, 21, "NVLS over NVLink: 23 us | 25 us", kTuningFile},
    Difference{Change::NvlsTreeHasNvlsBuffers, 21,
               "NVLSTree's chunk: a step of the usual buffers | at most NVLS's 128 KiB",
               "src/enqueue.cc"},
    Difference{Change::LlThresholdForEachBlock, 22,
               "send/recv by LL up to 16 KiB in all | for each thread block", "src/enqueue.cc"},
    Difference{Change::CrossingRingsExchangeNics, 23,
               "a ring leaves by any NIC | two rings exchange theirs", "src/graph/search.cc"},
    Difference{Change::LoneGpusRunTrees, 23,
               "between nodes of one GPU each algorithm's own latency | the tree's", kTuningFile},
    Difference{Change::Ll128OfLoneGpus, 23,
               "LL128's share of a ring between nodes of one GPU: 0.7 | 0.92", kTuningFile},
    Difference{Change::NvlsGathersAtFullRate, 23,
               "NVLS gathers and scatters at 5/6 of its rate | at its rate", kTuningFile},
    Difference{Change::Pat, 23, "no algorithm PAT | it is there", kTuningFile},
    Difference{Change::PeersOfOneSwitch, 23,
               "P2P by the CPU's make | within PCIe switches; two GPUs of an AMD host always",
               "src/graph/paths.cc"},
    Difference{Change::RingsLastHopIsInside, 23,
               "a ring's all-reduce makes 2 N steps between N nodes | 2 (N - 1)", kTuningFile},
    Difference{Change::SimpleTreeLatency, 23,
               "a Simple tree: 0 us at once, 28 us a step | 8.4 us, and as little as a ring",
               kTuningFile},
    Difference{Change::NothingAllowedIsAnError, 24,
               "where settings leave nothing NCCL runs a ring | it stops", "src/enqueue.cc"},
    Difference{Change::PatBandwidth, 24, "PAT reaches 0.85 of the bandwidth | 0.75", kTuningFile},
    Difference{Change::BlackwellRows, 25, "Blackwell's limits are Hopper's | twice Hopper's",
               kTuningFile},
    Difference{Change::Ll128OnBlackwell, 25, "no LL128 on SM100 and SM120 | it may be chosen",
               kTuningFile},
    Difference{Change::NvlsOfAtMost32Heads, 25,
               "NVLS has a head for each GPU of a node | 32 at most (NCCL_MAX_NVLS_ARITY)",
               "src/graph/search.cc, src/graph/tuning.cc"},
    Difference{Change::SapphireRapidsRate, 26,
               "between Intel's CPUs: 10 GB/s | with GPUs since SM89 22 GB/s", "src/graph/topo.h"},
    Difference{Change::TwoRingsOfTwoDomains, 26,
               "one ring is enough | two groups of GPUs, each joined by NVLink, have two",
               "src/graph/search.cc"},
    Difference{Change::CollnetGathersAtNetworkRate, 27,
               "CollnetDirect gathers at NVLink's rate, less by the node's size | at the least of "
               "NVLink's and 0.9 of the network's",
               kTuningFile},
    Difference{Change::C2cPathsToNics, 27,
               "a NIC beyond C2C is as far as any of the CPU (PHB) | nearer (P2C)",
               "src/graph/paths.cc"},
    Difference{Change::Ll128OnAnyGpu, 27, "LL128 on GPUs that it was tried on | since SM70",
               kTuningFile},
    Difference{Change::NvlsGathersAtNetworkRate, 27,
               "NVLS gathers at the least of the two rates | at 0.9 of the network's", kTuningFile},
    Difference{Change::BlackwellNumbers, 28, "Blackwell's limits are twice Hopper's | its own",
               kTuningFile},
    Difference{Change::NvlsCostModel, 28,
               "NVLS: its channels at 5/6 of the slower rate | by an efficiency of the switch",
               kTuningFile},
    Difference{Change::NvlsTreeNumbers, 28,
               "NVLSTree: 14 us between nodes, a tree's limits | 20.9 us, its own", kTuningFile},
    Difference{Change::PxnBeyondC2c, 28,
               "by another GPU to a NIC (PXN) only where that one needs no C2C | also there",
               "src/graph/paths.cc"},
};

// 2.x. Its number is for people; code asks has().
class Version {
 public:
  constexpr Version() = default;
  constexpr Version(int minor) : minor_(minor) {}
  constexpr bool has(Change c) const {
    return minor_ >= kDifferences[static_cast<std::size_t>(c)].since;
  }
  // Whether the cost model of this very version was read.
  constexpr bool is_known() const { return minor_ >= 19 && minor_ <= 28; }
  friend std::string to_string(Version v);  // "2.28"

 private:
  int minor_ = 28;
};
// "2.23.4", "2.23"; none = not a version.
std::optional<Version> parse_version(const std::string& text);

}  // namespace ddpsim::nccl
