// NCCL's cost model: latency and bandwidth of every (operation, algorithm, protocol), by NCCL's
// version; the estimate from which NCCL chooses. Source: NCCL src/graph/tuning.cc
// (ncclTopoInitTunerConstants, ncclTopoTuneModel, ncclTopoGetAlgoTime) at the tags v2.19.3 to
// v2.30.7; docs/model.md section 7.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "sim/nccl/graph.h"
#include "sim/nccl/version.h"

namespace ddpsim::nccl {

int floor_log2(std::int64_t n);  // 0 for n <= 1

enum class Cpu : std::uint8_t { Intel, Amd, Arm, Power, Mixed };

// The communicator, as far as the cost model looks at it.
struct System {
  Version version;
  int nodes = 1;
  int ranks = 1;
  int compute_capability =
      90;                      // lowest of the GPUs, times ten: 70 V100, 80 A100, 90 H100, 100 B200
  bool one_capability = true;  // all GPUs have the same
  Cpu cpu = Cpu::Intel;
  bool nvswitch = false;  // GPUs of a node are behind NVSwitches (NVLS needs SM90 besides)
  bool collnet = false;   // a CollNet plugin (SHARP) is there and NCCL_COLLNET_ENABLE=1
  bool nvls = true;       // NCCL_NVLS_ENABLE, and the GPUs have multicast
  bool ll128 = true;      // the network delivers 128-byte stores whole (EFA before P5 does not)
  bool ll = true;         // ... and 8-byte stores
  bool rccl = false;      // RCCL in NCCL's place
  Graphs graphs;
  double per_node() const { return 1.0 * ranks / nodes; }
  // GPUs of a node between which NVLS divides an operation.
  double heads() const {
    int channels = graphs[GraphId::Nvls].channels;
    return channels > 0 && channels < per_node() ? channels : per_node();
  }
};

// One cell of NCCL's table. bandwidth 0 = not available.
struct Cell {
  Microseconds latency;
  GBps bandwidth;  // of the whole operation: bytes / bandwidth = time
};
using Table = By<Algorithm, By<Protocol, Cell>>;

Table cost_table(const System& s, Operation op, Version v);

// ncclTopoGetAlgoTime: with the corrections by size. nullopt = not available. `bytes`: NCCL's
// count, the larger of what a rank sends and receives in all.
std::optional<Microseconds> estimate(const System& s, const Table& t, Operation op, Algorithm a,
                                     Protocol p, std::int64_t bytes);

// Whose numbers ddpsim's own price takes, whatever version runs: the newest, which were measured;
// of earlier ones some only keep an algorithm from being chosen (28 us for each hop of a Simple
// tree, 2.19 to 2.22).
inline constexpr Version kMeasured{28};

// NCCL's latencies: one step over a kind of hop, and once per operation.
enum class HopKind : std::uint8_t { Nvlink, Pci, Net };
template <>
inline constexpr std::size_t kCount<HopKind> = 3;
Microseconds step_latency(Version v, HopKind hop, Algorithm a, Protocol p);
Microseconds base_latency(Version v, Algorithm a, Protocol p);
double nvls_efficiency(int compute_capability);
// On so many nodes of this system a channel's thread block moves at most so much of its data. Tree
// and LL128 have such limits; 0 = none known.
GBps channel_limit(const System& s, int nodes, Version v, Algorithm a, Protocol p);
GBps ll_bus_limit(const System& s, int nodes, Version v);  // of bus bandwidth that LL reaches

const ChannelGraph& graph_of(const System& s, Algorithm a);
// Channels of the communicator: the search's, duplicated, and of 2.20 to 2.27 as many as NVLS has,
// where it may run (src/graph/connect.cc).
int communicator_channels(const System& s, Algorithm a);

}  // namespace ddpsim::nccl
