// What Open MPI decides: which algorithm an MPI_Allreduce or an MPI_Bcast runs, by version, ranks
// and bytes, and what of it its MCA variables change. Pure tables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/model/algorithm.h"
#include "sim/model/error.h"

namespace ddpsim::collective {

enum class OpenMpiVersion : std::uint8_t { V4_0, V4_1, V5_0 };

// coll/tuned's algorithms of MPI_Allreduce, with its own numbers.
enum class MpiAllReduce : std::uint8_t {
  BasicLinear = 1,
  NonOverlapping = 2,
  RecursiveDoubling = 3,
  Ring = 4,
  SegmentedRing = 5,
  Rabenseifner = 6
};
inline constexpr int kMpiAllReduces = 6;
const char* name_of(MpiAllReduce a);
// The step list that it plays: segmented rings and plain ones are one.
Algorithm algorithm_of(MpiAllReduce a);

// What a plan says of it.
struct OpenMpi {
  OpenMpiVersion version = OpenMpiVersion::V4_1;
  int all_reduce = 0;              // coll_tuned_allreduce_algorithm; 0 = by the fixed rules
  std::int64_t segment = 0;        // ..._algorithm_segmentsize, bytes: of a forced segmented ring
  std::int64_t eager = 64 * 1024;  // btl_tcp_eager_limit, bytes
  int han_priority = -1;           // coll_han_priority; -1 = the version's
  bool polls = false;  // whoever calls is in MPI before, too: Horovod's thread (turns.h)
  // coll/han takes communicators of several hosts with several ranks each.
  bool han() const {
    return han_priority >= 0 ? han_priority > kTunedPriority : version == OpenMpiVersion::V5_0;
  }
  static constexpr int kTunedPriority = 30;
};

// What coll/tuned's fixed rules say of a commutative operation. Source:
// ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, ompi_coll_tuned_allreduce_intra_dec_fixed:
// v4.0.5; v4.1.6 and v5.0.9, whose tables are one. REQUIRES: ranks >= 2, bytes >= 0.
MpiAllReduce fixed_all_reduce(OpenMpiVersion version, int ranks, std::int64_t bytes,
                              std::int64_t elements);
// What runs after the algorithm has looked at its count (coll_base_allreduce.c): a ring with fewer
// elements than ranks is recursive doubling; a segmented ring with less than a segment a rank is
// the plain ring; Rabenseifner with fewer elements than the ranks that are left of a power of two
// is basic linear.
MpiAllReduce all_reduce_that_runs(const OpenMpi& mpi, int ranks, std::int64_t bytes,
                                  std::int64_t element_size);
// The rows of those rules for so many ranks, by size: what a decision was read from. Between
// `from` and `below` bytes (of elements of four bytes); kMpiAnySize = no limit.
inline constexpr std::int64_t kMpiAnySize = INT64_MAX;
struct MpiRow {
  std::int64_t from = 0;
  std::int64_t below = kMpiAnySize;
  int number = 0;  // coll/tuned's own
  const char* name = "";
  bool holds(std::int64_t bytes) const {
    return bytes >= from && (bytes < below || below == kMpiAnySize);
  }
};
struct MpiTable {
  int ranks_from = 2;  // of communicators of so many ranks; ranks_below 0 = no limit
  int ranks_below = 0;
  std::vector<MpiRow> rows;
};
MpiTable all_reduce_table(OpenMpiVersion version, int ranks);
MpiTable broadcast_table(int ranks);
// "4.1"
const char* name_of(OpenMpiVersion v);

// Of MPI_Bcast, by the fixed rules of v4.1.6 and v5.0.9 (ompi_coll_tuned_bcast_intra_dec_fixed);
// without segments, as these give none. 4.0's are taken as these. A split binary tree is taken as a
// binary one, and scatter and all-gather on ranks that are no power of two as the binomial tree.
Algorithm fixed_broadcast(int ranks, std::int64_t bytes);

// `version`: "4.0", "4.1", "5.0", or with a third number; "" = 4.1. `environment`: OMPI_MCA_...
// variables. The problem's path is the variable's name, or "" for the version.
struct ParsedOpenMpi {
  OpenMpi mpi;
  Problem problem;
};
ParsedOpenMpi parse_open_mpi(const std::string& version,
                             const std::map<std::string, std::string>& environment);

}  // namespace ddpsim::collective
