#include "sim/collective/decision.h"

#include <span>

namespace ddpsim::collective {
namespace {

using Choice = OpenMpiAllReduce;

// Below `bytes`: `choice`. The last row has no limit.
struct Rule {
  std::int64_t bytes;
  int choice;
};
// For fewer than `ranks` ranks; the last table has no limit.
struct Table {
  int ranks;
  std::span<const Rule> rules;
};
constexpr std::int64_t kAny = INT64_MAX;

constexpr Rule k2[] = {{8, 4},     {4096, 3},   {8192, 4}, {16384, 3},
                       {65536, 4}, {262144, 5}, {kAny, 6}};
constexpr Rule k4[] = {{16, 4}, {8192, 3}, {kAny, 6}};
constexpr Rule k8[] = {{8192, 3}, {kAny, 6}};
constexpr Rule k16[] = {{64, 5}, {4096, 3}, {kAny, 6}};
constexpr Rule k32[] = {{128, 5}, {kAny, 6}};
constexpr Rule k64[] = {{262144, 3}, {kAny, 6}};
constexpr Rule k128[] = {{131072, 2}, {262144, 3}, {kAny, 6}};
constexpr Rule k256[] = {{4096, 2}, {kAny, 6}};
constexpr Rule k512[] = {{2048, 2}, {16384, 3}, {kAny, 6}};
constexpr Rule k2048[] = {{2048, 2}, {4096, 5}, {16384, 3}, {kAny, 6}};
constexpr Rule k4096[] = {{2048, 2}, {16384, 5}, {32768, 3}, {kAny, 6}};
constexpr Table kTuned[] = {{4, k2},      {8, k4},       {16, k8},          {32, k16},
                            {64, k32},    {128, k64},    {256, k128},       {512, k256},
                            {2048, k512}, {4096, k2048}, {INT32_MAX, k4096}};

// Main, one rank a node; above 64 ranks the table above.
constexpr Rule kOne2[] = {{kAny, 3}};
constexpr Rule kOne3[] = {{kAny, 7}};
constexpr Rule kOne4[] = {{1048576, 7}, {kAny, 3}};
constexpr Rule kOne8[] = {{262144, 7}, {1048576, 6}, {kAny, 3}};
constexpr Rule kOne16[] = {{32768, 7}, {131072, 2}, {kAny, 6}};
constexpr Rule kOne32[] = {{32768, 7}, {131072, 3}, {kAny, 6}};
constexpr Table kOneRankPerNode[] = {{3, kOne2},  {4, kOne3},   {8, kOne4},
                                     {16, kOne8}, {32, kOne16}, {65, kOne32}};

Choice find(std::span<const Table> tables, int ranks, std::int64_t bytes) {
  for (const Table& t : tables)
    if (ranks < t.ranks)
      for (const Rule& r : t.rules)
        if (bytes < r.bytes) return static_cast<Choice>(r.choice);
  return Choice::Rabenseifner;
}

}  // namespace

OpenMpiAllReduce open_mpi_all_reduce(OpenMpi version, int ranks, std::int64_t bytes,
                                     std::int64_t elements, bool one_rank_per_node) {
  if (version == OpenMpi::V4_0) {
    if (bytes < 10'000) return Choice::RecursiveDoubling;
    if (elements <= ranks) return Choice::NonOverlapping;
    return std::int64_t{ranks} * (1 << 20) >= bytes ? Choice::Ring : Choice::SegmentedRing;
  }
  bool apart = version == OpenMpi::Main && one_rank_per_node && ranks <= 64;
  return find(apart ? std::span<const Table>(kOneRankPerNode) : std::span<const Table>(kTuned),
              ranks, bytes);
}

Algorithm algorithm_of(OpenMpiAllReduce a) {
  switch (a) {
    case Choice::RecursiveDoubling:
      return Algorithm::RecursiveDoubling;
    case Choice::Ring:
    case Choice::SegmentedRing:
      return Algorithm::Ring;
    case Choice::Rabenseifner:
      return Algorithm::HalvingDoubling;
    case Choice::NonOverlapping:
      return Algorithm::BinomialTree;
    default:
      return Algorithm::Direct;
  }
}

}  // namespace ddpsim::collective
