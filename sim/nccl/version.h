// What differs between NCCL's versions, a row a difference; nothing else compares versions. Read
// from the tags v2.19.3 to v2.30.7: older ones behave as 2.19, newer ones as 2.30, but for the rows
// that say an older version.
#pragma once

#include <array>
#include <compare>
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
  CrossingRingsGoInPairs,
  NvlsRaisesChannels,
  LlTakesHalf,
  HopperLlLimit,
  NvlsStepLatency,
  NvlsTreeHasNvlsBuffers,
  OnSwitchesNeighboursOnly,
  ElevenOfHopper,
  LlThresholdForEachBlock,
  WorkSharedByChannels,
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
  PathTypesOfTheNode,
  NvlsChannelsOfBlackwell,
  SapphireRapidsRate,
  TwoRingsOfTwoDomains,
  CollnetGathersAtNetworkRate,
  C2cPathsToNics,
  Ll128OnAnyGpu,
  NvlsGathersAtNetworkRate,
  ChannelsBeginAtTheNicsOwnGpu,
  EighteenOfBlackwell,
  SymmetricKernels,
  NvlsChannelsOfOneNode,
  DifferentChannelsAreNotReplayed,
  ExactPortsOfBlackwell,
  WholePortsOfBlackwell,
  BlackwellNumbers,
  NvlsCostModel,
  NvlsTreeNumbers,
  PxnBeyondC2c,
  NvlsHasItsOwnChannels,
  NvlsOfTwoGpus,
  NvlsNeedsTwoHeads,
  TreesComeBackFar,
  RingLl128OfBlackwell,
  NvlsTreeCorrection,
  MoreSpeedsOfBlackwell,
  NvlsTreeOfBlackwell,
  EightySixOfBlackwell,
  Ll128OfMixedGpus,
};
// 2.minor.patch.
struct Release {
  int minor = 0;
  int patch = 0;
  constexpr Release(int m, int p = 0) : minor(m), patch(p) {}
  friend constexpr auto operator<=>(const Release&, const Release&) = default;
};
struct Difference {
  Change change;
  Release since;
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
    Difference{Change::CrossingRingsGoInPairs, 20,
               "a channel that crosses leaves by any NIC | each second one goes the other way",
               "src/graph/search.cc"},
    Difference{Change::NvlsRaisesChannels, 20,
               "as many channels as the search finds twice | at least as many as NVLS has",
               "src/graph/connect.cc"},
    Difference{Change::LlTakesHalf, 21,
               "LL's share of a ring's bandwidth: 1/4, of gathers in one node 1/3 | 1/2",
               kTuningFile},
    Difference{Change::HopperLlLimit, 21, "llMaxBws of Hopper in one node: Ampere's | its own",
               kTuningFile},
    Difference{Change::NvlsStepLatency, 21, "NVLS over NVLink: 23 us | 25 us", kTuningFile},
    Difference{Change::NvlsTreeHasNvlsBuffers, 21,
               "NVLSTree's chunk: a step of the usual buffers | at most NVLS's 128 KiB",
               "src/enqueue.cc"},
    Difference{Change::OnSwitchesNeighboursOnly, 21,
               "on an NVSwitch neighbours are tried first | and no others", "src/graph/search.cc"},
    Difference{Change::ElevenOfHopper, 21, "11 GB/s is not tried in one node of SM90 | it is",
               "src/graph/search.cc"},
    Difference{Change::LlThresholdForEachBlock, 22,
               "send/recv by LL up to 16 KiB in all | for each thread block", "src/enqueue.cc"},
    Difference{Change::WorkSharedByChannels, 22,
               "the host writes each channel's work by itself | once for all channels",
               "src/enqueue.cc"},
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
    Difference{Change::PathTypesOfTheNode, 25,
               "ways between GPUs from NVLink, to NICs from PIX, up to SYS | the nearest to the "
               "farthest that the node has",
               "src/graph/search.cc"},
    Difference{Change::NvlsChannelsOfBlackwell, 25, "NVLS runs on 16 channels | on SM100 32",
               "src/transport/nvls.cc"},
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
    Difference{Change::ChannelsBeginAtTheNicsOwnGpu, 27,
               "a channel begins at each GPU that its NIC reaches in fewest hops | at those that "
               "it reaches best",
               "src/graph/search.cc"},
    Difference{
        Change::EighteenOfBlackwell, 27,
        "18 GB/s is not tried in one node of SM100 | it is; between nodes 47.9 instead of 48",
        "src/graph/search.cc"},
    Difference{Change::SymmetricKernels, 27,
               "buffers in symmetric windows are like others | one kernel of their own",
               "src/symmetric.cc"},
    Difference{Change::NvlsChannelsOfOneNode, 27,
               "NVLS runs on 32 channels of SM100 | on 24 in one node", "src/transport/nvls.cc"},
    Difference{Change::DifferentChannelsAreNotReplayed,
               {27, 5},
               "the last channel's order is tried first for each channel | only where all have to "
               "be the same",
               "src/graph/search.cc"},
    Difference{Change::ExactPortsOfBlackwell,
               {27, 5},
               "between nodes of SM100 47.9 and 45 GB/s are tried | 48 and 45.1",
               "src/graph/search.cc"},
    Difference{Change::WholePortsOfBlackwell,
               {27, 6},
               "between nodes of SM100 48 GB/s at most | 96",
               "src/graph/search.cc"},
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
    Difference{Change::NvlsHasItsOwnChannels, 28,
               "all algorithms run on as many channels as NVLS | each on its own",
               "src/graph/connect.cc"},
    Difference{Change::NvlsOfTwoGpus, 28, "NVLS needs three GPUs a node | two",
               "src/transport/nvls.cc"},
    Difference{Change::NvlsNeedsTwoHeads, 28, "NVLSTree runs with one head, too | with two",
               kTuningFile},
    Difference{Change::TreesComeBackFar, 29,
               "before SM90, too, a tree comes back no farther than it leaves | up to SYS",
               "src/graph/search.cc"},
    Difference{Change::RingLl128OfBlackwell, 29,
               "Blackwell's limits of a ring's LL128: 73.4, 34.6, 73.4 GB/s a channel | 40",
               kTuningFile},
    Difference{Change::NvlsTreeCorrection, 29,
               "NVLSTree is not corrected by size | as a tree is, on SM100 with x86 CPUs",
               kTuningFile},
    Difference{Change::MoreSpeedsOfBlackwell, 29,
               "45 GB/s in a node and 80 between nodes of SM100 are not tried | they are",
               "src/graph/search.cc"},
    Difference{Change::NvlsTreeOfBlackwell, 30,
               "NVLSTree of SM100 on many nodes: 43.8 GB/s a channel | 80", kTuningFile},
    Difference{Change::EightySixOfBlackwell, 30,
               "86 GB/s between nodes of SM100 is not tried | it is", "src/graph/search.cc"},
    Difference{Change::Ll128OfMixedGpus, 30,
               "LL128 needs GPUs of one compute capability | or all of SM90 and newer",
               kTuningFile},
};

// 2.x, or 2.x.y; without y the last of them. Its number is for people; code asks has().
class Version {
 public:
  static constexpr int kLastPatch = 99;
  constexpr Version() = default;
  constexpr Version(int minor, int patch = kLastPatch) : release_(minor, patch) {}
  constexpr bool has(Change c) const {
    return release_ >= kDifferences[static_cast<std::size_t>(c)].since;
  }
  // Whether the cost model of this very version was read.
  constexpr bool is_known() const { return release_.minor >= 19 && release_.minor <= 30; }
  bool operator==(const Version&) const = default;
  friend std::string to_string(Version v);  // "2.28"

 private:
  Release release_{28, kLastPatch};
};
// "2.23.4", "2.23"; none = not a version.
std::optional<Version> parse_version(const std::string& text);

}  // namespace ddpsim::nccl
