// Where AMD's RCCL, a fork of NCCL, does something else on an MI300X (gfx942), a row a difference.
// Read from ROCm/rccl at 0cbce2a (October 2024), not executed. Not here: RCCL's own constants of
// its cost model (rcclTuningModel), by which it chooses, and MSCCL's all-pairs algorithms, which
// it runs for all-reduces of one node up to 16 MiB.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/nccl/search.h"

namespace ddpsim::nccl {

enum class RcclDifference : std::uint8_t { RingsByModel, XgmiRate, NoLl128, NoSimpleTreeOfOneNode };
struct RcclRow {
  RcclDifference difference;
  std::string_view nccl_and_rccl;
  std::string_view source;  // in RCCL's tree
};
inline constexpr std::array kRcclDifferences{
    RcclRow{RcclDifference::RingsByModel,
            "channels by a search | 28 rings of a table, on one node of eight GPUs of which each "
            "two are joined, with each link each way in four of them",
            "src/graph/rome_models.cc"},
    RcclRow{RcclDifference::XgmiRate, "NVLink of SM90: 20.6 of 25 GB/s | Infinity Fabric: 48 of 64",
            "src/graph/topo.h"},
    RcclRow{RcclDifference::NoLl128, "LL128 within NVLink's reach | on gfx90a only",
            "src/graph/tuning.cc"},
    RcclRow{RcclDifference::NoSimpleTreeOfOneNode, "a Simple tree | none on one node",
            "src/graph/tuning.cc"},
};

// The channels of one such node; none = RCCL's table has no rings for it, and the search stands in
// for what RCCL does.
std::optional<Graphs> rccl_graphs(const Node& node, int nodes);

// Whether RCCL's cost model has the pair. `nodes`: of the communicator.
bool rccl_offers(Algorithm a, Protocol p, int nodes);

}  // namespace ddpsim::nccl
